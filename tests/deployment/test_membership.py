"""Nodes leave and return; the users of a federation stay the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from deployment.test_node import LosingEngine
from deployment.test_server import (
    RING,
    InProcessNodes,
    new_federation,
    same,
    served,
    simulated,
)
from deployment.test_signing_keys import Log
from small_federation import play

from coterie.core.progress import SILENT
from coterie.data.interactions import Interactions
from coterie.deployment.enrolment import FederationTerms
from coterie.deployment.node_private_store import NodeStore
from coterie.deployment.node_service import TRAIN
from coterie.engines.local import LocalEngine
from coterie.errors import NoQuorum
from coterie.experiments.preparation import prepare
from coterie.federated import trainer

Joined = Callable[[int], dict[str, int]]
"""Number of exchanges so far -> node name -> index of its store."""


class ChangingNodes(InProcessNodes):
    """`nodes(n)` are the nodes after n exchanges; the second one dies in exchange `dies`."""

    def __init__(
        self, paths: list[Path], nodes: Joined, keyed: bool = False, dies: int = 0
    ) -> None:
        super().__init__(paths)
        self.nodes = nodes
        self.keyed = keyed
        self.dies = dies
        self.exchanges = 0

    def joined(self) -> dict[str, int]:
        return dict.fromkeys(self.nodes(self.exchanges), 0)

    def send(
        self, kind: str, out: Mapping[str, bytes], seconds: float | None = None
    ) -> dict[str, bytes]:
        stores = self.nodes(self.exchanges)
        self.exchanges += kind == TRAIN
        dead = 1 if kind == TRAIN and self.exchanges == self.dies else -1
        return {  # type: ignore[misc]
            name: self._call(kind, stores[name], data)
            for name, data in out.items()
            if stores[name] != dead
        }


def without(
    terms: FederationTerms, people: Interactions, node: int, n: int, t: int
) -> dict[str, np.ndarray]:
    """The simulation in which a node's users are unavailable in one round."""
    ready = prepare(terms.experiment, people, SILENT)
    world = trainer.world_of(ready.training, terms.experiment.settings, 0, terms.federation)
    engine = LosingEngine(LocalEngine.over(world, ready.training, n), node, t)
    name = terms.experiment.choice.algorithm
    return play(name, world, engine)[0][-1].arrays()  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["fedfast", "pfpl+"])
@pytest.mark.parametrize("again", ["1", "a new name"])
def test_a_node_that_dies_in_a_round_drops_out_and_returns(name, again, people, tmp_path):
    terms, paths = new_federation(name, people, tmp_path, 2)
    second = 2 + int(name == "fedfast")  # after the opening, where there is one
    nodes = ChangingNodes(paths, lambda n: {"0": 0, "1" if n < second else again: 1}, dies=second)
    point = served(tmp_path, terms, nodes, quorum=0.3)
    assert same(point.state, without(terms, people, 1, 2, 1))
    assert not same(point.state, simulated(terms, people))


@pytest.mark.parametrize(
    ("protocol", "n_nodes", "n_stages", "stage"),
    [
        *(("ring", 3, 4, stage) for stage in range(3)),
        ("secagg", 6, 5, 1),
        pytest.param("secagg", 6, 5, 0, marks=pytest.mark.long),
        pytest.param("secagg", 6, 5, 2, marks=pytest.mark.long),
    ],
)
def test_a_node_that_dies_during_secure_aggregation_drops_out(
    protocol, n_nodes, n_stages, stage, people, tmp_path
):
    """Its users drop out at one of the three stages up to the upload of the second round, and the
    others recover the sum: all state is that of a round without them."""
    settings = RING | {"secure_aggregation": protocol}
    terms, paths = new_federation("fcf", people, tmp_path, n_nodes, **settings)
    # Enrolment is one call, then the first round has its stages, and the second round begins.
    call = 1 + n_stages + 1 + stage
    nodes = InProcessNodes(
        paths, lambda kind, node, number: kind == TRAIN and node == 1 and number == call
    )
    point = served(tmp_path, terms, nodes)
    assert same(point.state, without(terms, people, 1, n_nodes, 1))
    assert not same(point.state, simulated(terms, people))


