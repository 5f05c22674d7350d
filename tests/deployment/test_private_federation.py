"""Federations with a privacy budget: noise, what nodes never send, and what is written down."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography")
pytest.importorskip("dp_accounting")

from deployment.test_server import InProcessNodes, new_federation, same, served, simulated

from coterie.core.progress import SILENT
from coterie.data.interactions import Interactions
from coterie.deployment.enrolment import EnrolledUsers, FederationTerms, ItemContent
from coterie.deployment.node import Node
from coterie.deployment.node_data import roster_of, simulated_seed
from coterie.deployment.node_private_store import NodeStore
from coterie.deployment.node_service import (
    ENROL,
    EVALUATE,
    FINISH,
    TRAIN,
    NodeService,
    split_preamble,
)
from coterie.deployment.server_config import prepare_folder
from coterie.deployment.world import node_world, server_world
from coterie.errors import ConfigError
from coterie.federated.privacy.budget import plan_of_run
from coterie.federated.secagg.identity import SimulatedIdentities
from coterie.federated.wire import Malformed

PRIVATE: dict[str, Any] = {"epsilon": 3.0, "noise_source": "system"}
DISTRIBUTED = PRIVATE | {"noise": "distributed", "secure_aggregation": "secagg"}


def with_simulated_keys(paths: list[Path], terms: FederationTerms) -> None:
    """Give users the secrets that they have in a simulation, from which their noise follows."""
    rosters = {}
    for node, path in enumerate(paths):
        rosters[str(node)] = roster_of(terms, NodeStore.open(path))
    index = EnrolledUsers.of(rosters).index()
    keys = SimulatedIdentities(simulated_seed(terms))
    for path in paths:
        store = NodeStore.open(path)
        with store.transaction():
            store.connection.executemany(
                "update person set signing_key = ? where id = ?",
                [(keys.own(index[user]).secret, user) for user in store.users()],
            )
        store.close()


class RecordingNodes(InProcessNodes):
    """Nodes whose messages and replies are recorded: (kind, node, message, reply)."""

    def __init__(self, paths: list[Path], **more: Any) -> None:
        super().__init__(paths, **more)
        self.sent: list[tuple[str, int, bytes, bytes | None]] = []

    def _call(self, kind: str, node: int, data: bytes) -> bytes | None:
        reply = super()._call(kind, node, data)
        self.sent.append((kind, node, data, reply))
        return reply

    def of(self, kind: str) -> list[bytes]:
        return [data for each, _, data, _ in self.sent if each == kind]


def noises(people: Interactions, folder: Path, **settings: Any) -> Mapping[str, np.ndarray]:
    folder.mkdir()
    terms, paths = new_federation("fedease", people, folder, 2, rounds=1, **PRIVATE | settings)
    return served(folder, terms, InProcessNodes(paths)).state.shared_arrays()


@pytest.mark.parametrize("noise", ["distributed", "local"])
def test_a_private_federation_is_the_simulation(noise, few_people, tmp_path):
    """Where clients draw the noise, it follows from their secrets: a simulation has the same."""
    settings = DISTRIBUTED | {"rounds": 1, "noise": noise}
    terms, paths = new_federation("fedease", few_people, tmp_path, 2, **settings)
    terms = replace(terms, run="")  # noise follows from the name of the run, too
    with_simulated_keys(paths, terms)
    point = served(tmp_path, terms, InProcessNodes(paths))
    assert same(point.state, simulated(terms, few_people))
    assert point.state.added.sum() > 30


def test_a_server_draws_noise_that_nobody_can_repeat(people, tmp_path):
    first = noises(people, tmp_path / "first")
    second = noises(people, tmp_path / "second")
    assert (first["added"] == second["added"]).all()
    assert np.mean(first["items"] == second["items"]) < 0.1


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("fedease", {}),
        ("fedease", {"secure_aggregation": "secagg", "noise": "distributed"}),
        ("fcf", {"sampling": "poisson", "participation": 0.2}),
        ("fcf", {"secure_aggregation": "secagg", "noise": "local", "participation": 0.5}),
    ],
)
def test_server_and_nodes_have_the_same_plan(name, settings, people, tmp_path):
    terms, paths = new_federation(name, people, tmp_path, 3, rounds=2, **PRIVATE | settings)
    made = [NodeStore.open(path) for path in paths]
    members = EnrolledUsers.of({str(n): roster_of(terms, store) for n, store in enumerate(made)})
    world = server_world(terms, members.indices_for(()), ItemContent())
    plan = plan_of_run(terms.federation, world)
    for store in made:
        indices = members.indices_for(store.users())
        assert plan_of_run(terms.federation, node_world(terms, indices)) == plan
    ready = simulated_plan(terms, people)
    assert ready == plan


def simulated_plan(terms: FederationTerms, people: Interactions) -> object:
    from coterie.experiments.preparation import prepare
    from coterie.federated import trainer

    ready = prepare(terms.experiment, people, SILENT)
    settings: Any = terms.experiment.settings
    world = trainer.world_of(ready.training, settings, 0, terms.federation)
    return plan_of_run(terms.federation, world)


def test_nodes_send_nothing_that_is_not_paid_for(people, tmp_path):
    """Neither metrics nor how many interactions there are; and the model arrives all the same."""
    terms, paths = new_federation("fedease", people, tmp_path, 2, rounds=1, **PRIVATE)
    nodes = RecordingNodes(paths)
    served(tmp_path, terms, nodes)
    assert {kind for kind, *_ in nodes.sent} == {ENROL, TRAIN, FINISH}
    for kind, _, _, reply in nodes.sent:
        assert reply is not None
        if kind == FINISH:
            assert json.loads(reply) == {"users": 0, "part": "", "sums": {}}
        if kind == ENROL:
            roster = json.loads(reply)
            assert roster["positives"] == sum(roster["learning"])
    status = json.loads((tmp_path / "status.json").read_text())
    assert (status["state"], status["metrics"]) == ("finished", {})
    node = NodeService(NodeStore.open(paths[0]))
    user = node.store.users()[0]
    assert len(node.recommend(user, 5)) == 5


def test_a_node_gives_no_metrics_to_a_server_that_asks(people, tmp_path):
    terms, paths = new_federation("fedease", people, tmp_path, 2, rounds=1, **PRIVATE)
    nodes = RecordingNodes(paths)
    served(tmp_path, terms, nodes)
    service = NodeService(NodeStore.open(paths[0]))
    with pytest.raises(Malformed, match="asks for metrics, for which no privacy budget is spent"):
        service.answer(EVALUATE, nodes.of(FINISH)[0])


def test_an_exchange_without_noise_gets_no_reply(people, tmp_path):
    """A server cannot add one to an algorithm, but an algorithm's author may forget the noise."""
    terms, paths = new_federation("fedease", people, tmp_path, 1, rounds=1, **PRIVATE)
    nodes = RecordingNodes(paths)
    served(tmp_path, terms, nodes)
    node = NodeService(NodeStore.open(paths[0])).load().node
    federation = replace(
        node.federation, exchanges=(replace(node.federation.exchanges[0], private_sum=None),)
    )
    bare = Node(federation, node.world, node.node, node.store)
    _, message = split_preamble(nodes.of(TRAIN)[0])
    with pytest.raises(Malformed, match="exchange 0 has no noise"):
        bare.receive(message)


