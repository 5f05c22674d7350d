"""Validation: every kind of hostile update is refused and counted, and changes nothing else."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hostile import KINDS, HostileEngine, reply, without_item_rows
from small_federation import (
    FEDERATED,
    ON_KERNELS,
    SENT_ONCE,
    histories,
    play,
    sha256,
    world_for,
)

from coterie.algorithms import registry
from coterie.core.progress import Progress
from coterie.data.splits import split
from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.federated.engine import Engine
from coterie.federated.federation import Exchange, Federation, NodeData, PrivateState, World
from coterie.federated.validation import MOST_SAMPLES, Expected, Reply, validate
from coterie.types import TOO_LARGE, Message, Sizes, Updates

COHORT = np.array([0, 3, 4, 7], np.int32)
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
    message = federation.exchanges[0].broadcast(world, federation.init(world), COHORT, ROUND)
    return federation.exchanges[0].client_update(
        world, message, NodeData(np.arange(12, dtype=np.int32), training)
    )


EXPECTED = Expected(ROUND, COHORT, Sizes(15, 5, 5, 6))


def check(*replies: Reply) -> tuple[list[int], dict[str, int]]:
    """The users whose updates are accepted, and the counts of refused updates by reason."""
    updates, refused, _ = validate(list(replies), EXPECTED)
    return updates.users.tolist(), dict(refused)


def update_of(honest: Updates, k: int) -> Updates:
    return honest.take(np.array([k]))


# One at a time.


def test_honest_updates_are_accepted_as_they_are(honest):
    updates, refused, _ = validate([reply(honest, ROUND)], EXPECTED)
    assert not refused
    for name, column in updates.columns().items():
        np.testing.assert_array_equal(column, honest.columns()[name])


@pytest.mark.parametrize(
    ("reason", "number"), [(r, n) for r, makers in KINDS.items() for n in range(len(makers))]
)
def test_every_kind_is_refused_for_its_reason(reason, number, honest):
    """Forty random ones of each kind, each with an honest update that must be accepted."""
    for seed in range(40):
        hostile = KINDS[reason][number](
            update_of(honest, 1), ROUND, 15, np.random.default_rng(seed)
        )
        found = check(hostile, reply(update_of(honest, 2), ROUND))
        assert found == ([4], {reason: 1}), (seed, hostile)


@pytest.mark.parametrize("count", [1, MOST_SAMPLES])
def test_possible_sample_counts_are_accepted(count, honest):
    assert check(reply(update_of(honest, 1), ROUND, samples=np.array([count]))) == ([3], {})


def test_changes_without_a_sample_are_refused(honest):
    one = update_of(honest, 1)
    nothing = np.zeros(1, np.int64)
    assert check(reply(one, ROUND, samples=nothing)) == ([], {"bad sample count": 1})
    assert check(reply(without_item_rows(one), ROUND, samples=nothing)) == (
        [],
        {"bad sample count": 1},
    )


def test_one_bad_update_of_a_node_leaves_the_others_alone(honest):
    user_rows = honest.user_rows.copy()
    user_rows[1, 2] = -(1 << 31)
    assert check(reply(honest, ROUND, user_rows=user_rows)) == ([0, 4, 7], {"not finite": 1})


def test_an_invalid_reply_counts_for_all_its_users(honest):
    assert check(Reply(COHORT)) == ([], {"malformed": 4})
    assert check(reply(honest, ROUND - 1)) == ([], {"stale round": 4})


def test_the_first_fault_of_many_is_the_reason(honest):
    """Each refused update is counted once, whatever else is wrong with it."""
    rows = np.full_like(honest.item_rows, 1 << 30)
    counts = np.full(4, -5, np.int64)
    users, refused = check(reply(honest, ROUND, item_rows=rows, samples=counts))
    assert users == []
    assert sum(refused.values()) == 4


def test_a_user_twice_in_a_reply_counts_once(honest):
    twice = honest.take(np.array([0, 1, 1, 2, 1]))
    assert check(reply(twice, ROUND)) == ([0, 3, 4], {"duplicate user": 2})


def test_a_reply_that_comes_twice_counts_once(honest):
    assert check(reply(honest, ROUND), reply(honest, ROUND)) == (
        [0, 3, 4, 7],
        {"duplicate user": 4},
    )


def test_a_node_cannot_reply_for_users_of_another(honest):
    """A node replies for the users it was sent, though others are in the cohort too."""
    own = update_of(honest, 1)
    other = update_of(honest, 2)
    forged = Reply(own.users, ROUND, other.columns())
    assert check(forged, reply(other, ROUND)) == ([4], {"unknown user": 1})


def test_a_user_outside_the_cohort_is_refused(honest):
    """For example a user selected in another round."""
    late = reply(update_of(honest, 1), ROUND, users=np.array([9], np.int32))
    assert check(Reply(np.array([9], np.int32), ROUND, late.columns)) == ([], {"unknown user": 1})


def test_updates_come_out_by_user_whatever_the_order_of_replies(honest):
    parts = [reply(update_of(honest, k), ROUND) for k in (2, 0, 3, 1)]
    updates = validate(parts, EXPECTED).updates
    for name, column in updates.columns().items():
        np.testing.assert_array_equal(column, honest.columns()[name])


def test_norms_are_those_of_the_rows_of_one_reply(honest):
    updates, _, norms = validate([reply(honest, ROUND)], EXPECTED, measure=True)
    assert norms is not None
    by_row = [sum(int(v) ** 2 for v in row) for row in updates.item_rows]
    assert norms.by_row.tolist() == by_row
    cuts = updates.offsets.tolist()
    assert norms.by_client.tolist() == [sum(by_row[a:b]) for a, b in itertools.pairwise(cuts)]


def test_norms_are_left_out_where_updates_are_not_as_they_were_sent(honest):
    """Of several replies, and of one in another order."""
    parts = [reply(update_of(honest, k), ROUND) for k in (0, 1)]
    reversed_order = reply(honest.take(np.array([3, 2, 1, 0])), ROUND)
    for replies in (parts, [reversed_order]):
        assert validate(replies, EXPECTED, measure=True).norms is None
    assert validate([reply(honest, ROUND)], EXPECTED).norms is None


@pytest.mark.parametrize("value", [TOO_LARGE, -TOO_LARGE, 2**31 - 1, -(2**31), TOO_LARGE - 1])
def test_entries_out_of_range_are_refused_with_norms_and_without(honest, value):
    """Squares of the largest entries overflow in their sum, and still count as out of range."""
    item_rows = honest.item_rows.copy()
    item_rows[int(honest.offsets[1]) :] = value
    hostile = reply(honest, ROUND, item_rows=item_rows)
    refused = [validate([hostile], EXPECTED, measure=measure).refused for measure in (False, True)]
    assert refused[0] == refused[1]
    fault = "not finite" if value == -(2**31) else "out of range"
    assert refused[1] == ({} if value == TOO_LARGE - 1 else {fault: len(honest) - 1})


def test_no_replies_are_no_updates():
    updates, refused, _ = validate([], EXPECTED)
    assert (len(updates), refused) == (0, Counter())
    assert updates.item_rows.shape == (0, 5)


# A thousand of them within a run.

MANY = {"participation": 0.5, "users_per_round": 100, "rounds_an_epoch": 1}
"""A hundred users or a few more in every round, and one round per step for every algorithm."""


@pytest.fixture(scope="module")
def training(people) -> TrainingSet:
    return split(people, "leave-one-out", 0.2, seed=0).training()


@pytest.mark.parametrize("name", [name for name in ON_KERNELS if name not in SENT_ONCE])
def test_a_thousand_hostile_updates_change_nothing(name, training):
    """Ten rounds of about 100 users: sixty are hostile, and forty honest updates come twice."""
    world = world_for(name, training, rounds=10, **MANY)

    def run(attacking: bool, nodes: int) -> tuple[Any, Counter[str], Counter[str], int, int]:
        engine = LocalEngine.over(world, training, nodes)
        hostile = HostileEngine(engine, world.n_items, exchange_of(name), 60, 40, attacking)
        states, costs = play(name, world, hostile)
        refused = sum((c.refused for c in costs), Counter())
        accepted = sum(c.accepted for c in costs)
        selected = sum(len(c.users) for c in costs)
        return states, hostile.sent, refused, accepted, selected

    states, sent, refused, accepted, selected = run(True, 3)
    without, _, none, as_many, _ = run(False, 1)
    assert sum(sent.values()) == 1000
    assert sent == refused
    assert len(sent) == 11  # all reasons
    assert not none
    assert accepted == as_many == selected - 600
    assert [sha256(s) for s in states] == [sha256(s) for s in without]
    assert sha256(states[-1]) != sha256(states[0])


class Silent(Engine):
    """An engine whose nodes do not reply in some rounds."""

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


class LogLines(Progress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def log(self, text: str) -> None:
        self.lines.append(text)


@pytest.mark.parametrize("name", ON_KERNELS)
def test_a_round_in_which_every_update_is_refused_changes_nothing_and_is_logged(name, training):
    world = world_for(name, training, rounds=3)
    log = LogLines()
    hostile = HostileEngine(
        LocalEngine.over(world, training, 1), world.n_items, exchange_of(name), liars=10_000
    )
    states, costs = play(name, world, hostile, progress=log)
    assert {sha256(state) for state in states} == {sha256(states[0])}
    assert [c.accepted for c in costs] == [0, 0, 0]
    (line,) = log.lines  # one line for all such rounds in a row
    assert line.startswith("round 1: every update was refused (")
    assert all(f"{reason} {count}" in line for reason, count in costs[0].refused.items())
    assert line.endswith("; the model stays as it was")


@pytest.mark.parametrize("name", FEDERATED)
def test_rounds_without_replies_change_nothing_and_are_logged(name, training):
    """The first of several in a row is logged, and the first after a successful round."""
    world = world_for(name, training, rounds=5, rounds_an_epoch=1)
    log = LogLines()
    silent = Silent(world, training, exchange_of(name), {0, 1, 3})
    states, costs = play(name, world, silent, progress=log)
    digests = [sha256(state) for state in states]
    assert digests[0] == digests[1] == digests[2] != digests[3] == digests[4] != digests[5]
    assert [c.accepted > 0 for c in costs] == [False, False, True, False, True]
    assert log.lines == [
        f"round {n}: no client of the cohort replied; the model stays as it was" for n in (1, 4)
    ]


DIVERGES: dict[str, dict[str, float]] = {
    name: {"start_scale": 1e-6, "reg": 1e-12} for name in ("fcf", "fedmvmf", "fedals")
}
"""For algorithms whose devices solve exactly: tiny item rows and almost no regularisation give
huge user vectors."""


CANNOT_DIVERGE = {*SENT_ONCE, "lightfr"}
"""One round without training, or codes of bits, which have no size."""


@pytest.mark.parametrize("name", [name for name in ON_KERNELS if name not in CANNOT_DIVERGE])
def test_updates_of_devices_whose_training_diverges_are_refused(name, training):
    """Honest devices with a huge step size: the model stays finite, and reasons are counted."""
    world = world_for(name, training, rounds=3, **DIVERGES.get(name, {"learning_rate": 1e9}))
    states, costs = play(name, world, LocalEngine.over(world, training, 1), progress=LogLines())
    reasons = set().union(*(c.refused for c in costs))
    assert reasons <= {"not finite", "out of range"}
    assert reasons
    assert all(np.isfinite(array).all() for state in states for array in state.arrays().values())


@pytest.mark.parametrize("name", ON_KERNELS)
def test_every_selected_client_is_accepted_dropped_or_refused(name, training):
    world = world_for(name, training, rounds=4, client_dropout=0.4, **MANY)
    hostile = HostileEngine(
        LocalEngine.over(world, training, 1), world.n_items, exchange_of(name), liars=7
    )
    _, all_costs = play(name, world, hostile)
    for costs in all_costs:
        assert costs.dropped > 0
        assert sum(costs.refused.values()) == 7
        # Clients that forge the user of an update count as dropped themselves.
        forged = sum(costs.refused[fault] for fault in ("unknown user", "duplicate user"))
        assert len(costs.users) == costs.accepted + costs.dropped + 7 - forged


@pytest.mark.parametrize("read_only", [False, True], ids=["writable", "read-only"])
@pytest.mark.parametrize("refused", [[0], [1, 2], [0, 2, 3], [3], [0, 1, 2, 3]], ids=str)
def test_what_is_left_has_the_norms_of_its_own_rows(
    honest: Updates, refused: list[int], read_only: bool
):
    """Rows move up in place; the other columns may be those of the message, and stay."""
    samples = honest.samples.copy()
    samples[refused] = -1
    sent = replace(honest, samples=samples, item_rows=honest.item_rows.copy())
    columns = sent.columns()
    before = {name: column.copy() for name, column in columns.items()}
    for column in columns.values():
        column.flags.writeable = not read_only
    valid = validate([Reply(COHORT, ROUND, columns)], EXPECTED, measure=True)
    accepted = np.setdiff1d(np.arange(len(COHORT)), refused)
    expected = honest.take(accepted)
    for name, column in valid.updates.columns().items():
        assert column.tolist() == getattr(expected, name).tolist()
    kept = set(columns) if read_only else set(columns) - {"item_rows"}
    assert all((columns[name] == before[name]).all() for name in kept)
    if len(accepted):
        assert valid.norms is not None
        squares = (expected.item_rows.astype(float) ** 2).sum(axis=1)
        assert valid.norms.by_row.tolist() == squares.tolist()
        assert valid.norms.by_client.tolist() == [
            squares[begin:end].sum() for begin, end in itertools.pairwise(expected.offsets)
        ]