def test_with_keys_a_node_cannot_take_over_users(people, tmp_path):
    """A node with another key lists the users of a node that left: they are not selected."""
    terms, paths = new_federation("fedfast", people, tmp_path, 2, participation=1.0)

    def nodes(n: int) -> dict[str, int]:
        return {"0": 0, "1": 1} if n < 2 else {"0": 0, "thief": 1}

    point = served(tmp_path, terms, ChangingNodes(paths, nodes, keyed=True), quorum=0.3)
    status = json.loads((tmp_path / "status.json").read_text())
    assert status["refused"] == {"user of another node": people.n_users // 2}
    left = int((np.arange(people.n_users) % 2 == 0).sum())
    assert point.history.updates <= people.n_users + 3 * left
    homes = json.loads((tmp_path / "homes.json").read_text())
    assert set(homes.values()) == {"0", "1"}


def test_a_restarted_server_knows_the_users(people, tmp_path):
    """Restarted while a node is away: the users are the same, and the node's are unavailable."""
    terms, paths = new_federation("fedfast", people, tmp_path, 3)

    def stop(n: int) -> dict[str, int]:
        if n == 3:
            raise KeyboardInterrupt
        return {"0": 0, "1": 1, "2": 2}

    with pytest.raises(KeyboardInterrupt):
        served(tmp_path, terms, ChangingNodes(paths, stop), least_nodes=2)
    assert json.loads((tmp_path / "status.json").read_text())["round"] >= 1
    point = served(
        tmp_path,
        terms,
        ChangingNodes(paths, lambda n: {"0": 0, "2": 2}),
        least_nodes=2,
        round_seconds=0.2,
    )
    assert len(point.state.user_rows) == people.n_users
    assert point.history.round == 4


def test_too_few_nodes_to_begin(people, tmp_path):
    terms, paths = new_federation("fedfast", people, tmp_path, 2)
    nodes = ChangingNodes(paths, lambda n: {"0": 0})
    with pytest.raises(NoQuorum, match=r"1 of 2 nodes joined within 0\.2 seconds"):
        served(tmp_path, terms, nodes, least_nodes=2, wait_seconds=0.2)
    assert json.loads((tmp_path / "status.json").read_text()) == {
        "state": "waiting",
        "nodes": 1,
        "least_nodes": 2,
    }


def test_an_unresponsive_node_is_not_tried_in_every_round(people, tmp_path):
    """Each try may cost a whole deadline: pauses double, and at the end everybody is tried."""
    terms, paths = new_federation("fedfast", people, tmp_path, 2, rounds=12)
    tries: list[int] = []

    class Unresponsive(ChangingNodes):
        def send(self, kind, out, seconds=None):
            if "mute" in out:
                tries.append(self.exchanges)
            return super().send(kind, {name: data for name, data in out.items() if name != "mute"})

    nodes = Unresponsive(paths, lambda n: {"0": 0, "1": 1, "mute": 0})
    served(tmp_path, terms, nodes, least_nodes=2)
    assert tries == [0, 1, 2, 4, 8, 13]


@pytest.mark.parametrize("keyed", [True, False])
def test_two_nodes_with_the_same_users_at_the_beginning(keyed, people, tmp_path):
    """Two nodes list the same users: with keys the first one hosts them, without keys one does."""
    terms, paths = new_federation("fedfast", people, tmp_path, 2)
    nodes = {"0": 0, "1": 1, "2 again": 1}
    served(tmp_path, terms, ChangingNodes(paths, lambda n: nodes, keyed=keyed), least_nodes=2)
    homes = json.loads((tmp_path / "homes.json").read_text())
    assert set(homes.values()) in ([{"0", "1"}] if keyed else [{"0", "1"}, {"0", "2 again"}])
    refused = json.loads((tmp_path / "status.json").read_text())["refused"]
    assert bool(refused.get("user of another node")) == keyed


def test_two_nodes_with_one_user_of_the_same_id(people, tmp_path):
    """The first node keeps the user, and the other takes part with its other users."""
    terms, paths = new_federation("fedfast", people, tmp_path, 2)
    with closing(NodeStore.open(paths[1])) as store:
        store.put_interactions(people.select(people.users == 0).compact())
    served(tmp_path, terms, ChangingNodes(paths, lambda n: {"0": 0, "1": 1}, keyed=True))
    homes = json.loads((tmp_path / "homes.json").read_text())
    assert homes[str(people.user_ids[0])] == "0"
    assert list(homes.values()).count("1") == 100
    status = json.loads((tmp_path / "status.json").read_text())
    assert status["refused"] == {"user of another node": 1}


def test_nodes_with_the_same_users_only(people, tmp_path):
    """The error says why a node does not count, and so does one line while the server waits."""
    terms, paths = new_federation("fedfast", people, tmp_path, 1)
    nodes = ChangingNodes(paths, lambda n: {"0": 0, "1": 0}, keyed=True)
    log = Log()
    with pytest.raises(NoQuorum, match="user of another node: 200"):
        served(tmp_path, terms, nodes, log, least_nodes=2, wait_seconds=0.3)
    (line,) = log.lines
    assert line.startswith("Refused: user of another node: 200. Every user id must be on one node")


def test_no_user_is_left(people, tmp_path):
    """A federation resumes, and the connected nodes host none of its users: an error, no round."""
    terms, paths = new_federation("fedfast", people, tmp_path, 2)
    with pytest.raises(KeyboardInterrupt):
        served(tmp_path, terms, ChangingNodes(paths, stop_after(2), keyed=True))
    with pytest.raises(NoQuorum, match="no connected node hosts a user of the federation"):
        served(
            tmp_path,
            terms,
            ChangingNodes(paths, lambda n: {"thief": 0}, keyed=True),
            round_seconds=0.1,
        )


def stop_after(last: int) -> Joined:
    def nodes(n: int) -> dict[str, int]:
        if n > last:
            raise KeyboardInterrupt
        return {"0": 0, "1": 1}

    return nodes