def test_the_claim_is_written_down(few_people, tmp_path):
    terms, paths = new_federation("fedease", few_people, tmp_path, 2, rounds=1, **DISTRIBUTED)
    served(tmp_path, terms, InProcessNodes(paths))
    claim = json.loads((tmp_path / "privacy.json").read_text())
    assert (claim["epsilon"], claim["noise"], claim["releases"]) == (3.0, "distributed", 1)
    assert (claim["noise_source"], claim["users"]) == ("system", 40)


def test_a_federation_without_a_budget_claims_nothing(people, tmp_path):
    terms, paths = new_federation("fedease", people, tmp_path, 1, rounds=1)
    served(tmp_path, terms, InProcessNodes(paths))
    assert not (tmp_path / "privacy.json").exists()


def test_training_stops_within_its_budget(few_people, tmp_path):
    """The server plays as many rounds as fit, and finishes as usual."""
    given = PRIVATE | {"epsilon": 2.0, "noise_multiplier": 6.0, "rounds": 50, "participation": 0.5}
    terms, paths = new_federation("fcf", few_people, tmp_path, 2, **given)
    nodes = RecordingNodes(paths)
    point = served(tmp_path, terms, nodes)
    claim = json.loads((tmp_path / "privacy.json").read_text())
    done = point.history.round
    assert 1 < done < 50
    assert (claim["releases"], claim["releases_made"]) == (done, done)
    assert 1.5 < claim["epsilon_spent"] <= 2.0
    assert claim["stopped"].startswith(f"{done} of 50 rounds are done and have spent epsilon 1.")
    status = json.loads((tmp_path / "status.json").read_text())
    assert (status["state"], status["round"], status["rounds"]) == ("finished", done, done)
    assert (status["epsilon"], status["epsilon_spent"]) == (2.0, claim["epsilon_spent"])
    assert {kind for kind, *_ in nodes.sent} == {ENROL, TRAIN, FINISH}
    assert (tmp_path / "model.npz").exists()


