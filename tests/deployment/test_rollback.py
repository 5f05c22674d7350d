"""Roll-backs: a run goes on as if a node had not answered since an earlier round."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deployment.test_changing_users import ScriptedNodes, move
from deployment.test_server import InProcessNodes, Stop, new_federation, same, served
from typer.testing import CliRunner

from coterie.cli.main import app
from coterie.core.progress import SILENT
from coterie.data.interactions import Interactions
from coterie.deployment import rollback
from coterie.deployment.enrolment import FederationTerms, UserIndices
from coterie.deployment.hosting import read_hosts
from coterie.deployment.node_ledger import spent_in
from coterie.deployment.node_policy import NodePolicy, put_policy
from coterie.deployment.node_private_store import MODEL, NodeStore
from coterie.deployment.node_service import TRAIN, NodeService, split_preamble
from coterie.deployment.node_snapshots import follow_rollbacks, known_rollbacks
from coterie.deployment.rollback import complete, roll_back
from coterie.deployment.rollback_log import RollbackLog
from coterie.deployment.server_commits import read_commit, snapshot_folder, snapshot_rounds
from coterie.deployment.server_config import ServerConfig
from coterie.deployment.snapshot_plan import SnapshotPlan
from coterie.deployment.traffic import read_status
from coterie.deployment.transfer import approve
from coterie.engines.local import LocalEngine
from coterie.errors import PolicyError, RunError, UnknownName
from coterie.experiments import run_folder
from coterie.experiments.history import Point
from coterie.experiments.preparation import prepare
from coterie.federated import trainer
from coterie.federated.engine import Engine
from coterie.federated.nodes import read_message
from coterie.federated.trainer import SETUP
from coterie.federated.wire import decode, encode

ROUNDS = 8
EVERY = 2
NODES = 3
LEFT_OUT = 2
"""The node without which runs go on."""
SETTINGS: dict[str, dict[str, Any]] = {
    "fedfast": {"rounds": ROUNDS, "participation": 0.3},
    "fcf": {"rounds": ROUNDS, "participation": 0.3},
    "pfpl+": {"epochs": 2, "rounds_an_epoch": ROUNDS // 2},
}
Away = Callable[[int, int], bool]
"""(node, round) -> whether the node is not there. Rounds begin with 0."""


def nobody(node: int, t: int) -> bool:
    return False


def since(n: int, node: int = LEFT_OUT) -> Away:
    """A node that does not answer after n rounds."""
    return lambda who, t: who == node and t >= n


def opened(path: Path) -> NodeStore:
    """A store that does not wait for the disk: here, no machine is switched off."""
    store = NodeStore.open(path)
    store.connection.execute("pragma synchronous = off")
    return store


class AbsentNodes(InProcessNodes):
    """Nodes that are there in some rounds only. The server stops before it sends round `stops`."""

    def __init__(
        self, paths: list[Path], away: Away = nobody, stops: int = ROUNDS + 1, first: int = 0
    ) -> None:
        super().__init__(paths)
        self.away = away
        self.stops = stops
        self.next = first
        """The round that comes next."""
        self.hostile = False
        """Whether the last node sends the opposite of its updates."""
        self.services = [NodeService(opened(path)) for path in paths]

    def joined(self) -> dict[str, int]:
        there = [node for node in range(len(self.paths)) if not self.away(node, self.next)]
        return {str(node): 0 for node in there}

    def send(
        self, kind: str, out: Mapping[str, bytes], seconds: float | None = None
    ) -> dict[str, bytes]:
        if kind == TRAIN:
            message = read_message(split_preamble(next(iter(out.values())), "{}")[1])
            if message.exchange != SETUP:
                if message.round == self.stops:
                    raise Stop
                self.next = message.round + 1
        return super().send(kind, out, seconds)

    def _call(self, kind: str, node: int, data: bytes) -> bytes | None:
        reply = self.services[node].answer(kind, data)
        if kind == TRAIN and node == LEFT_OUT and self.hostile and reply is not None:
            t, columns, common, exchange = decode(reply)
            return encode(t, columns | {"item_rows": -columns["item_rows"]}, common, exchange)
        return reply


class EngineWithAbsences(Engine):
    """A local engine whose nodes do not answer in some rounds."""

    def __init__(self, engine: LocalEngine, away: Away) -> None:
        self.engine = engine
        self.away = away
        self.gather = engine.gather

    def call(self, exchange: Any, message: Any) -> Any:
        replies = self.engine.call(exchange, message)
        if message.exchange == SETUP:
            return replies
        n = len(self.engine.nodes)
        return [r for r in replies if not self.away(int(r.selected[0]) % n, message.round)]


def simulated(
    terms: FederationTerms, people: Interactions, away: Away, rounds: int = ROUNDS
) -> Any:
    """The last state of the simulation with these absences."""
    ready = prepare(terms.experiment, people, SILENT)
    world = trainer.world_of(ready.training, terms.experiment.settings, 0, terms.federation)
    engine = EngineWithAbsences(LocalEngine.over(world, ready.training, NODES), away)
    work = trainer.federated_trainer(
        terms.federation, world, engine, trainer.Context(0, SILENT), by_round=True
    )
    state, _ = work.start()
    for n in range(1, rounds + 1):
        state, _ = work.step(state, n)
    return state


def begun(name: str, people: Interactions, folder: Path) -> tuple[FederationTerms, list[Path]]:
    return new_federation(name, people, folder, NODES, **SETTINGS[name])


def serve(folder: Path, terms: FederationTerms, nodes: AbsentNodes, **settings: Any) -> Point:
    """Serve into a folder that holds what `coterie serve` writes to it."""
    run_folder.write_text(folder, "terms.json", terms.to_json())
    few: dict[str, Any] = {"snapshot_every": EVERY, "round_seconds": 0.2, "quorum": 0.1}
    try:
        return served(folder, terms, nodes, **few | settings)
    finally:
        for service in nodes.services:
            service.store.close()


def serve_until(folder: Path, terms: FederationTerms, nodes: AbsentNodes, **more: Any) -> None:
    with pytest.raises(Stop):
        serve(folder, terms, nodes, **more)


def private_rows(path: Path) -> dict[int, np.ndarray]:
    """User index -> its private row, as the store has it."""
    with closing(NodeStore.open(path)) as store:
        numbers = store.numbers()
        state = store.private_state(list(numbers.values()))
    if not state:
        return {}
    return dict(zip(numbers, state["user_rows"], strict=True))


def equals(point: Point, paths: Sequence[Path], expected: Any) -> bool:
    """Whether the model and the private state of all but the last node are as expected."""
    private = expected.private_arrays()
    of_users = [
        np.array_equal(row, private["user_rows"][user])
        for path in paths[:LEFT_OUT]
        for user, row in private_rows(path).items()
    ]
    assert bool(of_users) == bool(private)
    return same(point.state, expected.arrays()) and all(of_users)


@pytest.mark.parametrize("name", ["fedfast", "fcf", "pfpl+"])
def test_the_run_is_the_one_in_which_the_node_did_not_answer(name, few_people, tmp_path):
    terms, paths = begun(name, few_people, tmp_path)
    serve_until(tmp_path, terms, AbsentNodes(paths, stops=7))
    assert snapshot_rounds(tmp_path) == [2, 4, 6]
    done = roll_back(tmp_path, 4, ["2"])
    assert (done.round, done.undone, snapshot_rounds(tmp_path)) == (4, 3, [2, 4])
    point = serve(tmp_path, terms, AbsentNodes(paths))
    assert point.history.round == ROUNDS
    assert equals(point, paths, simulated(terms, few_people, since(4)))
    assert not same(point.state, simulated(terms, few_people, nobody).arrays())
    assert not same(point.state, simulated(terms, few_people, since(5)).arrays())
    status = json.loads((tmp_path / "status.json").read_text())
    assert (status["rollbacks"], status["quarantined"]) == ([4], ["2"])
    assert status["refused"] == {}


def test_a_finished_run_of_a_hostile_node_goes_back(few_people, tmp_path):
    """The other run is a federation, whose hostile node stops to answer after round 2."""
    terms, paths = begun("fcf", few_people, tmp_path)
    nodes = AbsentNodes(paths)
    nodes.hostile = True
    poisoned = serve(tmp_path, terms, nodes)
    assert (tmp_path / "model.npz").exists()
    roll_back(tmp_path, 2, ["2"])
    assert not list(tmp_path.glob("model.*"))
    point = serve(tmp_path, terms, AbsentNodes(paths))

    other = tmp_path / "other"
    other.mkdir()
    _, twins = begun("fcf", few_people, other)
    nodes = AbsentNodes(twins, since(2))
    nodes.hostile = True
    expected = serve(other, terms, nodes)
    assert same(point.state, expected.state.shared_arrays())
    assert not same(point.state, poisoned.state.shared_arrays())
    for path, twin in zip(paths[:LEFT_OUT], twins, strict=False):
        rows = private_rows(path)
        assert rows.keys() == private_rows(twin).keys()
        assert all(np.array_equal(row, rows[user]) for user, row in private_rows(twin).items())
    written = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["round"] for line in written] == [ROUNDS]
    assert read_curve(other) == pytest.approx(read_curve(tmp_path), abs=0)


def read_curve(folder: Path) -> dict[str, float]:
    line = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    return {name: value for name, value in line.items() if "@" in name}


@pytest.mark.parametrize("name", ["fedfast", "fcf"])
def test_a_node_that_was_away_follows_when_it_returns(name, few_people, tmp_path):
    """Away when the server rolled back and for two more rounds, with later private state."""
    terms, paths = begun(name, few_people, tmp_path)
    serve_until(tmp_path, terms, AbsentNodes(paths, stops=7))
    roll_back(tmp_path, 2, ["2"])

    def away(node: int, t: int) -> bool:
        return node == 1 and t in (2, 3)

    point = serve(tmp_path, terms, AbsentNodes(paths, away, first=2))
    expected = simulated(terms, few_people, lambda node, t: away(node, t) or since(2)(node, t))
    assert equals(point, paths, expected)


@pytest.mark.parametrize(("first", "second"), [(6, 2), (2, 6)])
@pytest.mark.parametrize("is_away", [False, True])
def test_a_second_rollback(first, second, is_away, few_people, tmp_path):
    """To an earlier round than before, and to a later one, of the second branch. One of the nodes
    may be away all the time between."""
    terms, paths = begun("fcf", few_people, tmp_path)
    serve_until(tmp_path, terms, AbsentNodes(paths, stops=7))
    roll_back(tmp_path, first, ["2"])
    between = since(0, node=1) if is_away else nobody
    serve_until(tmp_path, terms, AbsentNodes(paths, between, stops=7))
    roll_back(tmp_path, second, ["2"])
    point = serve(tmp_path, terms, AbsentNodes(paths))

    def away(node: int, t: int) -> bool:
        missed = is_away and node == 1 and first <= t < second
        return missed or since(min(first, second))(node, t)

    assert equals(point, paths, simulated(terms, few_people, away))
    assert RollbackLog.read(tmp_path).rounds == [first, second]
    with closing(NodeStore.open(paths[1])) as store:
        assert known_rollbacks(store) == [first, second]


def test_a_run_returns_to_its_last_committed_round(few_people, tmp_path):
    """Without a snapshot of it: a node is quarantined, and no round is undone."""
    terms, paths = begun("fcf", few_people, tmp_path)
    nodes = AbsentNodes(paths)
    nodes.fails = lambda kind, node, call: call == 7 and node == 1 and stop()
    serve_until(tmp_path, terms, nodes)
    committed = read_commit(tmp_path, terms)
    assert committed is not None
    n = committed[0].history.round
    assert n not in snapshot_rounds(tmp_path)
    assert roll_back(tmp_path, n, ["2"]).undone == 0
    point = serve(tmp_path, terms, AbsentNodes(paths))
    assert equals(point, paths, simulated(terms, few_people, since(n)))


def test_a_node_whose_policy_does_not_follow_is_named(few_people, tmp_path):
    terms, paths = begun("fcf", few_people, tmp_path)
    serve_until(tmp_path, terms, AbsentNodes(paths, stops=7))
    with closing(NodeStore.open(paths[0])) as store:
        put_policy(store, NodePolicy(rollbacks=0))
    roll_back(tmp_path, 4, ["2"])
    serve_until(tmp_path, terms, AbsentNodes(paths, stops=6))
    status = json.loads((tmp_path / "status.json").read_text())
    assert status["silent"] == ["0"]
    refusal = status["last_refused"]["a roll-back that the node's policy does not follow"]
    assert refusal.startswith("node 0, ")
    assert ": its policy follows 0 roll-backs of a run, and this one has 1; expected" in refusal


def test_a_rollback_clears_alarms_about_undone_rounds(few_people, tmp_path):
    terms, paths = begun("fcf", few_people, tmp_path)
    serve_until(tmp_path, terms, AbsentNodes(paths, stops=7))
    before = read_status(tmp_path) | {"alarms": {"node 2": "too long"}, "alarms_raised": {"n": 1}}
    run_folder.write_text(tmp_path, "status.json", json.dumps(before))
    roll_back(tmp_path, 4, ["2"])
    status = read_status(tmp_path)
    assert (status["rollbacks"], status["quarantined"]) == ([4], ["2"])
    assert (status["alarms"], status["alarms_raised"]) == ({}, {"n": 1})


def stop() -> bool:
    raise Stop


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_a_node_that_is_killed_while_it_restores(few_people, tmp_path):
    """Killed with SIGKILL at every statement of the transaction: it begins again."""
    terms, paths = begun("fcf", few_people, tmp_path)
    serve_until(tmp_path, terms, AbsentNodes(paths, stops=7))
    roll_back(tmp_path, 4, ["2"])
    later = private_rows(paths[1])
    kills = 0
    while restore_in_a_process(paths[1], terms, kills):
        kills += 1
        with closing(NodeStore.open(paths[1])) as store:
            assert (known_rollbacks(store), store.snapshot_rounds()) == ([], [2, 4, 6])
        assert all(np.array_equal(row, later[user]) for user, row in private_rows(paths[1]).items())
    assert kills > 8
    with closing(NodeStore.open(paths[1])) as store:
        assert (known_rollbacks(store), store.snapshot_rounds()) == ([4], [2, 4])
    point = serve(tmp_path, terms, AbsentNodes(paths))
    assert equals(point, paths, simulated(terms, few_people, since(4)))


def restore_in_a_process(path: Path, terms: FederationTerms, n: int) -> bool:
    """Follow a roll-back in a process that is killed before its nth statement that writes.

    Returns whether it was killed.
    """
    child = os.fork()
    if child:
        return os.WIFSIGNALED(os.waitpid(child, 0)[1])
    left = n
    with closing(NodeStore.open(path)) as store:

        def count(statement: str) -> None:
            nonlocal left
            if not statement.lower().startswith("select"):
                left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        store.connection.set_trace_callback(count)
        follow_rollbacks(store, NodePolicy(), terms, [4], lambda text: None)
    os._exit(0)


def test_a_rollback_that_is_killed_is_completed(few_people, tmp_path, monkeypatch):
    """It was recorded, and its server finishes it."""
    terms, paths = begun("fcf", few_people, tmp_path)
    serve(tmp_path, terms, AbsentNodes(paths))
    for place in ("put_back", "read_status"):
        with monkeypatch.context() as patch:
            patch.setattr(rollback, place, lambda *given: stop())
            with pytest.raises(Stop):
                roll_back(tmp_path, 4, ["2"]) if place == "put_back" else complete(tmp_path)
        assert RollbackLog.read(tmp_path).unfinished is not None
    complete(tmp_path)
    complete(tmp_path)
    assert RollbackLog.read(tmp_path).rounds == [4]
    point = serve(tmp_path, terms, AbsentNodes(paths))
    assert equals(point, paths, simulated(terms, few_people, since(4)))


def test_a_node_without_the_snapshot_stays_out(few_people, tmp_path):
    """Other private state would change the model. The status names the node and the remedy."""
    terms, paths = begun("fcf", few_people, tmp_path)
    serve_until(tmp_path, terms, AbsentNodes(paths, stops=7))
    with closing(NodeStore.open(paths[1])) as store, store.transaction():
        store.drop_snapshots([2, 4])
    roll_back(tmp_path, 4, ["2"])
    point = serve(tmp_path, terms, AbsentNodes(paths))
    status = json.loads((tmp_path / "status.json").read_text())
    reason = "no snapshot of the round that the run returned to"
    assert status["refused"][reason] >= 1
    assert "node 1, " in status["last_refused"][reason]
    assert (
        "it has no snapshot of round 4, to which the run returned, and those of rounds 6;"
        in (status["last_refused"][reason])
    )
    assert (status["silent"], status["enrolled"]) == (["1"], 1)
    expected = simulated(terms, few_people, lambda node, t: node > 0 and t >= 4)
    assert same(point.state, expected.arrays())
    with closing(NodeStore.open(paths[1])) as store:
        service = NodeService(store)
        indices = UserIndices.from_json(store.meta("numbers") or "")
        with pytest.raises(PolicyError, match=r"rolled back to round 4, of which .*1\.db has no"):
            service.begin(terms, replace(indices, rollbacks=[4]))


def test_only_the_newest_snapshots_stay(few_people, tmp_path):
    terms, paths = begun("fcf", few_people, tmp_path)
    serve(tmp_path, terms, AbsentNodes(paths), snapshots=2)
    assert snapshot_rounds(tmp_path) == [6, 8]
    for path in paths:
        with closing(NodeStore.open(path)) as store:
            assert store.snapshot_rounds() == [6, 8]
            (n,) = store.connection.execute("select count(distinct round) from snapshot").fetchone()
            assert n == 2


def test_rounds_of_snapshots():
    plan = SnapshotPlan(every=10, kept=2)
    assert [n for n in range(31) if plan.is_due(n)] == [10, 20, 30]
    assert plan.due_between(-1, 9) == []
    assert plan.due_between(9, 10) == [10]
    assert plan.due_between(10, 19) == []
    assert plan.due_between(8, 45) == [30, 40]
    assert plan.outdated([30, 10, 20]) == [10]
    assert SnapshotPlan(0, 5).due_between(0, 100) == []


def test_snapshots_are_links_and_do_not_change(few_people, tmp_path):
    """Later commits replace files, so that the files of a snapshot stay as they were."""
    terms, paths = begun("fedfast", few_people, tmp_path)
    serve_until(tmp_path, terms, AbsentNodes(paths, stops=2))
    copy = tmp_path / "snapshots" / "2" / "checkpoint.npz"
    assert copy.stat().st_ino == (tmp_path / "checkpoint.npz").stat().st_ino
    before = copy.read_bytes()
    serve_until(tmp_path, terms, AbsentNodes(paths, stops=3))
    assert copy.read_bytes() == before != (tmp_path / "checkpoint.npz").read_bytes()
    assert copy.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["fcf", "fedfast"])
def test_erased_users_are_in_no_snapshot(name, few_people, tmp_path):
    """Neither on the node, whose clients have private rows, nor on the server, which has theirs."""
    terms, paths = begun(name, few_people, tmp_path)
    terms = replace(terms, config=terms.config | {"participation": 1.0})
    serve_until(tmp_path, terms, AbsentNodes(paths, stops=5))
    user = str(few_people.user_ids[1])
    with closing(opened(paths[1])) as store:
        if name == "fcf":
            assert store.export(user)["private_state_after_rounds"].keys() == {"2", "4"}
        store.forget(user)
        found = store.connection.execute("select 1 from snapshot where person = ?", (user,))
        assert found.fetchone() is None
    trained = rows_in_snapshots(tmp_path, terms)
    serve_until(tmp_path, terms, AbsentNodes(paths, stops=5))
    for before, after in zip(trained, rows_in_snapshots(tmp_path, terms), strict=True):
        if name == "fedfast":
            assert not np.array_equal(before[1], after[1])
        assert np.array_equal(np.delete(before, 1, 0), np.delete(after, 1, 0))
    roll_back(tmp_path, 2, ["2"])
    point = serve(tmp_path, terms, AbsentNodes(paths))
    assert user not in json.loads((tmp_path / "members.json").read_text())["users"]
    assert point.history.round == ROUNDS


def test_users_who_are_erased_while_the_server_runs(few_people, tmp_path):
    terms, paths = begun("fedfast", few_people, tmp_path)

    def forget() -> None:
        assert len(snapshot_rounds(tmp_path)) == 3
        with closing(opened(paths[1])) as store:
            store.forget(str(few_people.user_ids[1]))

    nodes = ScriptedNodes(paths, {4: forget})  # the first exchange is the opening
    served(tmp_path, terms, nodes, snapshot_every=1, snapshots=8)
    rows = np.array(rows_in_snapshots(tmp_path, terms))  # (snapshots, users, d)
    assert len(rows) == ROUNDS
    assert (rows[:, 1] == rows[0, 1]).all()
    assert not (rows[:, 0] == rows[0, 0]).all()


def rows_in_snapshots(folder: Path, terms: FederationTerms) -> list[np.ndarray]:
    """The rows of users, or of items where clients have those, of each snapshot."""
    found = []
    for n in snapshot_rounds(folder):
        committed = read_commit(snapshot_folder(folder, n), terms)
        assert committed is not None
        arrays = committed[0].state.shared_arrays()
        found.append(arrays.get("user_rows", arrays["item_rows"]))
    return found


def test_a_plan_that_begins_late_makes_up_no_snapshot(few_people, tmp_path):
    """Snapshots are switched on after five rounds: the fourth one is over."""
    terms, paths = begun("fcf", few_people, tmp_path)
    serve_until(tmp_path, terms, AbsentNodes(paths, stops=5), snapshot_every=0)
    serve_until(tmp_path, terms, AbsentNodes(paths, stops=7))
    assert snapshot_rounds(tmp_path) == [6]
    for path in paths:
        with closing(opened(path)) as store:
            assert store.snapshot_rounds() == [6]


# What a server may not do


@pytest.fixture
def member(few_people, tmp_path) -> tuple[NodeService, FederationTerms, UserIndices]:
    """A node in the middle of a run, which was rolled back to round 4 once."""
    terms, paths = begun("fcf", few_people, tmp_path)
    serve_until(tmp_path, terms, AbsentNodes(paths, stops=7))
    roll_back(tmp_path, 4, ["2"])
    serve_until(tmp_path, terms, AbsentNodes(paths, stops=7))
    service = NodeService(NodeStore.open(paths[0]))
    indices = UserIndices.from_json(service.store.meta("numbers") or "")
    numbers = {user: index for index, user in service.store.numbers().items()}
    return service, terms, replace(indices, numbers=numbers)


def test_a_server_cannot_take_a_rollback_back(member):
    service, terms, indices = member
    before = service.store.private_state(service.store.users())
    for listed in ([], [2], [2, 4], [4, 0], [4, -2]):
        with pytest.raises(PolicyError, match=r"lists the roll-backs .*; this node knows \[4\]"):
            service.begin(terms, replace(indices, rollbacks=listed))
    after = service.store.private_state(service.store.users())
    assert np.array_equal(before["user_rows"], after["user_rows"])


def test_a_policy_limits_rollbacks(member):
    service, terms, indices = member
    put_policy(service.store, NodePolicy(rollbacks=1))
    service.begin(terms, indices)
    with pytest.raises(PolicyError, match=r"rolled back 2 times; .* has rollbacks: 1"):
        service.begin(terms, replace(indices, rollbacks=[4, 4]))


def test_a_rolled_back_model_is_not_served(few_people, tmp_path):
    """A node deletes the model of the undone rounds; the next one comes with an evaluation."""
    terms, paths = begun("fcf", few_people, tmp_path)
    serve(tmp_path, terms, AbsentNodes(paths))
    with closing(NodeStore.open(paths[0])) as store:
        assert store.held(MODEL) is not None
    roll_back(tmp_path, 4, ["2"])
    serve_until(tmp_path, terms, AbsentNodes(paths, stops=5))
    with closing(NodeStore.open(paths[0])) as store:
        assert store.held(MODEL) is None
        user = store.users()[0]
        with pytest.raises(RunError, match="holds no model yet"):
            NodeService(store).recommend(user)


@pytest.mark.parametrize("protocol", ["ring", "secagg"])
def test_runs_with_secure_aggregation_do_not_go_back(protocol, few_people, tmp_path):
    """Neither server nor node takes a snapshot. A server that rolls back all the same is refused:
    the sums of a round before and after would differ by the updates of a few users."""
    settings = {"secure_aggregation": protocol, "rounds": 2, "participation": 1.0}
    terms, paths = new_federation("fcf", few_people, tmp_path, 2, **settings)
    assert ServerConfig(items="items.csv").snapshot_plan(terms) == SnapshotPlan()
    run_folder.write_text(tmp_path, "terms.json", terms.to_json())
    with pytest.raises(RunError, match=f"has secure_aggregation '{protocol}'; expected 'none'"):
        roll_back(tmp_path, 2, ["1"])
    with closing(opened(paths[0])) as store:
        follow_rollbacks(store, NodePolicy(), terms, [], lambda text: None)
        with pytest.raises(PolicyError, match="would reveal single updates"):
            follow_rollbacks(store, NodePolicy(), terms, [2], lambda text: None)


def test_what_was_spent_is_not_refunded(few_people, tmp_path):
    """Five of six rounds are played. Three are rolled back, and one is left, for every user."""
    pytest.importorskip("dp_accounting")
    private = {"epsilon": 3.0, "noise_source": "system", "rounds": 6, "participation": 1.0}
    terms, paths = new_federation("fcf", few_people, tmp_path, NODES, **private)
    serve_until(tmp_path, terms, AbsentNodes(paths, stops=5))
    assert [releases(path, terms.run) for path in paths] == [{5}, {5}, {5}]
    roll_back(tmp_path, 2, ["2"])
    point = serve(tmp_path, terms, AbsentNodes(paths))
    assert point.history.round == 3
    assert [releases(path, terms.run) for path in paths] == [{6}, {6}, {5}]
    claim = json.loads((tmp_path / "privacy.json").read_text())
    assert (claim["releases_made"], claim["releases"]) == (6, 6)
    assert claim["epsilon_spent"] == pytest.approx(3.0, rel=1e-2)
    assert "3 of 6 rounds are done and 3 were rolled back" in claim["stopped"]


def releases(path: Path, run: str) -> set[int]:
    with closing(NodeStore.open(path)) as store:
        return {spent.releases for spent in spent_in(store, run).values()}


def test_a_round_that_is_played_again_is_another_sum(few_people, tmp_path):
    """With the same model, too: the server draws other noise, and two sums have less together."""
    pytest.importorskip("dp_accounting")
    private = {"epsilon": 3.0, "noise_source": "system", "rounds": 6, "participation": 1.0}
    terms, paths = new_federation("fcf", few_people, tmp_path, NODES, **private)
    for n_sums in (3, 4):
        serve_until(tmp_path, terms, AbsentNodes(paths, stops=3))
        assert [releases(path, terms.run) for path in paths] == [{n_sums}, {n_sums}, {3}]
        roll_back(tmp_path, 2, ["2"])


def test_a_lying_server_gets_no_more_sums_from_rollbacks(few_people, tmp_path):
    """It rolls back again and again, and plays all rounds that the run has left."""
    pytest.importorskip("dp_accounting")
    private = {"epsilon": 3.0, "noise_source": "system", "rounds": 4, "participation": 1.0}
    terms, paths = new_federation("fcf", few_people, tmp_path, NODES, **private)
    for _ in range(3):
        serve_until(tmp_path, terms, AbsentNodes(paths, stops=3))
        roll_back(tmp_path, 2, ["2"])
        log = RollbackLog.read(tmp_path)
        RollbackLog([replace(one, undone=0) for one in log.rollbacks]).write(tmp_path)
    serve(tmp_path, terms, AbsentNodes(paths))
    assert [releases(path, terms.run) for path in paths] == [{4}, {4}, {3}]


# The command


def rolled(folder: Path, *options: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, ["federation", "rollback", str(folder), *options])
    return found.exit_code, found.output + str(found.exception or "")


def test_the_command(few_people, tmp_path):
    terms, paths = begun("fcf", few_people, tmp_path)
    config = json.dumps({"items": "items.csv", "least_nodes": 3})
    run_folder.write_text(tmp_path, "service.json", config)
    serve_until(tmp_path, terms, AbsentNodes(paths, stops=7))
    code, text = rolled(tmp_path, "--round", "4", "--without", "2")
    assert code == 0
    assert "Rolled back to round 4; rounds undone: 3. Quarantined in this run: 2." in text
    assert "least_nodes is 3, and nodes left are 2: lower it" in text
    record = json.loads((tmp_path / "rollbacks.json").read_text())["rollbacks"][0]
    assert record["who"]
    assert record["when"].startswith("20")
    assert (record["round"], record["undone"], record["without"]) == (4, 3, ["2"])
    assert record["is_done"]
    status = CliRunner().invoke(app, ["status", str(tmp_path)]).output
    assert "rolled back to round 4 without 2; go on with the same coterie serve" in status
    assert "Roll-backs of this run: 1. Nodes follow as many as `rollbacks` of their" in text


def test_mistakes_are_one_line(few_people, tmp_path):
    terms, paths = begun("fcf", few_people, tmp_path)
    with pytest.raises(RunError, match=r"holds no terms\.json; expected the run folder"):
        roll_back(tmp_path, 4, ["2"])
    run_folder.write_text(tmp_path, "terms.json", terms.to_json())
    serve_until(tmp_path, terms, AbsentNodes(paths, stops=7))
    for n in (3, 8, 70):
        with pytest.raises(
            RunError, match=f"has no snapshot of round {n}; expected one of 2, 4, 6, 7 "
        ):
            roll_back(tmp_path, n, ["2"])
    with pytest.raises(UnknownName, match=r"unknown node 'mallory'.*Known: 0, 1, 2"):
        roll_back(tmp_path, 4, ["mallory"])
    with pytest.raises(RunError, match=r"no other node of .* has users"):
        roll_back(tmp_path, 4, ["0", "1", "2"])
    with (
        run_folder.locked(tmp_path),
        pytest.raises(RunError, match="is being served; expected a server that is stopped"),
    ):
        roll_back(tmp_path, 4, ["2"])
    assert RollbackLog.read(tmp_path).rounds == []
    (tmp_path / "snapshots" / "4" / "checkpoint.npz").write_bytes(b"damaged")
    with pytest.raises(RunError, match=r"checkpoint\.npz cannot be read.*another --round"):
        roll_back(tmp_path, 4, ["2"])
    assert not (tmp_path / "rollbacks.json").exists()


@pytest.mark.parametrize("keyed", [True, False])
def test_a_quarantined_node_does_not_return_by_another_name(keyed, few_people, tmp_path):
    """It connects again as "3": its users stay out, and so does the old name."""
    terms, paths = begun("fedfast", few_people, tmp_path)
    nodes = AbsentNodes(paths, stops=7)
    nodes.keyed = keyed
    serve_until(tmp_path, terms, nodes)
    roll_back(tmp_path, 4, ["2"])
    again = AbsentNodes([*paths, paths[LEFT_OUT]])
    again.keyed = keyed
    point = serve(tmp_path, terms, again)
    assert equals(point, paths, simulated(terms, few_people, since(4)))
    status = json.loads((tmp_path / "status.json").read_text())
    of_node = [user for user, node in read_hosts(tmp_path).items() if node == "2"]
    assert status["refused"]["user of a quarantined node"] % len(of_node) == 0
    assert status["enrolled"] == 2
    assert "3" not in read_hosts(tmp_path).values()


def test_the_owner_moves_quarantined_users_to_another_node(few_people, tmp_path):
    terms, paths = begun("fcf", few_people, tmp_path)
    serve_until(tmp_path, terms, AbsentNodes(paths, stops=5))
    roll_back(tmp_path, 4, ["2"])
    with closing(opened(paths[0])) as store:
        store.put_interactions(few_people.select(few_people.users % NODES == LEFT_OUT).compact())
    assert approve(tmp_path, "2", "0", [], read_hosts(tmp_path)) == 13
    point = serve(tmp_path, terms, AbsentNodes(paths))
    assert set(read_hosts(tmp_path).values()) == {"0", "1"}
    assert point.history.dropped == 0


def test_users_who_moved_take_their_snapshots_along(few_people, tmp_path):
    terms, paths = begun("fcf", few_people, tmp_path)
    serve_until(tmp_path, terms, AbsentNodes(paths, stops=6))
    users = [str(few_people.user_ids[k]) for k in (1, 4, 7)]
    move(paths, users, 1, 0)
    roll_back(tmp_path, 4, ["2"])
    point = serve(tmp_path, terms, AbsentNodes(paths))
    assert [read_hosts(tmp_path)[user] for user in users] == ["0", "0", "0"]
    assert equals(point, paths, simulated(terms, few_people, since(4)))
