"""Between nodes and aggregation: every kind of hostile update is refused, counted, and as if never sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hostile import KINDS, HostileEngine, reply, without_item_rows
from small_federation import FEDERATED, ON_KERNELS, histories, play, sha256, world_for

from coterie.algorithms import registry
from coterie.core.progress import Progress
from coterie.data.splits import split
from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.federated.engine import Engine
from coterie.federated.federation import Exchange, Federation, NodeData, PrivateState, World
from coterie.federated.validation import MOST_SAMPLES, Expected, Reply, validate
from coterie.types import Message, Sizes, Updates

ASKED = np.array([0, 3, 4, 7], np.int32)
ROUND = 2


def exchange_of(name: str) -> Exchange:
    federation = registry.algorithm(name).train
    assert isinstance(federation, Federation)
    return federation.exchanges[0]


@pytest.fixture(scope="module")
def honest() -> Updates:
    """What four users send in round 2."""
    training = histories(1)
    world = world_for("fedavg", training)
    federation = registry.algorithm("fedavg").train
    assert isinstance(federation, Federation)
    message = federation.exchanges[0].broadcast(world, federation.init(world), ASKED, ROUND)
    return federation.exchanges[0].client_update(
        world, message, NodeData(np.arange(12, dtype=np.int32), training)
    )


EXPECTED = Expected(ROUND, ASKED, Sizes(15, 5, 5, 6))


def judge(*replies: Reply) -> tuple[list[int], dict[str, int]]:
    """Whose updates are accepted, and what was refused."""
    updates, refused = validate(list(replies), EXPECTED)
    return updates.users.tolist(), dict(refused)


def only_node(honest: Updates, k: int) -> Updates:
    return honest.take(np.array([k]))


# One at a time.


def test_honest_updates_are_accepted_as_they_are(honest):
    updates, refused = validate([reply(honest, ROUND)], EXPECTED)
    assert not refused
    for name, column in updates.columns().items():
        np.testing.assert_array_equal(column, honest.columns()[name])


@pytest.mark.parametrize(
    ("reason", "number"), [(r, n) for r, makers in KINDS.items() for n in range(len(makers))]
)
def test_every_kind_is_refused_for_its_reason(reason, number, honest):
    """Forty of each by chance, each beside an honest neighbour who is not touched by it."""
    for seed in range(40):
        lie = KINDS[reason][number](only_node(honest, 1), ROUND, 15, np.random.default_rng(seed))
        assert judge(lie, reply(only_node(honest, 2), ROUND)) == ([4], {reason: 1}), (seed, lie)


@pytest.mark.parametrize("count", [1, MOST_SAMPLES])
def test_sample_counts_that_can_be(count, honest):
    assert judge(reply(only_node(honest, 1), ROUND, samples=np.array([count]))) == ([3], {})


def test_changes_without_a_sample_are_made_up(honest):
    one = only_node(honest, 1)
    nothing = np.zeros(1, np.int64)
    assert judge(reply(one, ROUND, samples=nothing)) == ([], {"bad sample count": 1})
    assert judge(reply(without_item_rows(one), ROUND, samples=nothing)) == (
        [],
        {"bad sample count": 1},
    )


def test_one_bad_update_of_a_node_leaves_the_others_alone(honest):
    user_rows = honest.user_rows.copy()
    user_rows[1, 2] = -(1 << 31)
    assert judge(reply(honest, ROUND, user_rows=user_rows)) == ([0, 4, 7], {"not finite": 1})


def test_a_reply_that_is_no_reply_counts_for_everybody_it_was_asked_for(honest):
    assert judge(Reply(ASKED)) == ([], {"malformed": 4})
    assert judge(reply(honest, ROUND - 1)) == ([], {"stale round": 4})


def test_the_first_fault_of_many_is_the_reason(honest):
    """Each refused update is counted once, whatever else is wrong with it."""
    rows = np.full_like(honest.item_rows, 1 << 30)
    counts = np.full(4, -5, np.int64)
    users, refused = judge(reply(honest, ROUND, item_rows=rows, samples=counts))
    assert users == []
    assert sum(refused.values()) == 4


def test_a_user_twice_in_a_reply_counts_once(honest):
    twice = honest.take(np.array([0, 1, 1, 2, 1]))
    assert judge(reply(twice, ROUND)) == ([0, 3, 4], {"duplicate user": 2})


def test_a_reply_that_comes_twice_counts_once(honest):
    assert judge(reply(honest, ROUND), reply(honest, ROUND)) == (
        [0, 3, 4, 7],
        {"duplicate user": 4},
    )


def test_nobody_can_answer_for_somebody_else(honest):
    """A node answers for the users it was asked for, though others are in the round too."""
    mine = only_node(honest, 1)
    others = only_node(honest, 2)
    forged = Reply(mine.users, ROUND, others.columns())
    assert judge(forged, reply(others, ROUND)) == ([4], {"unknown user": 1})


def test_nobody_outside_the_round_is_accepted(honest):
    """Somebody asked in another round who answers now."""
    late = reply(only_node(honest, 1), ROUND, users=np.array([9], np.int32))
    assert judge(Reply(np.array([9], np.int32), ROUND, late.columns)) == ([], {"unknown user": 1})


def test_updates_come_out_by_user_whatever_the_order_of_replies(honest):
    parts = [reply(only_node(honest, k), ROUND) for k in (2, 0, 3, 1)]
    updates, _ = validate(parts, EXPECTED)
    for name, column in updates.columns().items():
        np.testing.assert_array_equal(column, honest.columns()[name])


def test_no_replies_are_no_updates():
    updates, refused = validate([], EXPECTED)
    assert (len(updates), refused) == (0, Counter())
    assert updates.item_rows.shape == (0, 5)


# A thousand of them within a run.

MANY = {"participation": 0.5, "users_per_round": 100, "rounds_an_epoch": 1}
"""A hundred users or a few more in every round, and a round in every step, whatever an algorithm counts in."""


@pytest.fixture(scope="module")
def training(people) -> TrainingSet:
    return split(people, "leave-one-out", 0.2, seed=0).training()


@pytest.mark.parametrize("name", ON_KERNELS)
def test_a_thousand_hostile_updates_change_nothing(name, training):
    """Ten rounds of a hundred users or a few more: sixty lie, and the updates of forty honest ones come twice."""
    world = world_for(name, training, rounds=10, **MANY)

    def run(attacking: bool, nodes: int) -> tuple[Any, Counter[str], Counter[str], int, int]:
        engine = LocalEngine.over(world, training, nodes)
        hostile = HostileEngine(engine, world.n_items, exchange_of(name), 60, 40, attacking)
        states, tallies = play(name, world, hostile)
        refused = sum((t.refused for t in tallies), Counter())
        return (
            states,
            hostile.sent,
            refused,
            sum(t.accepted for t in tallies),
            sum(len(t.users) for t in tallies),
        )

    states, sent, refused, accepted, asked = run(True, 3)
    without, _, none, as_many, _ = run(False, 1)
    assert sum(sent.values()) == 1000
    assert sent == refused
    assert len(sent) == 11  # every reason there is
    assert not none
    assert accepted == as_many == asked - 600
    assert [sha256(s) for s in states] == [sha256(s) for s in without]
    assert sha256(states[-1]) != sha256(states[0])


class Silent(Engine):
    """An engine whose nodes do not answer in some rounds."""

    def __init__(
        self, world: World, training: TrainingSet, target: Exchange, rounds: set[int]
    ) -> None:
        self.engine = LocalEngine.over(world, training, 1)
        self.target = target
        self.rounds = rounds

    def gather(self, make: Callable[[World, NodeData], PrivateState]) -> PrivateState:
        return self.engine.gather(make)

    def call(self, exchange: Exchange, message: Message) -> list[Reply]:
        silent = exchange is self.target and message.round in self.rounds
        return [] if silent else self.engine.call(exchange, message)


class Hearing(Progress):
    def __init__(self) -> None:
        self.said: list[str] = []

    def log(self, text: str) -> None:
        self.said.append(text)


@pytest.mark.parametrize("name", ON_KERNELS)
def test_a_round_in_which_everybody_is_refused_changes_nothing_and_says_so(name, training):
    world = world_for(name, training, rounds=3)
    heard = Hearing()
    hostile = HostileEngine(
        LocalEngine.over(world, training, 1), world.n_items, exchange_of(name), liars=10_000
    )
    states, tallies = play(name, world, hostile, progress=heard)
    assert {sha256(state) for state in states} == {sha256(states[0])}
    assert [t.accepted for t in tallies] == [0, 0, 0]
    (line,) = heard.said  # once for all such rounds in a row
    assert line.startswith("round 1: every update was refused (")
    assert all(f"{reason} {count}" in line for reason, count in tallies[0].refused.items())
    assert line.endswith("; the model stays as it was")


@pytest.mark.parametrize("name", FEDERATED)
def test_rounds_in_which_nobody_answers_change_nothing_and_are_said(name, training):
    """The first of several in a row; and again after a round that went well."""
    world = world_for(name, training, rounds=5, rounds_an_epoch=1)
    heard = Hearing()
    states, tallies = play(
        name, world, Silent(world, training, exchange_of(name), {0, 1, 3}), progress=heard
    )
    marks = [sha256(state) for state in states]
    assert marks[0] == marks[1] == marks[2] != marks[3] == marks[4] != marks[5]
    assert [costs.accepted > 0 for costs in tallies] == [False, False, True, False, True]
    assert heard.said == [
        f"round {n}: no client of the cohort replied; the model stays as it was" for n in (1, 4)
    ]


RUNS_AWAY: dict[str, dict[str, float]] = {
    name: {"start_scale": 1e-6, "reg": 1e-12} for name in ("fcf", "fedmvmf")
}
"""Where devices take no steps of a size: vectors that are solved for against next to nothing become huge."""


@pytest.mark.parametrize("name", ON_KERNELS)
def test_devices_whose_training_runs_away_are_refused(name, training):
    """Honest devices with an impossible step size: the model stays finite, and the reasons say why."""
    world = world_for(name, training, rounds=3, **RUNS_AWAY.get(name, {"learning_rate": 1e9}))
    heard = Hearing()
    states, tallies = play(name, world, LocalEngine.over(world, training, 1), progress=heard)
    reasons = set().union(*(t.refused for t in tallies))
    assert reasons <= {"not finite", "out of range"}
    assert reasons
    assert all(np.isfinite(array).all() for state in states for array in state.arrays().values())


@pytest.mark.parametrize("name", ON_KERNELS)
def test_everybody_asked_is_accepted_dropped_or_refused(name, training):
    world = world_for(name, training, rounds=4, client_dropout=0.4, **MANY)
    hostile = HostileEngine(
        LocalEngine.over(world, training, 1), world.n_items, exchange_of(name), liars=7
    )
    _, tallies = play(name, world, hostile)
    for costs in tallies:
        assert costs.dropped > 0
        assert sum(costs.refused.values()) == 7
        forged = sum(
            costs.refused[fault] for fault in ("unknown user", "duplicate user")
        )  # who sent them is silent
        assert len(costs.users) == costs.accepted + costs.dropped + 7 - forged
