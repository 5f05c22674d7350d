"""User-kNN and Item-kNN: by hand, against exact fractions, and for any division of the work."""

from __future__ import annotations

import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from coterie.baselines import neighbours
from coterie.baselines.neighbours import BY_ITEMS, BY_USERS, Neighbours
from coterie.core.progress import SILENT
from coterie.data.training_set import TrainingSet
from coterie.experiments.training import fit
from coterie.federated.trainer import Context
from coterie.models.neighbours import ItemNeighbours, UserNeighbours
from coterie.types import Rows

HALF = 0.5
ROOT = 1 / np.sqrt(2)
FAR = 1 / np.sqrt(6)
NEAR = 2 / np.sqrt(6)


def training_on(X: np.ndarray) -> TrainingSet:
    users, items = np.nonzero(X)
    rows = Rows.build(users.astype(np.int32), items.astype(np.int32), len(X))
    return TrainingSet(*X.shape, rows, rows, None)


def by_users(X: np.ndarray, k: int, shrink: float = 0.0) -> UserNeighbours:
    model = fit(
        BY_USERS, training_on(X), Neighbours(neighbours=k, shrink=shrink), Context(0, SILENT)
    )
    assert isinstance(model, UserNeighbours)
    return model


def by_items(X: np.ndarray, k: int, shrink: float = 0.0) -> ItemNeighbours:
    model = fit(
        BY_ITEMS, training_on(X), Neighbours(neighbours=k, shrink=shrink), Context(0, SILENT)
    )
    assert isinstance(model, ItemNeighbours)
    return model


def scores(model: UserNeighbours | ItemNeighbours) -> np.ndarray:
    return model.score(np.arange(len(model.history_offsets) - 1, dtype=np.int32))


def random_matrix(seed: int, n_users: int, n_items: int, density: float = 0.3) -> np.ndarray:
    return (np.random.default_rng(seed).random((n_users, n_items)) < density).astype(int)


# By hand.

FIVE = np.array(
    [
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [0, 0, 1, 1, 0],
        [0, 0, 0, 0, 1],  # shares no item with any user
        [0, 0, 0, 0, 0],  # has no item
    ]
)


@pytest.mark.parametrize(
    ("k", "second"),
    [(1, [NEAR, NEAR, 0, 0, 0]), (2, [NEAR, NEAR, FAR, FAR, 0]), (9, [NEAR, NEAR, FAR, FAR, 0])],
)
def test_users_get_the_items_of_their_neighbours(k, second):
    """cos(0, 1) = 2 / sqrt(2 * 3), cos(1, 2) = 1 / sqrt(3 * 2), all others 0."""
    expected = [[NEAR, NEAR, NEAR, 0, 0], second, [FAR, FAR, FAR, 0, 0], [0] * 5, [0] * 5]
    np.testing.assert_allclose(scores(by_users(FIVE, k)), expected, rtol=1e-6)


def test_items_are_scored_by_their_neighbours():
    """cos(0, 1) = 1, cos(0, 2) = cos(1, 2) = 1/2, cos(2, 3) = 1 / sqrt(2).

    The neighbours of item 2 are 3, then 0, the lower of two that tie.
    """
    np.testing.assert_allclose(scores(by_items(FIVE, 1))[0], [1, 1, 0, 0, 0], rtol=1e-6)
    two = scores(by_items(FIVE, 2))
    np.testing.assert_allclose(two[0], [1, 1, HALF, 0, 0], rtol=1e-6)
    np.testing.assert_allclose(two[2], [HALF, HALF, ROOT, ROOT, 0], rtol=1e-6)
    np.testing.assert_allclose(scores(by_items(FIVE, 3))[0], [1, 1, 1, 0, 0], rtol=1e-6)
    assert not two[3:].any()


def test_shrinking_counts_common_members():
    """With shrink 2, the factor is 1/2 for two common items and 1/3 for one."""
    got = scores(by_users(FIVE, 2, shrink=2.0))
    np.testing.assert_allclose(got[1], [NEAR / 2, NEAR / 2, FAR / 3, FAR / 3, 0], rtol=1e-6)


def test_users_without_neighbours_are_not_served():
    users = np.array([4, 0, 3, 2, 1], np.int32)
    for model in (by_users(FIVE, 5), by_items(FIVE, 5)):
        assert model.serves(users).tolist() == [False, True, False, True, True]


# Against exact fractions.


def squared_cosines(X: np.ndarray) -> list[list[Fraction]]:
    """Of all pairs of rows; zero on the diagonal."""
    sets = [set(np.flatnonzero(row).tolist()) for row in X]
    return [
        [
            Fraction(len(a & b) ** 2, max(len(a) * len(b), 1)) if n != m else Fraction(0)
            for m, b in enumerate(sets)
        ]
        for n, a in enumerate(sets)
    ]


def neighbours_of(squared: list[Fraction], k: int) -> list[int]:
    ranked = sorted(range(len(squared)), key=lambda other: (-squared[other], other))
    return [other for other in ranked[:k] if squared[other] > 0]


def slow_by_users(X: np.ndarray, k: int) -> np.ndarray:
    squared = squared_cosines(X)
    found = np.zeros(X.shape)
    for u, row in enumerate(squared):
        for v in neighbours_of(row, k):
            found[u] += float(row[v]) ** 0.5 * X[v]
    return found