def test_a_killed_server_says_what_was_spent_so_far(few_people, tmp_path):
    class Killed(Exception):
        pass

    def die(kind: str, node: int, call: int) -> bool:
        if call == 4:
            raise Killed
        return False

    given = PRIVATE | {"epsilon": 2.0, "noise_multiplier": 6.0, "rounds": 50, "participation": 0.5}
    terms, paths = new_federation("fcf", few_people, tmp_path, 1, **given)
    with pytest.raises(Killed):
        served(tmp_path, terms, InProcessNodes(paths, die))
    claim = json.loads((tmp_path / "privacy.json").read_text())
    assert (claim["stopped"], claim["epsilon"]) == ("", 2.0)
    resumed = served(tmp_path, terms, InProcessNodes(paths))
    after = json.loads((tmp_path / "privacy.json").read_text())
    assert after["releases_made"] == resumed.history.round


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "items.csv").write_text("item_id\nx\ny\n")
    place = tmp_path / "fed.yaml"
    place.write_text(f"algorithm: fedease\nepsilon: 2\nitems: {tmp_path / 'items.csv'}\n")
    return place


def test_noise_of_a_federation_is_secret(config: Path, tmp_path: Path):
    folder = prepare_folder(config, tmp_path / "run", SILENT)
    terms = FederationTerms.from_json((folder / "terms.json").read_text())
    assert terms.config["noise_source"] == "system"
    assert prepare_folder(config, folder, SILENT) == folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("noise_source: seeded", "'noise_source' is 'seeded', but all nodes .* know its seed"),
        ("evaluate_every: 2", "'evaluate_every' is 2, but 'epsilon' is set, and metrics"),
        ("validation: true\npatience: 2\nevaluate_every: 1", "'patience' is 2, but 'epsilon'"),
        ("popularity_prior: 1", "'popularity_prior' is 1, but 'epsilon' is set"),
        ("algorithm: fedfast", "fedfast cannot be trained under a privacy budget: its server"),
        ("algorithm: fedslim", "fedslim cannot be trained under a privacy budget"),
        ("algorithm: fcf\nopen: true", "'open' is True, but 'epsilon' is set, and its noise"),
        ("algorithm: popular", "popular is trained in one place"),
        ("noise: distributed", "'noise' is 'distributed', with secure_aggregation=none"),
    ],
)
def test_what_a_budget_rules_out_is_refused(config: Path, tmp_path: Path, change: str, message):
    key = change.partition(":")[0]
    lines = [line for line in config.read_text().splitlines() if not line.startswith(f"{key}:")]
    config.write_text("\n".join([*lines, change]))
    with pytest.raises(ConfigError, match=message):
        prepare_folder(config, tmp_path / "run", SILENT)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"noise_source": "seeded"}, "'noise_source' is 'seeded'"),
        ({"algorithm": "fedslim"}, "cannot be trained under a privacy budget"),
        ({"noise": "distributed"}, "'noise' is 'distributed'"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": "much"}, "epsilon"),
    ],
)
def test_a_node_refuses_terms_that_protect_nobody(change, message, people, tmp_path):
    terms, paths = new_federation("fedease", people, tmp_path, 1, rounds=1, **PRIVATE)
    config = PRIVATE | {"dataset": "given.csv"} if "algorithm" in change else terms.config
    lying = replace(terms, config=config | change)
    service = NodeService(NodeStore.open(paths[0]))
    with pytest.raises(ConfigError, match=message):
        service.answer(ENROL, lying.to_json().encode())
    members = EnrolledUsers.of({"0": roster_of(terms, service.store)})
    with pytest.raises(ConfigError, match=message):
        service.begin(lying, members.indices_for(service.store.users()))
    assert service.store.meta("run") is None
