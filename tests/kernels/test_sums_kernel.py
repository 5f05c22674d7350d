"""Integer sums and validation equal slow loops over Python's integers, at the limits too."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from cohorts import LARGEST, updates
from hypothesis import given, settings
from hypothesis import strategies as st
from small_data import locked

from coterie import kernels
from coterie.algorithms.fedavg import dense_sums
from coterie.data.training_set import TrainingSet
from coterie.errors import ConfigError
from coterie.federated.selection import MOST_USERS, check_size
from coterie.federated.settings import FederationSettings
from coterie.federated.trainer import world_of
from coterie.federated.validation import MOST_SAMPLES
from coterie.kernels.fallback import sums as fallback
from coterie.types import NOT_FINITE, TOO_LARGE, Rows, Updates

N_ITEMS = 9
some = settings(deadline=None, max_examples=40)


def by_samples(
    u: Updates, ranges: list[tuple[int, int]], n_items: int = N_ITEMS
) -> tuple[list, list]:
    total = np.zeros((n_items, u.item_rows.shape[1]), np.int64)
    touched = np.zeros(n_items, np.int64)
    for low, high in ranges:
        kernels.load("sums").by_samples(
            u.offsets, u.items, u.item_rows, u.samples, low, high, total, touched
        )
    return total.tolist(), touched.tolist()


def by_change(
    u: Updates,
    ranges: list[tuple[int, int]],
    n_items: int = N_ITEMS,
    n_by_change: int | None = None,
) -> tuple[list, list]:
    width = u.item_rows.shape[1]
    total, weight = (np.zeros((n_items, width), np.int64) for _ in range(2))
    n_by_change = width if n_by_change is None else n_by_change
    for low, high in ranges:
        kernels.load("sums").by_change(
            u.offsets, u.items, u.item_rows, u.samples, n_by_change, low, high, total, weight
        )
    return total.tolist(), weight.tolist()


def slow_sums(u: Updates, width: int = 2) -> tuple[list, list, list, list]:
    """In Python's integers: the sums of n q, n, |q| q and |q|."""
    nq = [[0] * width for _ in range(N_ITEMS)]
    n = [0] * N_ITEMS
    qq = [[0] * width for _ in range(N_ITEMS)]
    q_size = [[0] * width for _ in range(N_ITEMS)]
    for k in range(len(u)):
        for r in range(int(u.offsets[k]), int(u.offsets[k + 1])):
            item = int(u.items[r])
            n[item] += int(u.samples[k])
            for f in range(width):
                q = int(u.item_rows[r, f])
                nq[item][f] += int(u.samples[k]) * q
                qq[item][f] += abs(q) * q
                q_size[item][f] += abs(q)
    return nq, n, qq, q_size


@some
@given(updates(), st.lists(st.integers(0, N_ITEMS), max_size=4))
def test_sums_equal_slow_loops_for_any_cut_of_the_items(u, cuts):
    bounds = [0, *sorted(cuts), N_ITEMS]
    ranges = list(pairwise(bounds))
    nq, n, qq, q_size = slow_sums(u)
    assert by_samples(u, ranges) == (nq, n)
    assert by_change(u, ranges) == (qq, q_size)
    # The first component by |change|, the second by samples.
    mixed = [[by_q[0], by_n[1]] for by_q, by_n in zip(qq, nq, strict=True)]
    weights = [[by_q[0], by_n] for by_q, by_n in zip(q_size, n, strict=True)]
    assert by_change(u, ranges, n_by_change=1) == (mixed, weights)


@some
@given(updates(), st.randoms())
def test_the_order_of_users_changes_nothing(u, chance):
    order = list(range(len(u)))
    chance.shuffle(order)
    other = u.take(np.array(order, np.int64))
    assert by_samples(other, [(0, N_ITEMS)]) == by_samples(u, [(0, N_ITEMS)])
    assert by_change(other, [(0, N_ITEMS)]) == by_change(u, [(0, N_ITEMS)])
    for name, found in dense_sums(other.samples, other.dense).items():
        np.testing.assert_array_equal(found, dense_sums(u.samples, u.dense)[name])


