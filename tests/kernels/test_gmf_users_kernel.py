"""GMF for a cohort equals training one client after the other in Python; fixed point by hand."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_twins import gmf_score, gmf_step, sigmoid
from small_data import locked, rows

from coterie import kernels
from coterie.kernels.quantise import quantise
from coterie.types import NOT_FINITE, SCALE, TOO_LARGE

N_ITEMS = 11


class Cohort:
    """The rows and samples of some users; user 1 has no samples, user 3 also has no rows."""

    def __init__(self, seed: int, d: int, rated: bool, n: int = 6) -> None:
        rng = np.random.default_rng(seed)
        touched = [np.sort(rng.permutation(N_ITEMS)[: rng.integers(1, N_ITEMS)]) for _ in range(n)]
        touched[3] = touched[3][:0]
        counts = rng.integers(5, 40, n) * (np.arange(n) != 1) * (np.arange(n) != 3)
        self.rated = rated
        self.offsets = locked(np.cumsum([0, *map(len, touched)]).astype(np.int64))
        self.items = locked(np.concatenate(touched).astype(np.int32))
        self.starts = locked(np.cumsum([0, *counts]).astype(np.int64))
        drawn = [rng.integers(0, max(len(t), 1), c) for t, c in zip(touched, counts, strict=True)]
        self.places = locked(np.concatenate(drawn).astype(np.int32))
        targets = (
            rng.integers(1, 6, len(self.places)) if rated else rng.integers(0, 2, len(self.places))
        )
        self.targets = locked(targets.astype(np.float32))
        self.user_rows = locked(rows(seed, n, d))
        self.item_rows = locked(rows(seed + 1, N_ITEMS, d))
        self.dense = locked(np.append(rng.normal(1, 0.3, d), 0.2).astype(np.float32))

    def train(
        self, cuts: list[int], rate: float = 0.05, reg: float = 0.02
    ) -> tuple[np.ndarray, ...]:
        n, d = self.user_rows.shape
        shapes = (n, d), (len(self.items), d), (n, d + 1)
        changes = tuple(np.full(shape, 123_456_789, np.int32) for shape in shapes)
        for first, last in pairwise(cuts):
            kernels.load("gmf_users").train(
                self.offsets,
                self.items,
                self.starts,
                self.places,
                self.targets,
                self.user_rows,
                self.item_rows,
                self.dense,
                self.rated,
                rate,
                reg,
                first,
                last,
                *changes,
            )
        return changes

    def slow(self, rate: float = 0.05, reg: float = 0.02) -> tuple[np.ndarray, ...]:
        """Train every user on a copy of all parameters, in double precision."""
        n, d = self.user_rows.shape
        users = np.zeros((n, d))
        items = np.zeros((len(self.items), d))
        dense = np.zeros((n, d + 1))
        for k in range(n):
            P = self.user_rows.astype(float)
            Q = self.item_rows.astype(float)
            h = self.dense[:d].astype(float)
            b = self.dense[d:].astype(float)
            own = self.items[self.offsets[k] : self.offsets[k + 1]]
            for s in range(self.starts[k], self.starts[k + 1]):
                i = own[self.places[s]]
                y = gmf_score(P, Q, h, b, k, i)
                gradient = (y if self.rated else sigmoid(y)) - self.targets[s]
                gmf_step(P, Q, h, b, k, i, gradient, rate, reg)
            users[k] = P[k] - self.user_rows[k]
            items[self.offsets[k] : self.offsets[k + 1]] = Q[own] - self.item_rows[own]
            dense[k] = np.append(h, b) - self.dense
        return users, items, dense


@pytest.mark.parametrize("d", [1, 2, 5, 8, 10, 17])
@pytest.mark.parametrize("rated", [False, True], ids=["choices", "ratings"])
def test_equals_the_slow_twin(d, rated):
    cohort = Cohort(d, d, rated)
    rate = 0.01 if rated else 0.05
    for found, expected in zip(cohort.train([0, 6], rate), cohort.slow(rate), strict=True):
        assert np.abs(expected).max() > 1e-3
        np.testing.assert_allclose(found / SCALE, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("cuts", [[0, 1, 2, 3, 4, 5, 6], [0, 3, 6], [0, 5, 5, 6]])
def test_the_ranges_of_users_do_not_matter(cuts):
    cohort = Cohort(3, 7, False)
    for found, expected in zip(cohort.train(cuts), cohort.train([0, 6]), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("d", [3, 8, 10])
@pytest.mark.parametrize("rate", [0.05, 30.0], ids=["fine", "some diverge"])
def test_users_are_not_touched_by_those_who_trained_in_their_place_before(d, rate):
    cohort = Cohort(d, d, True, n=23)
    together = cohort.train([0, 23], rate)
    for found, expected in zip(together, cohort.train(list(range(24)), rate), strict=True):
        np.testing.assert_array_equal(found, expected)
    diverged = (abs(together[0].astype(np.int64)) >= TOO_LARGE).any(axis=1)
    assert diverged.any() == (rate > 1)
    assert not diverged.all()


def test_a_user_without_samples_changes_nothing():
    cohort = Cohort(4, 5, False)
    users, items, dense = cohort.train([0, 6])
    for k in (1, 3):
        assert not users[k].any()
        assert not dense[k].any()
        assert not items[cohort.offsets[k] : cohort.offsets[k + 1]].any()
    assert users[[0, 2, 4, 5]].any(axis=1).all()


def test_diverging_training_is_marked():
    """An overflow is NaN or out of range; the server rejects both."""
    users, *_ = Cohort(5, 4, True).train([0, 6], rate=100.0)
    for k in (0, 2, 4, 5):
        assert (abs(users[k].astype(np.int64)) >= TOO_LARGE).all()
    assert NOT_FINITE in users


# Fixed point.


def exact(x: float) -> int:
    """The same in Python: the product with 2^20 is exact, and round() rounds half to even."""
    if not math.isfinite(x * SCALE) or not math.isfinite(float(np.float32(x) * np.float32(SCALE))):
        return NOT_FINITE
    q = round(x * SCALE)
    return q if abs(q) < TOO_LARGE else TOO_LARGE


@settings(deadline=None, max_examples=150)
@given(
    st.floats(-9, 9, width=32)
    | st.floats(-(2.0**-16), 2.0**-16, width=32)
    | st.floats(-(2.0**107), 2.0**107, width=32)
)
def test_quantising_rounds_to_the_nearest_unit(x):
    assert quantise(np.float32(x)) == exact(x)


@pytest.mark.parametrize(
    ("delta", "q"),
    [
        (0.0, 0),
        (-0.0, 0),
        (0.5 / SCALE, 0),  # half to even
        (1.5 / SCALE, 2),
        (2.5 / SCALE, 2),
        (-1.5 / SCALE, -2),
        (1.0, 1 << 20),
        (-7.9375, -8_323_072),
        (7.999999046325684, 8_388_607),  # the largest valid value
        (8.0, TOO_LARGE),
        (-8.0, TOO_LARGE),
        (3e38, NOT_FINITE),  # the product with SCALE is infinite
        (math.inf, NOT_FINITE),
        (-math.inf, NOT_FINITE),
        (math.nan, NOT_FINITE),
    ],
)
def test_quantising_by_hand(delta, q):
    assert quantise(np.float32(delta)) == q


def test_the_error_of_fixed_point_is_half_a_unit():
    x = np.random.default_rng(0).uniform(-7.9, 7.9, 2000).astype(np.float32)
    assert np.abs([quantise(v) for v in x] - x.astype(float) * SCALE).max() <= 0.5
