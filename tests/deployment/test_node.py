"""Parties: what a server has is what it has in a simulation, what is private is on the nodes alone, and crashes change nothing."""

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
from coterie.deployment.node_store import NodeStore
from coterie.engines.local import LocalEngine
from coterie.federated import trainer
from coterie.federated.federation import Federation, World
from coterie.federated.nodes import share_out
from coterie.federated.trainer import Context
from coterie.federated.wire import Malformed

on_kernels = pytest.mark.parametrize("name", ON_KERNELS)


@pytest.fixture(scope="module")
def choices(people) -> TrainingSet:
    return split(people, "leave-one-out", 0.2, seed=0).training()


def name_of(user: int) -> str:
    return f"person {user}"


def parties(name: str, world: World, training: TrainingSet, folder: Path, n: int) -> list[Node]:
    federation = registry.algorithm(name).train
    assert isinstance(federation, Federation)
    seen, nodes = share_out(world, training, n)
    made = []
    for number, node in enumerate(nodes):
        store = NodeStore.create(folder / f"node{number}.db")
        rows = node.training.positives
        owners = np.repeat(node.users, rows.counts)
        store.put_interactions(
            Interactions.from_columns(
                [name_of(u) for u in owners], [f"item {i}" for i in rows.items]
            )
        )
        with store.all_or_nothing():
            store.connection.executemany(
                "insert into person (id) values (?) on conflict do nothing",
                [(name_of(u),) for u in node.users.tolist()],
            )
        store.put_numbers({name_of(u): u for u in node.users.tolist()})
        made.append(Node(federation, seen, node, store))
        made[-1].begin()
    return made


def between(made: list[Node]) -> Callable[[Mapping[int, bytes]], dict[int, bytes]]:
    return lambda out: {n: made[n].receive(data) for n, data in out.items()}


def private_rows(made: list[Node], engine: NodeEngine) -> dict[str, np.ndarray]:
    """What devices keep, by user, as it is once the server has said what it accepted."""
    parts = []
    for party in made:
        users = party.node.users
        persons = [name_of(u) for u in users.tolist()]
        assert party.store.settle(persons, engine.accepted[users]).all()
        parts.append((users, party.store.private_state(persons)))
    order = np.argsort(np.concatenate([users for users, _ in parts]))
    return {
        name: np.concatenate([private_state[name] for _, private_state in parts])[order]
        for name in parts[0][1]
    }


@on_kernels
@pytest.mark.parametrize("n", [1, 3])
def test_the_run_is_that_of_the_simulation(name, n, choices, tmp_path):
    world = world_for(name, choices, rounds=3)
    made = parties(name, world, choices, tmp_path, n)
    engine = NodeEngine.over(np.arange(choices.n_users, dtype=np.int32) % n, between(made))
    (states, tallies) = play(name, world, engine)
    (here, same) = play_locally(name, choices, rounds=3)
    for field, array in here[-1].shared_arrays().items():
        assert np.array_equal(states[-1].shared_arrays()[field], array), field
    found = private_rows(made, engine)
    for field, array in here[-1].private_arrays().items():
        assert np.array_equal(found[field], array), field
    assert [t.accepted for t in tallies] == [t.accepted for t in same]


@on_kernels
def test_the_server_never_has_what_is_private(name, choices, tmp_path):
    world = world_for(name, choices, rounds=2)
    made = parties(name, world, choices, tmp_path, 2)
    states, _ = play(
        name, world, NodeEngine.over(np.arange(choices.n_users, dtype=np.int32) % 2, between(made))
    )
    for state in states:
        assert all(
            getattr(state, field) is None or not len(getattr(state, field))
            for field in state.private
        )


@pytest.mark.parametrize("name", ["fedfast", "pfpl+", "fcf"])
def test_a_server_that_crashed_plays_its_round_again(name, choices, tmp_path):
    """In every round the first attempt is lost after nodes have answered: what they made of it does not count."""
    world = world_for(name, choices, rounds=3, rounds_an_epoch=1)
    made = parties(name, world, choices, tmp_path, 2)
    engine = NodeEngine.over(np.arange(choices.n_users, dtype=np.int32) % 2, between(made))
    federation = made[0].federation
    work = trainer.federated_trainer(federation, world, engine, Context(world.seed, SILENT))
    state, _ = work.start()
    for n in range(1, registry.algorithm(name).steps(world.settings) + 1):
        before = engine.accepted.copy()
        work.step(state, n)  # lost
        engine.accepted[:] = before
        state, _ = work.step(state, n)
    here = play_locally(name, choices, rounds=3, rounds_an_epoch=1)[0][-1]
    for field, array in here.shared_arrays().items():
        assert np.array_equal(state.shared_arrays()[field], array), field
    for field, array in private_rows(made, engine).items():
        assert np.array_equal(array, here.private_arrays()[field]), field


