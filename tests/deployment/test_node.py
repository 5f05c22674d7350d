"""Nodes: the server's state equals a simulation's, private state stays on nodes, and crashes
change nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_federation import ON_KERNELS, play, play_locally, world_for

from coterie.algorithms import registry
from coterie.core.progress import SILENT
from coterie.data.interactions import Interactions
from coterie.data.splits import split
from coterie.data.training_set import TrainingSet
from coterie.deployment.node import Node, NodeEngine
from coterie.deployment.node_private_store import NodeStore
from coterie.engines.local import LocalEngine
from coterie.federated import trainer
from coterie.federated.engine import Engine
from coterie.federated.federation import Federation, World
from coterie.federated.nodes import share_out
from coterie.federated.trainer import Context
from coterie.federated.wire import Malformed

on_kernels = pytest.mark.parametrize("name", ON_KERNELS)


@pytest.fixture(scope="module")
def choices(people) -> TrainingSet:
    return split(people, "leave-one-out", 0.2, seed=0).training()


def name_of(user: int) -> str:
    return f"user {user}"


def nodes_of(name: str, world: World, training: TrainingSet, folder: Path, n: int) -> list[Node]:
    federation = registry.algorithm(name).train
    assert isinstance(federation, Federation)
    node_world, parts = share_out(world, training, n)
    nodes = []
    for k, part in enumerate(parts):
        store = NodeStore.create(folder / f"node{k}.db")
        rows = part.training.positives
        owners = np.repeat(part.users, rows.counts)
        store.put_interactions(
            Interactions.from_columns(
                [name_of(u) for u in owners], [f"item {i}" for i in rows.items]
            )
        )
        with store.transaction():
            store.connection.executemany(
                "insert into person (id) values (?) on conflict do nothing",
                [(name_of(u),) for u in part.users.tolist()],
            )
        store.put_numbers({name_of(u): u for u in part.users.tolist()})
        node = Node(federation, node_world, part, store)
        node.initialise()
        nodes.append(node)
    return nodes


def transport_to(nodes: list[Node]) -> Callable[[Mapping[int, bytes]], dict[int, bytes]]:
    return lambda out: {k: nodes[k].receive(data) for k, data in out.items()}


def private_rows(nodes: list[Node], engine: NodeEngine) -> dict[str, np.ndarray]:
    """The private state of all users, after the last accepted updates are committed."""
    parts = []
    for node in nodes:
        users = node.node.users
        user_ids = [name_of(u) for u in users.tolist()]
        assert node.store.commit(user_ids, engine.accepted[users]).all()
        parts.append((users, node.store.private_state(user_ids)))
    order = np.argsort(np.concatenate([users for users, _ in parts]))
    return {
        name: np.concatenate([private_state[name] for _, private_state in parts])[order]
        for name in parts[0][1]
    }


@on_kernels
@pytest.mark.parametrize("n", [1, 3])
def test_the_run_equals_the_simulation(name, n, choices, tmp_path):
    world = world_for(name, choices, rounds=3)
    nodes = nodes_of(name, world, choices, tmp_path, n)
    engine = NodeEngine.over(np.arange(choices.n_users, dtype=np.int32) % n, transport_to(nodes))
    states, costs = play(name, world, engine)
    expected, expected_costs = play_locally(name, choices, rounds=3)
    for field, array in expected[-1].shared_arrays().items():
        assert np.array_equal(states[-1].shared_arrays()[field], array), field
    private = private_rows(nodes, engine)
    for field, array in expected[-1].private_arrays().items():
        assert np.array_equal(private[field], array), field
    assert [c.accepted for c in costs] == [c.accepted for c in expected_costs]


@on_kernels
def test_the_server_never_has_private_state(name, choices, tmp_path):
    world = world_for(name, choices, rounds=2)
    nodes = nodes_of(name, world, choices, tmp_path, 2)
    hosts = np.arange(choices.n_users, dtype=np.int32) % 2
    states, _ = play(name, world, NodeEngine.over(hosts, transport_to(nodes)))
    for state in states:
        assert all(
            getattr(state, field) is None or not len(getattr(state, field))
            for field in state.private
        )


@pytest.mark.parametrize("name", ["fedfast", "pfpl+", "fcf"])
def test_a_restarted_server_repeats_its_round(name, choices, tmp_path):
    """In every round the first attempt is lost after nodes replied; it has no effect."""
    world = world_for(name, choices, rounds=3, rounds_an_epoch=1)
    nodes = nodes_of(name, world, choices, tmp_path, 2)
    engine = NodeEngine.over(np.arange(choices.n_users, dtype=np.int32) % 2, transport_to(nodes))
    federation = nodes[0].federation
    work = trainer.federated_trainer(federation, world, engine, Context(world.seed, SILENT))
    state, _ = work.start()
    for n in range(1, registry.algorithm(name).steps(world.settings) + 1):
        before = engine.accepted.copy()
        work.step(state, n)  # lost
        engine.accepted[:] = before
        state, _ = work.step(state, n)
    expected = play_locally(name, choices, rounds=3, rounds_an_epoch=1)[0][-1]
    for field, array in expected.shared_arrays().items():
        assert np.array_equal(state.shared_arrays()[field], array), field
    for field, array in private_rows(nodes, engine).items():
        assert np.array_equal(array, expected.private_arrays()[field]), field


def test_a_message_of_an_earlier_round_is_refused(choices, tmp_path):
    """A process missed its deadline: the state of the later round stays."""
    world = world_for("pfpl+", choices, rounds=1, rounds_an_epoch=3)
    nodes = nodes_of("pfpl+", world, choices, tmp_path, 1)
    sent: list[bytes] = []

    def transport(out: Mapping[int, bytes]) -> dict[int, bytes]:
        sent.append(out[0])
        return {0: nodes[0].receive(out[0])}

    engine = NodeEngine.over(np.zeros(choices.n_users, np.int32), transport)
    state = play("pfpl+", world, engine)[0][-1]
    with pytest.raises(Malformed, match="a message of round 1 arrived after one of round 2"):
        nodes[0].receive(sent[1])
    private = private_rows(nodes, engine)
    expected = play_locally("pfpl+", choices, rounds=1, rounds_an_epoch=3)[0][-1]
    assert np.array_equal(private["user_rows"], expected.user_rows)
    assert np.array_equal(state.item_rows, expected.item_rows)


class LosingEngine(Engine):
    """A local engine that loses the reply of node `lost` in one round."""

    def __init__(self, engine: LocalEngine, lost: int, at: int) -> None:
        self.engine = engine
        self.lost = lost
        self.at = at
        self.gather = engine.gather

    def call(self, exchange: Any, message: Any) -> Any:
        replies = self.engine.call(exchange, message)
        if message.round != self.at or message.exchange == trainer.SETUP:
            return replies
        return [
            reply for reply in replies if reply.selected[0] % len(self.engine.nodes) != self.lost
        ]


@pytest.mark.parametrize("name", ["fedfast", "pfpl+", "fcf"])
def test_a_lost_reply_is_a_dropout(name, choices, tmp_path):
    world = world_for(name, choices, rounds=3)
    nodes = nodes_of(name, world, choices, tmp_path, 3)
    complete = transport_to(nodes)
    calls = []

    def transport(out: Mapping[int, bytes]) -> dict[int, bytes]:
        replies = complete(out)
        calls.append(len(replies))
        opening = registry.algorithm(name).train.setup(world) is not None  # type: ignore[union-attr]
        return {k: data for k, data in replies.items() if k != 1 or len(calls) != 2 + opening}

    engine = NodeEngine.over(np.arange(choices.n_users, dtype=np.int32) % 3, transport)
    state = play(name, world, engine)[0][-1]
    expected = play(name, world, LosingEngine(LocalEngine.over(world, choices, 3), 1, 1))[0][-1]
    undisturbed = play_locally(name, choices, rounds=3)[0][-1]
    assert not np.array_equal(expected.item_rows, undisturbed.item_rows)
    for field, array in expected.shared_arrays().items():
        assert np.array_equal(state.shared_arrays()[field], array), field
    for field, array in private_rows(nodes, engine).items():
        assert np.array_equal(array, expected.private_arrays()[field]), field


def test_users_with_outdated_state_have_no_part_in_a_round(choices, tmp_path):
    world = world_for("pfpl+", choices, rounds=1, rounds_an_epoch=1)
    nodes = nodes_of("pfpl+", world, choices, tmp_path, 1)
    engine = NodeEngine.over(np.zeros(choices.n_users, np.int32), transport_to(nodes))
    engine.accepted[:50] = 12345
    _, (costs,) = play("pfpl+", world, engine)
    members = int(world.members[50:].sum())
    assert costs.accepted == members


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=400), at=st.integers(0, 5000), byte=st.integers(0, 255))
def test_a_node_refuses_broken_messages(data, at, byte, node_and_message):
    node, message = node_and_message
    broken = bytearray(message)
    broken[at % len(broken)] = byte
    for garbage in (data, bytes(broken[: at % len(broken)])):
        with pytest.raises(Malformed):
            node.receive(garbage)


@pytest.fixture(scope="module")
def node_and_message(choices, tmp_path_factory) -> tuple[Node, bytes]:
    world = world_for("pfpl+", choices, rounds=1)
    (node,) = nodes_of("pfpl+", world, choices, tmp_path_factory.mktemp("node"), 1)
    caught: list[bytes] = []

    def transport(out: Mapping[int, bytes]) -> dict[int, bytes]:
        caught.append(out[0])
        return {}

    play("pfpl+", world, NodeEngine.over(np.zeros(choices.n_users, np.int32), transport))
    return node, caught[0]
