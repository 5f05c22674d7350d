"""ALS's kernels equal NumPy's solver on the written-out systems."""

from __future__ import annotations

import numpy as np
import pytest
from made_up import crowd, locked, rows
from slow_twins import als_rows

from coterie import kernels

NONE = np.empty((0, 1))
"""Nothing extra."""


def gram(Y: np.ndarray) -> np.ndarray:
    G = np.full((Y.shape[1], Y.shape[1]), 7.0)  # what was there before must not show
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
    people = crowd(d, n_users=12, n_items=20)
    Y = locked(rows(d, 20, d))
    X = np.empty((12, d), np.float32)
    kernels.load("als").solve_rows(
        people.offsets, people.items, Y, locked(gram(Y)), NONE, alpha, reg, 0, 12, X
    )
    np.testing.assert_allclose(X, als_rows(people.histories, Y, alpha, reg), rtol=1e-5, atol=1e-5)
    assert not X[10].any()  # did nothing: zero is the ridge solution


@pytest.mark.parametrize("d", [1, 2, 5, 16])
def test_what_is_extra_on_the_right_is_added(d):
    """A row for each; the left side comes with what belongs to it. Zeros are as good as no rows, to the last bit."""
    people = crowd(d, n_users=12, n_items=20)
    Y = locked(rows(d, 20, d))
    alpha = 3.0
    reg = 0.7
    U = rows(d + 1, 6, d).astype(float)
    weights = np.random.default_rng(d).normal(size=(12, 6))
    extra = locked(2 * weights @ U)
    left = locked(gram(Y) + 2 * U.T @ U)
    X = np.empty((12, d), np.float32)
    kernels.load("als").solve_rows(
        people.offsets, people.items, Y, left, extra, alpha, reg, 0, 12, X
    )
    for r, history in enumerate(people.histories):
        C = np.ones(20)
        did = np.zeros(20)
        C[history] = 1 + alpha
        did[history] = 1
        system = Y.T.astype(float) @ np.diag(C) @ Y + 2 * U.T @ U + reg * np.eye(d)
        wanted = np.linalg.solve(system, Y.T.astype(float) @ (C * did) + extra[r])
        np.testing.assert_allclose(X[r], wanted, rtol=1e-5, atol=1e-5)
    assert np.abs(X[10]).max() > 0.01  # did nothing, and is known all the same
    with_zeros, with_none = np.empty((2, 12, d), np.float32)
    for right, out in ((np.zeros((12, d)), with_zeros), (NONE, with_none)):
        kernels.load("als").solve_rows(
            people.offsets, people.items, Y, gram(Y), right, alpha, reg, 0, 12, out
        )
    assert with_zeros.tobytes() == with_none.tobytes()


def test_a_range_of_rows_leaves_the_others_alone():
    people = crowd(1, n_users=12, n_items=20)
    Y = rows(1, 20, 3)
    X = np.full((12, 3), np.nan, np.float32)
    kernels.load("als").solve_rows(
        people.offsets, people.items, Y, gram(Y), NONE, 1.0, 1.0, 4, 7, X
    )
    assert np.isnan(X[:4]).all()
    assert np.isnan(X[7:]).all()
    np.testing.assert_allclose(
        X[4:7], als_rows(people.histories[4:7], Y, 1.0, 1.0), rtol=1e-5, atol=1e-5
    )


def test_a_singular_system_gives_no_number_rather_than_a_crash():
    """What is not finite is reported as diverged training when it is scored; a kernel does not raise."""
    people = crowd(2, n_users=5, n_items=6)
    Y = np.zeros((6, 3), np.float32)
    X = np.empty((5, 3), np.float32)
    kernels.load("als").solve_rows(
        people.offsets, people.items, Y, gram(Y), NONE, 1.0, 0.0, 0, 5, X
    )
    assert not np.isfinite(X).any()