@some
@given(updates(most=8), st.integers(0, 8))
def test_sums_can_be_made_in_parts(u, cut):
    """The partial sums of nodes or shards add up to the whole."""
    first = u.take(np.arange(min(cut, len(u))))
    second = u.take(np.arange(min(cut, len(u)), len(u)))
    for sums in (by_samples, by_change):
        whole = [np.array(part) for part in sums(u, [(0, N_ITEMS)])]
        parts = [
            [np.array(part) for part in sums(half, [(0, N_ITEMS)])] for half in (first, second)
        ]
        for total, one, other in zip(whole, *parts, strict=True):
            np.testing.assert_array_equal(total, one + other)


def extreme(n: int, q: int) -> Updates:
    """n users who all send the entry q for one item, with the largest valid sample count."""
    one = np.full((n, 1), q, np.int32)
    samples = np.full(n, MOST_SAMPLES, np.int64)
    return Updates(
        np.arange(n, dtype=np.int32),
        samples,
        np.arange(n + 1),
        np.zeros(n, np.int32),
        one,
        one,
        one.copy(),
    )


@pytest.mark.parametrize("q", [LARGEST, -LARGEST])
def test_the_largest_cohort_cannot_overflow(q):
    """With 2^17 users, n = 2^23 and |q| < 2^23, all sums stay below 2^63 and equal Python's."""
    users = extreme(MOST_USERS, q)
    most = np.iinfo(np.int64).max
    nq = MOST_USERS * MOST_SAMPLES * q
    qq = MOST_USERS * abs(q) * q
    assert abs(nq) <= most
    assert abs(qq) <= most
    assert by_samples(users, [(0, 1)], 1) == ([[nq]], [MOST_USERS * MOST_SAMPLES])
    assert by_change(users, [(0, 1)], 1) == ([[qq]], [[MOST_USERS * abs(q)]])
    assert by_change(users, [(0, 1)], 1, 0) == ([[nq]], [[MOST_USERS * MOST_SAMPLES]])
    sums = dense_sums(users.samples, users.dense)
    assert (sums["dense"].tolist(), sums["samples"].tolist()) == ([nq], [MOST_USERS * MOST_SAMPLES])


def test_the_limits_are_tight():
    """One more user, two more samples or one more unit could overflow."""
    most = np.iinfo(np.int64).max
    assert most < (MOST_USERS + 1) * MOST_SAMPLES * LARGEST
    assert most < MOST_USERS * (MOST_SAMPLES + 2) * LARGEST
    assert most < MOST_USERS * MOST_SAMPLES * TOO_LARGE


def test_a_larger_cohort_is_rejected():
    """The size of the sample is enough: no arrays are allocated."""
    rows = Rows(np.array([0, 1]), np.zeros(1, np.int32))
    world = world_of(TrainingSet(1, 1, rows, rows, None), FederationSettings(), 0)
    with pytest.raises(ConfigError, match=r"131,073 users.*at most 131,072.*participation"):
        check_size(world, np.zeros(MOST_USERS + 1, np.int32))
    check_size(world, np.zeros(MOST_USERS, np.int32))


# Validation.

FINE, UNKNOWN_ITEM, REPEATED_ITEM, OUT_OF_RANGE, NOT_A_NUMBER = range(5)


