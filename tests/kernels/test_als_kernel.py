"""The ALS kernels equal NumPy's solver on the explicit systems."""

from __future__ import annotations

import numpy as np
import pytest
from slow_twins import als_rows
from small_data import locked, rows, small_data

from coterie import kernels

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