def test_a_message_of_an_earlier_round_is_late(choices, tmp_path):
    """A process that took longer than its deadline: what a later round made stays."""
    world = world_for("pfpl+", choices, rounds=1, rounds_an_epoch=3)
    made = parties("pfpl+", world, choices, tmp_path, 1)
    sent: list[bytes] = []

    def transport(out: Mapping[int, bytes]) -> dict[int, bytes]:
        sent.append(out[0])
        return {0: made[0].receive(out[0])}

    engine = NodeEngine.over(np.zeros(choices.n_users, np.int32), transport)
    state = play("pfpl+", world, engine)[0][-1]
    with pytest.raises(Malformed, match="a message of round 1 after one of round 2"):
        made[0].receive(sent[1])
    found = private_rows(made, engine)
    here = play_locally("pfpl+", choices, rounds=1, rounds_an_epoch=3)[0][-1]
    assert np.array_equal(found["user_rows"], here.user_rows)
    assert np.array_equal(state.item_rows, here.item_rows)


class Losing:
    """A local engine whose node `lost` is not heard in one round."""

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
def test_a_node_whose_answer_is_lost_was_absent(name, choices, tmp_path):
    world = world_for(name, choices, rounds=3)
    made = parties(name, world, choices, tmp_path, 3)
    whole = between(made)
    seen = []

    def transport(out: Mapping[int, bytes]) -> dict[int, bytes]:
        back = whole(out)
        seen.append(len(back))
        opening = registry.algorithm(name).train.setup(world) is not None  # type: ignore[union-attr]
        return {n: data for n, data in back.items() if n != 1 or len(seen) != 2 + opening}

    engine = NodeEngine.over(np.arange(choices.n_users, dtype=np.int32) % 3, transport)
    state = play(name, world, engine)[0][-1]
    here = play(name, world, Losing(LocalEngine.over(world, choices, 3), 1, 1))[0][-1]
    assert not np.array_equal(
        here.item_rows, play_locally(name, choices, rounds=3)[0][-1].item_rows
    )
    for field, array in here.shared_arrays().items():
        assert np.array_equal(state.shared_arrays()[field], array), field
    for field, array in private_rows(made, engine).items():
        assert np.array_equal(array, here.private_arrays()[field]), field


def test_a_store_from_an_earlier_day_has_no_part_in_a_round(choices, tmp_path):
    world = world_for("pfpl+", choices, rounds=1, rounds_an_epoch=1)
    made = parties("pfpl+", world, choices, tmp_path, 1)
    engine = NodeEngine.over(np.zeros(choices.n_users, np.int32), between(made))
    engine.accepted[:50] = 12345
    _, (costs,) = play("pfpl+", world, engine)
    members = int(world.members[50:].sum())
    assert costs.accepted == members


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=400), at=st.integers(0, 5000), byte=st.integers(0, 255))
def test_whatever_bytes_a_node_gets(data, at, byte, a_party):
    """Nothing but a refusal, and nothing changes."""
    party, message = a_party
    broken = bytearray(message)
    broken[at % len(broken)] = byte
    for garbage in (data, bytes(broken[: at % len(broken)])):
        with pytest.raises(Malformed):
            party.receive(garbage)


@pytest.fixture(scope="module")
def a_party(choices, tmp_path_factory) -> tuple[Node, bytes]:
    world = world_for("pfpl+", choices, rounds=1)
    (party,) = parties("pfpl+", world, choices, tmp_path_factory.mktemp("party"), 1)
    caught: list[bytes] = []

    def transport(out: Mapping[int, bytes]) -> dict[int, bytes]:
        caught.append(out[0])
        return {}

    play("pfpl+", world, NodeEngine.over(np.zeros(choices.n_users, np.int32), transport))
    return party, caught[0]
