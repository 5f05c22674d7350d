"""The ALS kernels equal NumPy's solver on the explicit systems."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_twins import als_blocks, als_rows, sums_of_item
from small_data import locked, rows, small_data

from coterie import kernels
from coterie.types import SCALE, TOO_LARGE

NO_EXTRA = np.empty((0, 1))
NO_TARGETS = np.empty(0, np.float32)


def gram(Y: np.ndarray) -> np.ndarray:
    # The kernel must overwrite previous values.
    G = np.full((Y.shape[1], Y.shape[1]), 7.0)
    kernels.load("als").gram(Y, G)
    return G


@pytest.mark.parametrize(("n", "d"), [(1, 1), (3, 5), (40, 4), (200, 17)])
def test_gram_is_y_transposed_y(n, d):
    Y = locked(rows(n, n, d))
    np.testing.assert_allclose(gram(Y), Y.astype(float).T @ Y.astype(float), atol=1e-9)
    assert (gram(Y) == gram(Y).T).all()


@pytest.mark.parametrize("d", [1, 2, 5, 16])
@pytest.mark.parametrize(("alpha", "reg"), [(0.0, 0.1), (5.0, 10.0), (40.0, 0.01)])
def test_rows_equal_numpys_solver(d, alpha, reg):
    data = small_data(d, n_users=12, n_items=20)
    Y = locked(rows(d, 20, d))
    X = np.empty((12, d), np.float32)
    kernels.load("als").solve_rows(
        data.offsets,
        data.items,
        NO_TARGETS,
        Y,
        locked(gram(Y)),
        NO_EXTRA,
        alpha,
        np.full(12, reg),
        0,
        12,
        X,
    )
    np.testing.assert_allclose(X, als_rows(data.histories, Y, alpha, reg), rtol=1e-5, atol=1e-5)
    assert not X[10].any()  # empty history: the ridge solution is zero


@pytest.mark.parametrize("d", [1, 2, 5, 16])
def test_the_extra_right_hand_side_is_added(d):
    """`extra` has a row per user. Zeros and no rows at all give the same bits."""
    data = small_data(d, n_users=12, n_items=20)
    Y = locked(rows(d, 20, d))
    alpha = 3.0
    reg = 0.7
    U = rows(d + 1, 6, d).astype(float)
    weights = np.random.default_rng(d).normal(size=(12, 6))
    extra = locked(2 * weights @ U)
    left = locked(gram(Y) + 2 * U.T @ U)
    X = np.empty((12, d), np.float32)
    ridges = np.full(12, reg)
    kernels.load("als").solve_rows(
        data.offsets, data.items, NO_TARGETS, Y, left, extra, alpha, ridges, 0, 12, X
    )
    for r, history in enumerate(data.histories):
        C = np.ones(20)
        positive = np.zeros(20)
        C[history] = 1 + alpha
        positive[history] = 1
        system = Y.T.astype(float) @ np.diag(C) @ Y + 2 * U.T @ U + reg * np.eye(d)
        wanted = np.linalg.solve(system, Y.T.astype(float) @ (C * positive) + extra[r])
        np.testing.assert_allclose(X[r], wanted, rtol=1e-5, atol=1e-5)
    assert np.abs(X[10]).max() > 0.01  # empty history, but `extra` counts
    with_zeros, with_none = np.empty((2, 12, d), np.float32)
    for right, out in ((np.zeros((12, d)), with_zeros), (NO_EXTRA, with_none)):
        kernels.load("als").solve_rows(
            data.offsets, data.items, NO_TARGETS, Y, gram(Y), right, alpha, ridges, 0, 12, out
        )
    assert with_zeros.tobytes() == with_none.tobytes()


def test_a_range_of_rows_leaves_the_others_alone():
    data = small_data(1, n_users=12, n_items=20)
    Y = rows(1, 20, 3)
    X = np.full((12, 3), np.nan, np.float32)
    kernels.load("als").solve_rows(
        data.offsets, data.items, NO_TARGETS, Y, gram(Y), NO_EXTRA, 1.0, np.ones(12), 4, 7, X
    )
    assert np.isnan(X[:4]).all()
    assert np.isnan(X[7:]).all()
    np.testing.assert_allclose(
        X[4:7], als_rows(data.histories[4:7], Y, 1.0, 1.0), rtol=1e-5, atol=1e-5
    )


def test_a_singular_system_gives_nan_and_does_not_crash():
    """Non-finite values are reported as diverged training when they are scored."""
    data = small_data(2, n_users=5, n_items=6)
    Y = np.zeros((6, 3), np.float32)
    X = np.empty((5, 3), np.float32)
    kernels.load("als").solve_rows(
        data.offsets, data.items, NO_TARGETS, Y, gram(Y), NO_EXTRA, 1.0, np.zeros(5), 0, 5, X
    )
    assert not np.isfinite(X).any()


# Widths that fill tiles and lanes, and widths that do not.

WIDTHS = (1, 5, 8, 17, 64)


@pytest.mark.parametrize("d", WIDTHS)
@pytest.mark.parametrize("n", [1, 63, 64, 65, 200])
def test_gram_is_exact_for_small_integers(n, d):
    """Rows fill a chunk, or not: no product is lost or counted twice."""
    Y = np.random.default_rng([n, d]).integers(-9, 10, (n, d))
    assert (gram(Y.astype(np.float32)) == Y.T @ Y).all()


@pytest.mark.parametrize("d", WIDTHS)
def test_rows_have_their_own_targets_and_ridges(d):
    """Ratings in place of 1 + alpha; histories beyond a chunk, and one without items."""
    data = small_data(d, n_users=9, n_items=150)
    Y = locked(rows(d, 150, d))
    rng = np.random.default_rng(d)
    targets = locked(rng.normal(0, 2, len(data.items)).astype(np.float32))
    ridges = locked(rng.uniform(0.1, 3, 9))
    system = locked(np.diag(rng.uniform(0.1, 1, d)))
    X = np.empty((9, d), np.float32)
    kernels.load("als").solve_rows(
        data.offsets, data.items, targets, Y, system, NO_EXTRA, 0.5, ridges, 0, 9, X
    )
    for r, history in enumerate(data.histories):
        own = Y[history].astype(float)
        t = targets[data.offsets[r] : data.offsets[r + 1]].astype(float)
        wanted = np.linalg.solve(system + ridges[r] * np.eye(d) + 0.5 * own.T @ own, own.T @ t)
        np.testing.assert_allclose(X[r], wanted, rtol=1e-5, atol=1e-5)
    assert not X[7].any()
    assert len(data.histories[8]) == 150


@pytest.mark.parametrize("d", WIDTHS)
@pytest.mark.parametrize("size", [1, 2, 8, 13, 70])
def test_blocks_equal_the_twin(d, size):
    """Sizes that do not divide d, and one beyond it; a history beyond a chunk, and none."""
    data = small_data(d, n_users=7, n_items=90)
    Y = locked(rows(d, 90, d))
    X = rows(d + 1, 7, d)
    ridges = locked(np.random.default_rng(d).uniform(0.5, 3, 7))
    wanted = als_blocks(X, data.histories, Y, 4.0, ridges, size)
    kernels.load("als").improve_rows(
        data.offsets, data.items, Y, locked(gram(Y)), 4.0, ridges, size, 0, 7, X
    )
    np.testing.assert_allclose(X, wanted, rtol=1e-4, atol=2e-5)


def test_a_block_of_all_coordinates_is_the_whole_solution():
    data = small_data(5, n_users=9, n_items=40)
    Y = rows(5, 40, 6)
    X = rows(6, 9, 6, scale=3.0)
    kernels.load("als").improve_rows(
        data.offsets, data.items, Y, gram(Y), 3.0, np.full(9, 0.7), 6, 0, 9, X
    )
    np.testing.assert_allclose(X, als_rows(data.histories, Y, 3.0, 0.7), rtol=1e-4, atol=1e-5)


def test_blocks_of_a_range_leave_other_rows_alone():
    data = small_data(1, n_users=12, n_items=20)
    Y = rows(1, 20, 5)
    X = rows(2, 12, 5)
    before = X.copy()
    kernels.load("als").improve_rows(
        data.offsets, data.items, Y, gram(Y), 1.0, np.ones(12), 2, 4, 7, X
    )
    changed = (before != X).any(axis=1)
    assert changed.tolist() == [4 <= r < 7 for r in range(12)]


# Sums in fixed point.

LARGEST = TOO_LARGE - 1


def sum_by_item(
    by_item: list[list[int]],
    X: np.ndarray,
    Y: np.ndarray,
    share: float,
    begin: int,
    end: int,
    ratings: list[list[int]] | None = None,
    biases: np.ndarray | None = None,
    cut: int = 0,
) -> np.ndarray:
    """The sums of all items, as two ranges."""
    n = len(by_item)
    k = end - begin
    rated = ratings is not None
    # The kernel must overwrite previous values.
    total = np.full((n, k * (k + 1) // 2 + k + 1 + rated), 99, np.int64)
    flat = np.array([u for users in by_item for u in users], np.int32)
    scores = np.array([r for given in ratings or [] for r in given], np.int32)
    for low, high in ((0, cut), (cut, n)):
        kernels.load("als_sums").sum_by_item(
            locked(np.cumsum([0, *map(len, by_item)]).astype(np.int64)),
            locked(flat),
            locked(scores),
            np.empty(0) if biases is None else locked(biases),
            locked(X),
            locked(Y),
            share,
            begin,
            end,
            low,
            high,
            total,
        )
    return total


@pytest.mark.parametrize("k", [1, 5, 8, 17])
@pytest.mark.parametrize("n", [127, 128, 129, 256, 257, 400])
def test_sums_of_the_largest_vectors_are_exact(n, k):
    """All products are (2^23 - 1)^2: more than 128 of them leave the exact range of doubles."""
    X = np.full((n, k), LARGEST, np.int32)
    X[:, 1::2] *= -1
    found = sum_by_item([list(range(n)), []], X, np.zeros((2, k), np.float32), 0.5, 0, k)
    outer, right, count = np.split(found[0], [k * (k + 1) // 2, -1])
    signs = np.where(np.arange(k) % 2, -1, 1)
    c, a = np.triu_indices(k)
    assert outer.tolist() == [n * LARGEST**2 * int(s) for s in signs[c] * signs[a]]
    assert right.tolist() == [n * SCALE * LARGEST * int(s) for s in signs]
    assert count.tolist() == [n]
    assert not found[1].any()
    total = np.zeros(k * (k + 1) // 2, np.int64)
    kernels.load("als_sums").sum_over_users(X, 0, n, total)
    assert total.tolist() == outer.tolist()


@pytest.mark.parametrize("n", [129, 300])
def test_sums_of_the_largest_ratings_are_exact(n):
    """e is as large as it may be, and so is x."""
    X = np.full((n, 2), LARGEST, np.int32)
    ratings = [[LARGEST] * n]
    found = sum_by_item([list(range(n))], X, np.zeros((1, 2), np.float32), 1.0, 0, 2, ratings)
    square = n * LARGEST**2
    assert found[0].tolist() == [square, square, square, square, square, n, n * LARGEST]


def test_targets_out_of_range_are_cut_off():
    """x . y is 7 (2^23 - 1): the rest of the target would leave fixed point."""
    X = np.array([[LARGEST, 3], [-LARGEST, 3]], np.int32)
    Y = np.array([[7, 0]], np.float32)
    found = sum_by_item([[0], [1]], X, np.repeat(Y, 2, axis=0), 1.0, 1, 2)
    assert found.tolist() == [[9, -3 * LARGEST, 1], [9, 3 * LARGEST, 1]]


def test_as_many_users_as_a_round_may_have_do_not_overflow():
    n = 1 << 17
    X = np.full((n, 2), LARGEST, np.int32)
    total = np.zeros(3, np.int64)
    kernels.load("als_sums").sum_over_users(X, 0, n, total)
    assert total.tolist() == [n * LARGEST**2] * 3


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_sums_by_item_equal_python_integers(data):
    """Any block of any width, ratings or none, items without users, items in two ranges.

    Y, biases and the share have few bits, so that e is exact in doubles.
    """
    d = data.draw(st.sampled_from([1, 2, 5, 8, 17]))
    begin = data.draw(st.integers(0, d - 1))
    end = data.draw(st.integers(begin + 1, d))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    largest = data.draw(st.sampled_from([3, SCALE, LARGEST]))
    share = data.draw(st.sampled_from([0.0, 0.5, 0.75, 1.0]))
    n_users = data.draw(st.integers(1, 300))
    X = rng.integers(-largest, largest + 1, (n_users, d)).astype(np.int32)
    n_items = data.draw(st.integers(1, 4))
    by_item = [
        rng.permutation(n_users)[: rng.integers(0, n_users + 1)].tolist() for _ in range(n_items)
    ]
    Y = (rng.integers(-16, 17, (n_items, d)) / 16).astype(np.float32)
    rated = any(by_item) and data.draw(st.booleans())
    ratings = [rng.integers(0, LARGEST, len(users)).tolist() for users in by_item]
    biases = rng.integers(0, 1 << 20, n_items) / 4
    found = sum_by_item(
        by_item,
        X,
        Y,
        share,
        begin,
        end,
        ratings if rated else None,
        biases if rated else None,
        data.draw(st.integers(0, n_items)),
    )
    for i, users in enumerate(by_item):
        wanted = sums_of_item(
            X[users],
            ratings[i] if rated else None,
            biases[i],
            Y[i],
            share,
            begin,
            end,
            SCALE,
            TOO_LARGE,
        )
        # No rating at all: the twin leaves out their sum.
        assert found[i].tolist() == wanted + [0] * (rated and not users)


@given(st.integers(1, 20), st.integers(0, 400), st.integers(0, 2**32), st.integers(0, 400))
@settings(deadline=None, max_examples=40)
def test_sums_over_users_equal_integers_and_are_added(d, n, seed, cut):
    rng = np.random.default_rng(seed)
    X = locked(rng.integers(-LARGEST, LARGEST + 1, (n, d)).astype(np.int32))
    before = rng.integers(-5, 5, d * (d + 1) // 2)
    total = before.copy()
    cut = min(cut, n)
    kernels.load("als_sums").sum_over_users(X, 0, cut, total)
    kernels.load("als_sums").sum_over_users(X, cut, n, total)
    wide = X.astype(np.int64)
    np.testing.assert_array_equal(total - before, (wide.T @ wide)[np.triu_indices(d)])


@pytest.mark.parametrize(
    ("d", "begin", "end"),
    [(1, 0, 1), (5, 0, 5), (5, 2, 4), (8, 0, 8), (17, 0, 17), (17, 8, 17), (64, 0, 64), (64, 3, 5)],
)
@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_rows_from_sums_equal_numpys_solver(d, begin, end, exponent):
    """y_B of every item from its sums; other coordinates stay. The last item has no users."""
    rng = np.random.default_rng([d, begin, end])
    k = end - begin
    B = np.arange(begin, end)
    others = np.setdiff1d(np.arange(d), B)
    upper = np.triu_indices(k)
    X = rng.normal(0, 0.5, (30, d))
    G = X.T @ X
    n = 6
    sums = np.zeros((n, k * (k + 1) // 2 + k + 1))
    for i in range(n - 1):
        own = X[rng.permutation(30)[: 3 + i]][:, B]
        sums[i] = [*(own.T @ own)[upper], *own.sum(axis=0), len(own)]
    before = rows(d, n, d)
    after = np.full((n, d), np.nan, np.float32)
    for low, high in ((0, 2), (2, n)):
        kernels.load("als_sums").solve_sums(
            locked(sums),
            locked(before),
            locked(G),
            3.0,
            4.0,
            0.7,
            2.5,
            1.5,
            exponent,
            begin,
            end,
            low,
            high,
            after,
        )
    for i in range(n):
        S = np.zeros((k, k))
        S[upper] = sums[i, : len(upper[0])]
        S += np.triu(S, 1).T
        ridge = 0.7 * (1.5 * sums[i, -1] + 2.5) ** exponent
        right = 4.0 * sums[i, len(upper[0]) : -1] - G[np.ix_(B, others)] @ before[i, others]
        wanted = np.linalg.solve(G[np.ix_(B, B)] + 3.0 * S + ridge * np.eye(k), right)
        np.testing.assert_allclose(after[i, B], wanted, rtol=1e-5, atol=1e-5)
    assert (after[:, others] == before[:, others]).all()