def check(u: Updates, n_items: int = N_ITEMS) -> list[int]:
    """The faults that the kernel finds, and its fallback in two parts."""
    faults = np.full(len(u), 99, np.int8)
    none = np.empty(0)
    args = [locked(a.copy()) for a in (u.offsets, u.items, u.item_rows, u.user_rows, u.dense)]
    kernels.load("sums").check(*args, n_items, 0, len(u), faults, none, none)
    by_fallback = np.full(len(u), 99, np.int8)
    for first, last in pairwise((0, len(u) // 2, len(u))):
        fallback.check(*args, n_items, first, last, by_fallback, none, none)
    assert by_fallback.tolist() == faults.tolist()
    return faults.tolist()


def slow_check(u: Updates, n_items: int = N_ITEMS) -> list[int]:
    return [_slow_fault(u.take(np.array([k])), n_items) for k in range(len(u))]


def _slow_fault(one: Updates, n_items: int) -> int:
    items = one.items.tolist()
    for place, item in enumerate(items):
        if not 0 <= item < n_items:
            return UNKNOWN_ITEM
        if place and item <= items[place - 1]:
            return REPEATED_ITEM
    values = [
        v for block in (one.item_rows, one.user_rows, one.dense) for v in block.reshape(-1).tolist()
    ]
    if NOT_FINITE in values:
        return NOT_A_NUMBER
    return OUT_OF_RANGE if any(abs(v) >= 8 * 2**20 for v in values) else FINE


@some
@given(updates())
def test_valid_updates_have_no_fault(u):
    assert check(u) == [FINE] * len(u)


odd_values = st.sampled_from(
    [NOT_FINITE, NOT_FINITE + 1, -TOO_LARGE, TOO_LARGE, 2**31 - 1, LARGEST, -LARGEST, 0]
)
odd_items = st.sampled_from([-(2**31), -1, 0, 3, N_ITEMS - 1, N_ITEMS, 2**31 - 1])


@settings(deadline=None, max_examples=100)
@given(updates(), st.data())
def test_faults_equal_a_slow_check(u, data):
    columns = {name: array.copy() for name, array in u.columns().items()}
    for _ in range(data.draw(st.integers(1, 3))):
        name = data.draw(st.sampled_from(["items", "item_rows", "user_rows", "dense"]))
        if columns[name].size:
            place = data.draw(st.integers(0, columns[name].size - 1))
            odd = odd_items if name == "items" else odd_values
            columns[name].reshape(-1)[place] = data.draw(odd)
    damaged = Updates(**columns)
    assert check(damaged) == slow_check(damaged)


def test_every_fault_by_hand():
    u = extreme(1, 5)
    for changes, fault in [
        ({}, FINE),
        ({"items": [1]}, UNKNOWN_ITEM),
        ({"items": [-1]}, UNKNOWN_ITEM),
        ({"item_rows": [[TOO_LARGE]]}, OUT_OF_RANGE),
        ({"user_rows": [[-TOO_LARGE]]}, OUT_OF_RANGE),
        ({"dense": [[NOT_FINITE]]}, NOT_A_NUMBER),
    ]:
        arrays = {k: np.array(v, np.int32) for k, v in changes.items()}
        assert check(replace(u, **arrays), 1) == [fault]


def test_repeated_and_descending_items_are_faults():
    for items in ([3, 3], [4, 3]):
        rows = np.ones((2, 1), np.int32)
        u = Updates(
            np.zeros(1, np.int32),
            np.ones(1, np.int64),
            np.array([0, 2]),
            np.array(items, np.int32),
            rows,
            rows[:1],
            rows[:1],
        )
        assert check(u) == [REPEATED_ITEM]


@some
@given(st.data(), st.sampled_from([1, 3]))
def test_moved_rows_equal_exact_division_for_any_cut(data, weights_a_row):
    numbers = st.integers(-(2**50), 2**50)
    total = np.array(data.draw(st.lists(numbers, min_size=15, max_size=15))).reshape(5, 3)
    n = 5 * weights_a_row
    weight = np.array(data.draw(st.lists(st.integers(0, 2**40), min_size=n, max_size=n)))
    weight = weight.reshape(5, weights_a_row)
    before = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    after = np.empty_like(before)
    cut = data.draw(st.integers(0, 5))
    for low, high in ((0, cut), (cut, 5)):
        kernels.load("sums").move(locked(before), locked(total), locked(weight), low, high, after)
    for i in range(5):
        for f in range(3):
            each = max(int(weight[i, f % weights_a_row]), 1)
            assert after[i, f] == np.float32(float(before[i, f]) + int(total[i, f]) / each / 2**20)
