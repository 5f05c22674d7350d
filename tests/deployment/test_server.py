"""A server and its nodes, each call of a node with a fresh store: crashes, quorums, commits."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deployment.test_enrolment import stores, terms_of
from deployment.test_signing_keys import Log
from small_federation import play

from coterie.algorithms import fedease, fedslim
from coterie.algorithms.registry import algorithm
from coterie.core.progress import SILENT, Progress
from coterie.data.interactions import Interactions
from coterie.deployment import membership
from coterie.deployment.enrolment import FederationTerms
from coterie.deployment.node_private_store import NodeStore
from coterie.deployment.node_service import FINISH, SIMULATED, TRAIN, NodeService
from coterie.deployment.server import describe_nodes, serve
from coterie.deployment.server_config import ServerConfig
from coterie.deployment.traffic import Nodes
from coterie.engines.local import LocalEngine
from coterie.errors import NoQuorum
from coterie.experiments.history import Point
from coterie.experiments.preparation import prepare
from coterie.federated import trainer
from coterie.federated.federation import Federation

ROUNDS = 4


class InProcessNodes:
    """Nodes in this process; each call opens its store anew.

    `fails(kind, node, call)` may raise, or return True to lose the reply.
    """

    keyed = False
    refused: Mapping[str, int] = {}
    last_refused: Mapping[str, str] = {}

    def __init__(
        self, paths: list[Path], fails: Callable[[str, int, int], bool] = lambda *call: False
    ) -> None:
        self.paths = paths
        self.fails = fails
        self.calls = 0
        self.most_bytes: dict[str, Mapping[str, int]] = {}
        """What the server lets nodes send, by kind of message."""

    def fingerprint(self, name: str) -> str:
        return f"SHA256:{name}" if self.keyed else ""

    def limit_replies(self, kind: str, most_bytes: Mapping[str, int]) -> None:
        self.most_bytes[kind] = most_bytes

    def signed(self, name: str, text: str, signature: str) -> bool:
        return False

    def joined(self) -> dict[str, int]:
        return {str(node): 0 for node in range(len(self.paths))}

    def send(
        self, kind: str, out: Mapping[str, bytes], seconds: float | None = None
    ) -> dict[str, bytes]:
        self.calls += 1
        replies = {}
        for name, data in out.items():
            reply = self._call(kind, int(name), data)
            if reply is not None and not self.fails(kind, int(name), self.calls):
                replies[name] = reply
        return replies

    def _call(self, kind: str, node: int, data: bytes) -> bytes | None:
        store = NodeStore.open(self.paths[node])
        try:
            return NodeService(store).answer(kind, data)
        finally:
            store.close()


def served(
    folder: Path,
    terms: FederationTerms,
    nodes: Nodes,
    progress: Progress = SILENT,
    **settings: Any,
) -> Point:
    config = ServerConfig(**{"items": "items.csv", "wait_seconds": 1.0} | settings)
    return serve(folder, terms, nodes, config, progress=progress)


def new_federation(
    name: str, people: Interactions, folder: Path, n: int, **settings: Any
) -> tuple[FederationTerms, list[Path]]:
    """The terms of a federation, and the stores of its n nodes."""
    few = {"epochs": 2, "rounds_an_epoch": ROUNDS // 2}
    if "rounds" in algorithm(name).settings.model_fields:
        few = {"rounds": ROUNDS}
    terms = replace(terms_of(people, name, **few | settings), run="a run")
    made = stores(people, folder, n)
    for store in made:
        NodeService(store).set_seed(SIMULATED)
        store.close()
    return terms, [store.path for store in made]


def simulated(terms: FederationTerms, people: Interactions) -> dict[str, np.ndarray]:
    """The state that a simulation ends with."""
    federation = algorithm(terms.experiment.choice.algorithm).train
    assert isinstance(federation, Federation)
    ready = prepare(terms.experiment, people, SILENT)
    world = trainer.world_of(ready.training, terms.experiment.settings, 0, federation)
    name = terms.experiment.choice.algorithm
    return play(name, world, LocalEngine.over(world, ready.training, 1))[0][-1].arrays()


def same(state, expected: dict[str, np.ndarray]) -> bool:
    return all(
        np.array_equal(array, expected[name]) for name, array in state.shared_arrays().items()
    )


@pytest.mark.parametrize("name", ["fedfast", "pfpl+"])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_federation_is_the_simulation(name, n, people, tmp_path):
    terms, paths = new_federation(name, people, tmp_path, n)
    point = served(tmp_path, terms, InProcessNodes(paths))
    assert same(point.state, simulated(terms, people))
    status = json.loads((tmp_path / "status.json").read_text())
    assert (status["state"], status["round"], status["nodes"]) == ("finished", ROUNDS, n)
    assert status["bytes_up"] > 0 < status["bytes_down"]
    assert not list(tmp_path.glob("devices*"))


class Stop(Exception):
    pass


RING = {"secure_aggregation": "ring", "rounds": ROUNDS, "participation": 0.2}
SECAGG = RING | {"secure_aggregation": "secagg"}


@pytest.mark.parametrize(
    ("name", "settings", "at"),
    [
        *(("fedfast", {}, at) for at in range(1, 7)),
        *(("pfpl+", {}, at) for at in range(1, 7)),
        *(("fcf", RING, at) for at in range(5, 13)),
        *(("fcf", SECAGG, at) for at in (7, 9, 11)),
        *(pytest.param("fcf", SECAGG, at, marks=pytest.mark.long) for at in (1, 8, 10)),
        *(
            pytest.param("fcf", SECAGG | {"group_rows": "union"}, at, marks=pytest.mark.long)
            for at in range(1, 22)
        ),
    ],
)
def test_a_server_that_dies_resumes(name, settings, at, people, tmp_path):
    """Killed after nodes replied to call number `at`: at enrolment, at the opening, in any round,
    at any stage of secure aggregation."""

    def die(kind: str, node: int, call: int) -> bool:
        if call == at and node == 1:
            raise Stop
        return False

    terms, paths = new_federation(name, people, tmp_path, 2, **settings)
    try:
        point = served(tmp_path, terms, InProcessNodes(paths, die))
    except Stop:
        point = served(tmp_path, terms, InProcessNodes(paths))
    assert same(point.state, simulated(terms, people))


@pytest.mark.parametrize("module", [fedease, fedslim], ids=["fedease", "fedslim"])
def test_a_server_that_dies_in_the_final_solve_repeats_no_round(
    module, people, tmp_path, monkeypatch
):
    """The round before is committed; a restart solves, and selects no client again."""

    def die(*args: Any) -> None:
        raise Stop

    kinds: list[str] = []

    def seen(kind: str, node: int, call: int) -> bool:
        kinds.append(kind)
        return False

    name = module.__name__.rpartition(".")[2]
    terms, paths = new_federation(name, people, tmp_path, 2, rounds=1)
    with monkeypatch.context() as patch:
        patch.setattr(module, "item_weights", die)
        with pytest.raises(Stop):
            served(tmp_path, terms, InProcessNodes(paths, seen))
    assert (TRAIN in kinds, FINISH in kinds) == (True, False)
    kinds.clear()
    point = served(tmp_path, terms, InProcessNodes(paths, seen))
    assert (TRAIN in kinds, FINISH in kinds) == (False, True)
    assert same(point.state, simulated(terms, people))


def test_too_few_replies_are_an_error_and_nothing_is_lost(people, tmp_path):
    terms, paths = new_federation("fedfast", people, tmp_path, 3)
    lossy = InProcessNodes(paths, lambda kind, node, call: call >= 5 and node > 0)
    with pytest.raises(
        NoQuorum, match=r"\d of 3 nodes answered before the deadline; expected at least 50%"
    ):
        served(tmp_path, terms, lossy)
    assert json.loads((tmp_path / "status.json").read_text())["round"] == 2
    assert same(served(tmp_path, terms, InProcessNodes(paths)).state, simulated(terms, people))


@pytest.mark.parametrize("name", ["fedfast", "pfpl+"])
@pytest.mark.parametrize("lost", [4, 5, 6])
def test_a_round_without_a_quorum_is_repeated(name, lost, people, tmp_path, monkeypatch):
    """Two of three nodes miss one message. The round is repeated, and the model is that of an
    undisturbed federation, also where clients had changed their private state."""
    monkeypatch.setattr(membership, "PATIENCE", 0.01)
    terms, paths = new_federation(name, people, tmp_path, 3)
    lossy = InProcessNodes(paths, lambda kind, node, call: call == lost and node > 0)
    point = served(tmp_path, terms, lossy, wait_seconds=20)
    assert same(point.state, simulated(terms, people))
    status = json.loads((tmp_path / "status.json").read_text())
    assert (status["state"], status["unanswered"]) == ("finished", 2)


def test_rounds_and_contacts_can_be_followed(people, tmp_path):
    """Also through a restart: the log names the round after which the server went on."""
    terms, paths = new_federation("fedfast", people, tmp_path, 3)
    lossy = InProcessNodes(paths, lambda kind, node, call: call >= 5 and node > 0)
    with pytest.raises(NoQuorum):
        served(tmp_path, terms, lossy)
    served(tmp_path, terms, InProcessNodes(paths))
    lines = [json.loads(line) for line in (tmp_path / "rounds.jsonl").read_text().splitlines()]
    assert [line["after"] for line in lines if "begin" in line] == [0, 2]
    assert lines[-1]["round"] == ROUNDS
    assert lines[-1]["part"] == "test"
    status = json.loads((tmp_path / "status.json").read_text())
    assert lines[-1]["metrics"].items() <= status["metrics"].items()
    assert len(status["last_contact"]) == 3


def test_another_federation_begins_anew(people, tmp_path):
    """Private state of one federation is not used in another."""
    terms, paths = new_federation("pfpl+", people, tmp_path, 2)
    for run in ("first", "second"):
        (tmp_path / run).mkdir()
        point = served(tmp_path / run, replace(terms, run=run), InProcessNodes(paths))
        assert same(point.state, simulated(terms, people))


def test_a_node_draws_its_seed_once(people, tmp_path):
    (store,) = stores(people, tmp_path, 1)
    service = NodeService(store)
    service.set_seed()
    seed = store.meta("seed")
    service.set_seed()
    assert store.meta("seed") == seed
    assert seed is not None
    assert int(seed) > 2**30


def test_the_log_says_which_nodes_left_and_connected():
    before = frozenset({"ann", "bob"})
    line = describe_nodes(before, frozenset({"ann", "cem", "dan"}))
    assert line == "nodes: bob left; cem, dan connected; 3 connected in all"
    assert describe_nodes(before, frozenset()) == "nodes: ann, bob left; 0 connected in all"
    many = frozenset(f"{n:03}" for n in range(60))
    assert "049 and 10 more connected" in describe_nodes(frozenset(), many)


class NodesThatLeave(InProcessNodes):
    """The second node disconnects in the middle of training."""

    def joined(self) -> dict[str, int]:
        return {"0": 0} if self.calls > ROUNDS else super().joined()


def test_a_node_that_leaves_is_named_in_the_log(people: Interactions, tmp_path: Path):
    terms, paths = new_federation("fedavg", people, tmp_path, 2)
    log = Log()
    served(tmp_path / "run", terms, NodesThatLeave(paths), log, quorum=0.1)
    assert "nodes: 1 left; 1 connected in all" in log.lines
