"""The GMF kernels equal their slow twins, for implicit feedback and for ratings."""

from __future__ import annotations

import numpy as np
import pytest
from slow_twins import gmf_explicit, gmf_implicit
from small_data import SmallData, locked, rows, small_data

from coterie import kernels

KEY = 77


def parameters(seed: int, d: int, n_users: int = 9, n_items: int = 14) -> tuple[np.ndarray, ...]:
    output = np.random.default_rng(seed).normal(1, 0.3, d).astype(np.float32)
    return rows(seed, n_users, d), rows(seed, n_items, d), output, np.array([0.2], np.float32)


def shuffled(data: SmallData, seed: int) -> np.ndarray:
    return locked(np.random.default_rng(seed).permutation(len(data.items)))


def train_implicit(data: SmallData, order, before, negatives=3, rate=0.05, reg=0.02):
    after = tuple(a.copy() for a in before)
    kernels.load("gmf").train_implicit(
        order,
        data.users,
        data.items,
        data.offsets,
        data.items,
        *after,
        negatives,
        rate,
        reg,
        np.uint64(KEY),
    )
    return after


@pytest.mark.parametrize("d", [1, 2, 4, 5, 8])
@pytest.mark.parametrize("negatives", [1, 4])
def test_implicit_feedback_equals_the_slow_twin(d, negatives):
    data = small_data(d, n_users=30)
    assert len(data.items) > 128  # more than one batch of draws
    before = parameters(d, d, n_users=30)
    order = shuffled(data, d)
    expected = gmf_implicit(
        order.tolist(), data.pairs, data.seen, *before, negatives, 0.05, 0.02, KEY
    )
    for found, wanted in zip(train_implicit(data, order, before, negatives), expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("d", [1, 3, 4, 9])
def test_ratings_equal_the_slow_twin(d):
    data = small_data(d, n_users=20)
    before = parameters(d, d, n_users=20)
    order = shuffled(data, d)
    ratings = locked(np.random.default_rng(d).uniform(1, 5, len(data.items)).astype(np.float32))
    expected = gmf_explicit(order.tolist(), data.pairs, ratings.tolist(), *before, 0.03, 0.02)
    found = tuple(a.copy() for a in before)
    kernels.load("gmf").train_explicit(order, data.users, data.items, ratings, *found, 0.03, 0.02)
    for one, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, wanted, atol=1e-5)


def test_users_with_every_item_train_on_positives_only():
    data = SmallData.of([list(range(6))] * 3, 6)
    before = parameters(1, 4, 3, 6)
    order = shuffled(data, 1)
    expected = gmf_implicit(order.tolist(), data.pairs, data.seen, *before, 0, 0.05, 0.02, KEY)
    for found, wanted in zip(
        train_implicit(data, order, before, negatives=5), expected, strict=True
    ):
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_only_the_listed_interactions_are_visited():
    data = small_data(2)
    before = parameters(2, 4)
    order = locked(np.flatnonzero(data.users == 0).astype(np.int64))
    user_rows, *_ = train_implicit(data, order, before)
    assert (user_rows[0] != before[0][0]).all()
    np.testing.assert_array_equal(user_rows[1:], before[0][1:])


def test_an_empty_order_changes_nothing():
    data = small_data(3)
    before = parameters(3, 4)
    for found, wanted in zip(
        train_implicit(data, np.zeros(0, np.int64), before), before, strict=True
    ):
        np.testing.assert_array_equal(found, wanted)
