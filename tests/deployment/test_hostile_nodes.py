"""Poisoning through real nodes and a server on loopback is poisoning in a simulation, bit for bit.

The server is that of `coterie serve`, and does not know which of its nodes are hostile.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")
from deployment.hostile_node import Conspiracy, HostileService
from deployment.test_federation import Site, site

from coterie.algorithms.registry import algorithm
from coterie.attacks.poisoning import ATTACKS, Colluders, attack, poisoned
from coterie.core.progress import SILENT
from coterie.data.datasets import load
from coterie.data.interactions import Interactions
from coterie.deployment.address import Address
from coterie.deployment.enrolment import FederationTerms
from coterie.deployment.fleet.client import FleetClient
from coterie.deployment.fleet.node_loop import NodeLoop
from coterie.deployment.fleet.serve import run
from coterie.deployment.node_private_store import NodeStore
from coterie.deployment.node_service import SIMULATED, NodeService
from coterie.deployment.server_config import prepare_folder
from coterie.engines.local import LocalEngine
from coterie.experiments.preparation import Prepared, prepare
from coterie.federated import trainer
from coterie.federated.federation import Federation
from coterie.federated.settings import federation_settings
from coterie.federated.trainer import Context

__all__ = ["site"]
FEW = "embedding_size: 5\nrounds: 6\nparticipation: 0.3\n"
FEDFAST = f"algorithm: fedfast\nclusters: 4\n{FEW}"
FCF = f"algorithm: fcf\n{FEW}"
ALONE = ["sign-flip", "count-inflation", "free-rider", "boost", "pipattack", "fedrecattack"]
"""Attacks in which a colluder neither draws at random, nor needs what other colluders see."""


@dataclass
class Attackers:
    """The attackers of a federation, and what a simulation says that they do."""

    ready: Prepared
    conspiracy: Conspiracy

    @classmethod
    def of(cls, terms: FederationTerms, people: Interactions, name: str) -> Attackers:
        ready = prepare(terms.experiment, people, SILENT)
        colluders = Colluders.of(ready.training, share=0.05, seed=1, public=0.05)
        return cls(ready, Conspiracy(attack(name), colluders))

    def hosts(self, n_hostile: int) -> np.ndarray:
        """(users,) hostile nodes come first, and host colluders and others; the last is honest."""
        colluders = self.conspiracy.colluders.users
        hosts = np.arange(self.ready.training.n_users) % (n_hostile + 1)
        hosts[colluders] = np.arange(len(colluders)) % n_hostile
        return hosts

    def simulated(self) -> dict[str, np.ndarray]:
        """The state that the attacked simulation ends with."""
        name = self.ready.experiment.choice.algorithm
        honest = algorithm(name).train
        assert isinstance(honest, Federation)
        federation = poisoned(honest, self.conspiracy.attack, self.conspiracy.colluders)
        return last_state(self.ready, federation)


def last_state(ready: Prepared, federation: Federation) -> dict[str, np.ndarray]:
    settings = federation_settings(ready.experiment.settings)
    choice = ready.experiment.choice
    world = trainer.world_of(ready.training, settings, choice.seed, federation)
    engine = LocalEngine.over(world, ready.training, 1)
    work = trainer.federated_trainer(federation, world, engine, Context(world.seed, SILENT))
    state, _ = work.start()
    for n in range(1, algorithm(choice.algorithm).steps(world.settings) + 1):
        state, _ = work.step(state, n)
    arrays: dict[str, np.ndarray] = state.arrays()
    return arrays


@contextmanager
def joined(
    people: Interactions, address: str, path: Path, conspiracy: Conspiracy | None
) -> Iterator[None]:
    """A node of these users over a socket; with a conspiracy it is hostile."""
    stop = threading.Event()

    def take_part() -> None:
        with closing(NodeStore.create(path)) as store:
            store.put_interactions(people)
            service = NodeService(store)
            if conspiracy is not None:
                service = HostileService(store, conspiracy=conspiracy)
            service.set_seed(SIMULATED)
            client = FleetClient.to(Address.of(address), None, None)
            NodeLoop(client, service.answer, users_version=store.version, stop=stop).run()
            client.close()

    thread = threading.Thread(target=take_part, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10)


def attacked_federation(site: Site, settings: str, name: str, n_hostile: int = 1) -> Attackers:
    """A federation in this process, over sockets, with one honest node; trained to its end."""
    site.config(n_hostile + 1, settings)
    folder = prepare_folder(site.folder / "fed.yaml", site.folder / "run", SILENT)
    attackers = Attackers.of(site.terms, site.people, name)
    hosts = attackers.hosts(n_hostile)
    with ExitStack() as nodes:
        for node in range(n_hostile + 1):
            own = site.people.select(hosts[site.people.users] == node).compact()
            conspiracy = attackers.conspiracy if node < n_hostile else None
            path = site.folder / f"node-{node}.db"
            nodes.enter_context(joined(own, site.server, path, conspiracy))
        try:
            run(folder, Address.of(site.server), None, SILENT, 60.0)
        finally:
            close_logs()
    return attackers


def close_logs() -> None:
    """A server leaves its log open until its process ends."""
    for name in ("flwr", "uvicorn"):
        for handler in logging.getLogger(name).handlers:
            handler.close()


def private_state(site: Site, nodes: int) -> dict[str, np.ndarray]:
    """What the clients of all nodes hold, ordered by user."""
    users: list[int] = []
    parts: list[Mapping[str, np.ndarray]] = []
    for node in range(nodes):
        with closing(NodeStore.open(site.folder / f"node-{node}.db")) as store:
            numbers = store.numbers()
            users += numbers
            parts.append(store.private_state(list(numbers.values())))
    order = np.argsort(users)
    return {name: np.concatenate([part[name] for part in parts])[order] for name in parts[0]}


@pytest.mark.parametrize("robust", ["none", "bounded"])
@pytest.mark.parametrize("settings", [FEDFAST, FCF], ids=["fedfast", "fcf"])
@pytest.mark.parametrize("name", ["noise", "pieck", "boost"])
def test_an_attack_through_nodes_is_the_simulation(site: Site, name, settings, robust):
    attackers = attacked_federation(site, f"{settings}robust: {robust}\n", name)
    assert site.status()["refused"] == {}
    simulated = attackers.simulated()
    assert site.equals(simulated)
    for held, rows in private_state(site, 2).items():
        assert np.array_equal(rows, simulated[held])
    federation = algorithm(attackers.ready.experiment.choice.algorithm).train
    assert isinstance(federation, Federation)
    assert not site.equals(last_state(attackers.ready, federation))


def test_the_operator_sees_a_promoted_item(site: Site):
    attackers = attacked_federation(site, FEDFAST + "robust: none\n", "boost")
    target = site.terms.items[attackers.conspiracy.colluders.target]
    status = site.status()
    assert "times as long as that of any other item" in status["alarms"][f"item {target}"]
    assert status["alarms_raised"]["row of an item"] >= 1


@pytest.mark.long
@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_through_one_node_is_the_simulation(site: Site, name):
    """Colluders of one node see what all colluders of a simulation see."""
    attackers = attacked_federation(site, FEDFAST, name)
    assert site.equals(attackers.simulated())


@pytest.mark.long
@pytest.mark.parametrize("name", ATTACKS)
def test_colluders_of_two_nodes_share_nothing(site: Site, name):
    """Attacks without draws, averages and memory are the simulation on any number of nodes."""
    attackers = attacked_federation(site, FEDFAST, name, n_hostile=2)
    assert site.status()["refused"] == {}
    assert site.equals(attackers.simulated()) == (name in ALONE)


@pytest.mark.long
@pytest.mark.parametrize("robust", ["none", "bounded"])
@pytest.mark.parametrize("algorithm_name", ["fedfast", "fcf"])
@pytest.mark.parametrize("name", ["noise", "pieck", "boost"])
def test_movielens(tmp_path, real_data, name, algorithm_name, robust):
    """Server and honest nodes are processes of the documented commands."""
    real_data("ml-100k", "u.data", "ml-100k.inter")
    site = Site(tmp_path, load("ml-100k"))
    site.config(3, f"algorithm: {algorithm_name}\nrounds: 20\nrobust: {robust}\n")
    server = site.serve("--insecure")
    try:
        site.wait(lambda: "serving at" in site.log(server), 60)
        attackers = Attackers.of(site.terms, site.people, name)
        hosts = attackers.hosts(1)
        hosts[(hosts == 1) & (np.arange(len(hosts)) % 4 == 3)] = 2
        hostile = site.people.select(hosts[site.people.users] == 0).compact()
        for node in (1, 2):
            site.node_file(node, hosts == node)
            site.join(node, "--insecure")
        with joined(hostile, site.server, tmp_path / "0.db", attackers.conspiracy):
            site.wait(lambda: server.poll() is not None, 240)
        assert server.returncode == 0, site.log(server)
        assert site.status()["round"] == 20
        assert site.equals(attackers.simulated())
    finally:
        site.stop()