def slow_by_items(X: np.ndarray, k: int) -> np.ndarray:
    squared = squared_cosines(X.T)
    found = np.zeros(X.shape)
    for i, row in enumerate(squared):
        for j in neighbours_of(row, k):
            found[:, i] += float(row[j]) ** 0.5 * X[:, j]
    return found


matrices = st.tuples(st.integers(1, 12), st.integers(1, 12)).flatmap(
    lambda shape: arrays(np.int8, shape, elements=st.integers(0, 1))
)


@settings(deadline=None, max_examples=150)
@given(matrices, st.integers(1, 13))
def test_both_equal_the_definition(X, k):
    np.testing.assert_allclose(scores(by_users(X, k)), slow_by_users(X, k), rtol=1e-5)
    np.testing.assert_allclose(scores(by_items(X, k)), slow_by_items(X, k), rtol=1e-5)


@settings(deadline=None, max_examples=60)
@given(matrices, st.integers(1, 6), st.floats(0.1, 50))
def test_shrunken_neighbours_are_the_most_similar(X, k, shrink):
    model = by_users(X, k, shrink)
    common = X.astype(int) @ X.T.astype(int)
    sizes = np.diag(common)
    for u in range(len(X)):
        c = np.delete(common[u], u)
        cosines = c / np.sqrt(np.maximum(sizes[u] * np.delete(sizes, u), 1)) * c / (c + shrink)
        stored = model.similarities[model.offsets[u] : model.offsets[u + 1]]
        np.testing.assert_allclose(np.sort(stored), np.sort(cosines[cosines > 0])[-k:], rtol=1e-5)


# Ties.


def test_ties_go_to_the_lower_index():
    model = by_users(np.ones((8, 3), int), 3)
    table = Rows(model.offsets, model.neighbours)
    assert [table.of(u).tolist() for u in range(8)] == [
        [1, 2, 3],
        [0, 2, 3],
        [0, 1, 3],
        *([0, 1, 2] for _ in range(5)),
    ]


def test_mathematical_ties_are_ties_in_bits():
    """1 / sqrt(8 * 1) = 3 / sqrt(8 * 9), but in floating point the latter is larger."""
    assert 3 / np.sqrt(8 * 9) > 1 / np.sqrt(8 * 1)
    X = np.zeros((3, 14), int)
    X[0, :8] = 1
    X[1, 0] = 1
    X[2, 5:14] = 1
    assert by_users(X, 1).neighbours.tolist()[:1] == [1]


# Division of the work.


@pytest.mark.parametrize("overlaps", [1, 50, 400])
def test_the_size_of_blocks_does_not_matter(overlaps, monkeypatch):
    X = random_matrix(1, 60, 45)
    X[[7, 8, 59]] = 0
    whole = [make(X, 5, 1.0).arrays() for make in (by_users, by_items)]
    monkeypatch.setattr(neighbours, "OVERLAPS", overlaps)
    for before, make in zip(whole, (by_users, by_items), strict=True):
        for name, array in make(X, 5, 1.0).arrays().items():
            np.testing.assert_array_equal(array, before[name])


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, 1 << 18), min_size=1, max_size=30), st.data())
def test_blocks_cover_every_row_once_and_stay_small(work, data):
    load = np.concatenate([[0], np.cumsum(work)]).astype(np.int64)
    first = data.draw(st.integers(0, len(work)))
    last = data.draw(st.integers(first, len(work)))
    found = neighbours.blocks(load, first, last)
    assert [row for begin, end in found for row in range(begin, end)] == list(range(first, last))
    assert all(
        load[end] - load[begin] <= neighbours.OVERLAPS or end == begin + 1 for begin, end in found
    )


def test_memory_follows_the_non_zeros():
    """A table of 6,000 by 6,000 cosines would take 288 MB."""
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(6_000, dtype=np.int32), 6)
    items = rng.integers(0, 6_000, 36_000).astype(np.int32)
    pairs = np.unique(np.stack([users, items]), axis=1)
    rows = Rows.build(pairs[0], pairs[1], 6_000)
    tracemalloc.start()
    for chosen in (BY_USERS, BY_ITEMS):
        fit(chosen, TrainingSet(6_000, 6_000, rows, rows, None), Neighbours(), Context(0, SILENT))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 * 2**20


# New users.


@pytest.mark.parametrize("shrink", [0.0, 3.0])
def test_a_new_user_is_scored_as_if_in_training(shrink):
    """Their neighbours among the other users are the same in both cases."""
    X = random_matrix(2, 30, 20)
    for history in ([0, 3, 4, 11], [7], []):
        extended = np.vstack([X, np.isin(np.arange(20), history).astype(int)])
        expected = by_users(extended, 6, shrink).score(np.array([30], np.int32))[0]
        got = by_users(X, 6, shrink).score_new_user(np.array(history, np.int32))
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_item_neighbours_of_a_new_user_are_those_of_any_user():
    X = random_matrix(3, 30, 20)
    model = by_items(X, 4)
    for user in (0, 13, 29):
        got = model.score_new_user(np.flatnonzero(X[user]).astype(np.int32))
        np.testing.assert_allclose(got, model.score(np.array([user], np.int32))[0], rtol=1e-6)
    assert not model.score_new_user(np.empty(0, np.int32)).any()
