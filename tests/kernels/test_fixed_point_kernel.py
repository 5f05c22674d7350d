"""Encoding gradients in one pass has the bits of scaling, rounding and checking one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coterie import kernels
from coterie.kernels.fallback import fixed_point as fallback
from coterie.types import NOT_FINITE, TOO_LARGE, Floats, Ints

UNIT = 1 << 24
LARGEST = float(np.finfo(np.float32).max)
floats = st.floats(width=32, allow_nan=True, allow_infinity=True, allow_subnormal=True)
small = st.floats(-1.0, 1.0, width=32)


def encoded(values: Floats, by: object = None) -> list[int]:
    out = np.empty(len(values), np.int32)
    (by or kernels.load("fixed_point")).encode(values, UNIT, out)
    return [int(q) for q in out]


def slow_twin(value: float) -> int:
    """One number in Python's arithmetic: a double holds the product of a float and 2^24 exactly."""
    scaled = float(value) * UNIT
    if not np.isfinite(np.float32(scaled)):
        return NOT_FINITE
    rounded = round(scaled)  # ties to even
    return rounded if abs(rounded) < TOO_LARGE else TOO_LARGE


@settings(deadline=None, max_examples=150)
@given(st.lists(floats | small, min_size=1, max_size=40))
@example([LARGEST, -LARGEST, float("nan"), float("inf"), float("-inf"), 5e-324])
def test_the_kernel_and_its_fallback_equal_the_slow_twin(values):
    array = np.array(values, np.float32)
    with np.errstate(over="ignore"):
        expected = [slow_twin(value) for value in array]
    assert encoded(array) == expected
    assert encoded(array, fallback) == expected


@pytest.mark.parametrize(
    ("units", "expected"),
    [
        (0.5, 0),
        (1.5, 2),
        (2.5, 2),
        (-1.5, -2),
        (TOO_LARGE - 1, TOO_LARGE - 1),
        (TOO_LARGE, TOO_LARGE),
        (-TOO_LARGE, TOO_LARGE),
        (np.nan, NOT_FINITE),
        (np.inf, NOT_FINITE),
        (-np.inf, NOT_FINITE),
    ],
)
def test_by_hand(units, expected):
    assert encoded(np.array([units / UNIT], np.float32)) == [expected]


def test_a_device_sends_what_a_cohort_sums():
    """Both fixed points of a gradient are equal, and both mark what must be refused."""
    torch = pytest.importorskip("torch")
    from coterie.algorithms.two_tower.gradients import NON_FINITE, PairOfGradients

    values = np.random.default_rng(0).normal(0, 0.1, (3, 50)).astype(np.float32)
    bad = np.array([np.nan, np.inf, -np.inf, LARGEST, -1e12, 1.0], np.float32)
    pair = PairOfGradients(torch.from_numpy(values), torch.from_numpy(bad))
    first: Ints = np.empty((3, 50), np.int32)
    second: Ints = np.empty(6, np.int32)
    pair.encode(first, second)
    wide = pair.in_fixed_point()
    assert (first == wide.first.numpy()).all()
    assert wide.largest.tolist() == [wide.first.abs().max().item(), NON_FINITE]
    assert (wide.second.abs() >= TOO_LARGE).all()
    assert second.tolist() == [NOT_FINITE] * 4 + [TOO_LARGE] * 2
