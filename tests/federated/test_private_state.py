"""Private state: servers never see it, only accepted updates change it, it is saved separately."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from small_federation import FEDERATED, histories, play_locally, sha256, world_for

from coterie.algorithms import registry
from coterie.algorithms.algorithm import Costs
from coterie.core.progress import SILENT
from coterie.core.records import Record
from coterie.engines.local import LocalEngine
from coterie.errors import ConfigError, RunError
from coterie.experiments import checkpoint, run_folder
from coterie.experiments.history import Point, TrainingHistory
from coterie.federated import nodes, trainer, wire
from coterie.federated.engine import Engine
from coterie.federated.federation import (
    Accepted,
    ClientResult,
    Exchange,
    FastPaths,
    Federation,
    NodeData,
    PrivateState,
    Sums,
    World,
)
from coterie.federated.trainer import Context
from coterie.federated.validation import Reply
from coterie.models.factors import Factors
from coterie.types import SCALE, Floats, Ints, Message, Sizes, Updates

SECRET = 1234.56789  # no other value in a run has these bytes


@dataclass(frozen=True, slots=True)
class State(Record):
    private: ClassVar[tuple[str, ...]] = ("secrets", "times")
    total: Floats  # (1,)
    secrets: Floats  # (users, 2)
    times: Ints  # (users,) how often each was accepted


# A federation whose clients store a secret and count their rounds; updates are constant.


def init(world: World) -> State:
    return State(np.zeros(1, np.float32), None, None)  # type: ignore[arg-type]


def init_clients(world: World, node: NodeData) -> PrivateState:
    own = np.stack([np.full(len(node.users), SECRET), node.users], axis=1).astype(np.float32)
    return {"secrets": own, "times": np.zeros(len(node.users), np.int32)}


def all_members(world: World, state: State, t: int) -> Ints:
    assert state.secrets is None
    return np.flatnonzero(world.members).astype(np.int32)


def broadcast(world: World, state: State, cohort: Ints, t: int) -> Message:
    assert state.secrets is None
    assert state.times is None
    return Message(t, cohort, {"dense": state.total}, {})


def client_update(world: World, message: Message, node: NodeData) -> ClientResult:
    assert (message.private_state["secrets"][:, 0] == np.float32(SECRET)).all()
    # Each client gets its own row, in any order of clients.
    assert message.private_state["secrets"][:, 1].tolist() == message.users.tolist()
    n = len(message.users)
    none = np.empty(0, np.int32)
    updates = Updates(
        message.users,
        np.ones(n, np.int64),
        np.zeros(n + 1, np.int64),
        none,
        none.reshape(0, 0),
        np.empty((n, 0), np.int32),
        np.full((n, 1), SCALE // 4, np.int32),
    )
    return updates, {
        "secrets": message.private_state["secrets"],
        "times": message.private_state["times"] + 1,
    }


def add_up(world: World, message: Message, updates: Updates) -> Sums:
    return {"dense": updates.dense.sum(axis=0, dtype=np.int64)}


def server_update(world: World, state: State, sums: Sums, accepted: Accepted, t: int) -> State:
    assert state.secrets is None
    return replace(state, total=state.total + (sums["dense"] / SCALE).astype(np.float32))


def sizes(world: World, state: State) -> Sizes:
    assert state.secrets is None
    return Sizes(0, 0, 0, 1)


EXCHANGE = Exchange(
    broadcast=broadcast,
    client_update=client_update,
    aggregate=add_up,
    server_update=server_update,
    sizes=sizes,
)
FEDERATION = Federation(
    init=init,
    sample=all_members,
    exchanges=(EXCHANGE,),
    model=lambda world, state: None,  # type: ignore[arg-type,return-value]
    init_clients=init_clients,
)


def play(
    engine: Any = None,
    nodes: int = 1,
    wired: bool | None = None,
    n_rounds: int = 3,
    chunk_size: int = 100,
    **changes: Any,
) -> Any:
    training = histories(0)
    world = world_for("fedavg", training, **changes)
    exchange = replace(EXCHANGE, fast=FastPaths(chunk_size=lambda world, state: chunk_size))
    work = trainer.federated_trainer(
        replace(FEDERATION, exchanges=(exchange,)),
        world,
        (engine or (lambda e: e))(LocalEngine.over(world, training, nodes, wired)),
        Context(0, SILENT),
    )
    states = [work.start()[0]]
    all_costs = []
    for n in range(1, n_rounds + 1):
        state, costs = work.step(states[-1], n)
        states.append(state)
        all_costs.append(costs)
    return states, all_costs


def test_private_state_is_updated_in_every_round():
    states, _ = play()
    assert [state.times.max() for state in states] == [0, 1, 2, 3]
    # One user has no history and is never selected.
    assert states[-1].times.tolist() == [3] * 10 + [0, 3]
    assert states[-1].total == np.float32(3 * 11 / 4)


@pytest.mark.parametrize(("nodes", "wired"), [(1, True), (3, None), (7, None)])
def test_the_number_of_nodes_does_not_change_private_state(nodes, wired):
    assert sha256(play(nodes=nodes, wired=wired)[0][-1]) == sha256(play()[0][-1])


def test_earlier_states_are_not_overwritten():
    states, _ = play()
    assert states[0].times.sum() == 0
    assert len({sha256(state) for state in states}) == 4


def test_private_state_of_dropped_clients_does_not_change():
    states, all_costs = play(client_dropout=0.5, n_rounds=6)
    assert states[-1].times.sum() == sum(costs.accepted for costs in all_costs) < 6 * 11


class Refusing(Engine):
    """The update of user 3 has a value out of range."""

    def __init__(self, engine: LocalEngine) -> None:
        self.engine = engine

    def gather(self, make: Callable[[World, NodeData], PrivateState]) -> PrivateState:
        return self.engine.gather(make)

    def call(self, exchange: Exchange, message: Message) -> list[Reply]:
        replies = self.engine.call(exchange, message)
        for reply in replies:
            assert reply.columns is not None
            dense = reply.columns["dense"].copy()
            dense[reply.columns["users"] == 3] = np.iinfo(np.int32).max
            reply.columns["dense"] = dense
        return replies


@pytest.mark.parametrize("nodes", [1, 3])
def test_private_state_of_refused_clients_does_not_change(nodes):
    states, all_costs = play(Refusing, nodes)
    assert states[-1].times.tolist() == [3, 3, 3, 0] + [3] * 6 + [0, 3]
    assert [costs.accepted for costs in all_costs] == [10, 10, 10]


def listed(costs: Costs) -> list[Any]:
    return [
        costs.users.tolist(),
        costs.accepted,
        costs.dropped,
        costs.refused,
        costs.bytes_up,
        costs.bytes_down,
    ]


@pytest.mark.parametrize("chunk_size", [1, 4, 10, 11])
@pytest.mark.parametrize("engine", [None, Refusing])
@pytest.mark.parametrize("changes", [{}, {"client_dropout": 0.5}])
def test_chunks_do_not_change_private_state_or_costs(chunk_size, engine, changes):
    """Eleven users; the refused one is alone in its chunk, or not."""
    whole, costs = play(engine, **changes)
    chunked, same = play(engine, chunk_size=chunk_size, **changes)
    assert [sha256(state) for state in chunked] == [sha256(state) for state in whole]
    assert [listed(cost) for cost in same] == [listed(cost) for cost in costs]
    assert sum(cost.refused["out of range"] for cost in costs) > 0 or engine is None


def test_private_state_is_never_sent(monkeypatch):
    """It is in no bytes between server and nodes, in either direction."""
    seen = []
    honest = wire.encode

    def recording(*given: Any, **named: Any) -> bytes:
        seen.append(honest(*given, **named))
        return seen[-1]

    monkeypatch.setattr(nodes, "encode", recording)
    play(nodes=3)
    assert len(seen) == 2 * 3 * 3
    assert not any(np.float32(SECRET).tobytes() in data for data in seen)


# On disk.


def point(round_: int, state: State, best: State | None = None) -> Point:
    return Point(state, replace(TrainingHistory.begin(12, Costs()), round=round_), best)


def test_a_checkpoint_has_private_state_in_a_file_of_its_own(tmp_path):
    states, _ = play()
    checkpoint.write(tmp_path, point(3, states[3], states[2]), "data", {})
    assert np.float32(SECRET).tobytes() not in (tmp_path / "checkpoint.npz").read_bytes()
    (apart,) = tmp_path.glob("devices-*.npz")
    assert np.float32(SECRET).tobytes() in apart.read_bytes()
    assert apart.stat().st_mode & 0o777 == 0o600
    again = checkpoint.read(tmp_path, State, "data", {})
    assert again is not None
    assert again.best is not None
    assert (sha256(again.state), sha256(again.best)) == (sha256(states[3]), sha256(states[2]))


@pytest.mark.parametrize("crash_at", ["devices-2.npz", "checkpoint.npz"])
def test_a_crash_between_both_files_leaves_the_previous_checkpoint(tmp_path, monkeypatch, crash_at):
    states, _ = play()
    checkpoint.write(tmp_path, point(1, states[1]), "data", {})
    honest = checkpoint.write_arrays

    def crashing(path: Path, *given: Any, **named: Any) -> None:
        if path.name == crash_at:
            raise KeyboardInterrupt
        honest(path, *given, **named)

    monkeypatch.setattr(checkpoint, "write_arrays", crashing)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.write(tmp_path, point(2, states[2]), "data", {})
    again = checkpoint.read(tmp_path, State, "data", {})
    assert again is not None
    assert sha256(again.state) == sha256(states[1])


def test_a_missing_file_of_private_state_is_reported_with_a_remedy(tmp_path):
    states, _ = play()
    checkpoint.write(tmp_path, point(3, states[3]), "data", {})
    (tmp_path / "devices-3.npz").unlink()
    with pytest.raises(RunError, match=r"has no devices-3\.npz.*coterie run .*config\.yaml"):
        checkpoint.read(tmp_path, State, "data", {})


def test_only_the_last_private_state_is_kept_on_disk(tmp_path):
    states, _ = play()
    for n in (1, 2, 3):
        checkpoint.write(tmp_path, point(n, states[n]), "data", {})
    assert [path.name for path in tmp_path.glob("devices-*")] == ["devices-3.npz"]


@dataclass(frozen=True, slots=True)
class OnDevices(Factors):
    kind: ClassVar[str] = "factors"
    private: ClassVar[tuple[str, ...]] = ("user_rows",)


def test_a_model_is_saved_without_private_state(tmp_path, monkeypatch):
    rows = np.full((3, 2), SECRET, np.float32)
    model = OnDevices(rows, np.ones((4, 2), np.float32), np.zeros(4, np.float32))
    run_folder.write_model(tmp_path, model)
    assert np.float32(SECRET).tobytes() not in (tmp_path / "model.npz").read_bytes()
    assert (tmp_path / "devices.npz").stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(run_folder.kinds, "kind", lambda name: OnDevices)
    catalogue = SimpleNamespace(user_ids=range(3), item_ids=range(4))
    monkeypatch.setattr(run_folder, "read_catalogue", lambda place: catalogue)
    again, _ = run_folder.read_model(tmp_path)
    assert sha256(again) == sha256(model)


@pytest.mark.parametrize(
    "name", [name for name in FEDERATED if registry.algorithm(name).state.private]
)
def test_no_algorithm_sends_private_state(name, monkeypatch):
    """Neither as floats nor in fixed point, in any message between three nodes and the server."""
    seen: list[bytes] = []
    honest = wire.encode

    def recording(*given: Any, **named: Any) -> bytes:
        seen.append(honest(*given, **named))
        return seen[-1]

    monkeypatch.setattr(nodes, "encode", recording)
    known = registry.algorithm(name).settings.model_fields
    changes = {"start_scale": 0.5} if "start_scale" in known else {}
    states, _ = play_locally(name, histories(4, n_users=14, n_items=12), nodes=3, **changes)
    assert len(seen) > 10
    for state in states[1:]:
        for field in state.private:
            assert getattr(state.without_private(), field) is None
            rows = getattr(state, field).reshape(len(getattr(state, field)), -1)
            for row in rows[np.abs(rows).max(axis=1) > 0]:
                fixed = np.rint(row.astype(np.float64) * SCALE).astype(np.int32)
                assert not any(row.tobytes() in data for data in seen)
                assert not any(fixed.tobytes() in data for data in seen)


@pytest.mark.parametrize("name", ["fedrap", "gpfedrec", "pfedrec"])
def test_a_server_refuses_tables_that_are_too_large_before_clients_make_them(name):
    """Tables of 70 GiB would be a MemoryError, or a process that is killed."""

    def clients_begin(world, node):
        raise AssertionError("clients began")

    federation = replace(registry.algorithm(name).train, init_clients=clients_begin)
    training = histories(0)
    world = world_for(name, training, max_memory=1e-9)
    engine = LocalEngine.over(world, training, 1, None)
    work = trainer.federated_trainer(federation, world, engine, Context(0, SILENT))
    with pytest.raises(ConfigError, match="max_memory allows 1e-09"):
        work.start()
