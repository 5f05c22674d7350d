"""Norms of clients' rows, and rows within bounds: against a slow twin, and without Numba."""

from __future__ import annotations

import itertools
import math
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import kernels
from coterie.kernels.fallback import norms as fallback
from coterie.types import TOO_LARGE

MODULES = [kernels.load("norms"), fallback]


def cohort(seed: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Offsets, items and rows of seven clients, some without rows, some with huge ones."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 5, 7)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    items = rng.integers(0, 4, offsets[-1]).astype(np.int32)
    rows = rng.integers(-300, 300, (offsets[-1], width)).astype(np.int32)
    rows[rng.random(len(rows)) < 0.2] = TOO_LARGE - 1
    return offsets, items, rows


def slowly(offsets, items, rows, by_item, longest_row, longest):
    """The definition, client by client."""
    out = np.zeros_like(rows)
    for first, last in itertools.pairwise(offsets):
        squared = [sum(int(v) ** 2 for v in row) for row in rows[first:last]]
        total = sum(min(s, longest_row**2) for s in squared)
        of_client = longest / math.sqrt(total) if total > longest**2 else 1.0
        for r, s in zip(range(first, last), squared, strict=True):
            factor = of_client * by_item[items[r]]
            factor *= longest_row / math.sqrt(s) if s > longest_row**2 else 1.0
            out[r] = [math.trunc(int(v) * factor) for v in rows[r]]
    return out


@pytest.mark.parametrize("module", MODULES, ids=["numba", "numpy"])
@settings(deadline=None)
@given(seed=st.integers(0, 10_000), width=st.integers(1, 9))
def test_rows_are_shortened_as_defined(module: ModuleType, seed: int, width: int):
    offsets, items, rows = cohort(seed, width)
    by_item = np.array([1.0, 2 / 3, 1 / 3, 1.0])
    squared = np.empty(len(rows))
    totals = np.empty(7)
    module.squared(offsets, rows, 0, 7, squared, totals)
    assert squared.tolist() == [sum(int(v) ** 2 for v in row) for row in rows]
    assert totals.tolist() == [
        sum(squared[first:last].tolist()) for first, last in itertools.pairwise(offsets)
    ]
    out = rows.copy()
    for first, last in ((0, 3), (3, 7)):  # as two threads do it
        module.shorten(offsets, items, squared, totals, by_item, 250.0, 600.0, first, last, out)
    assert out.tolist() == slowly(offsets, items, rows, by_item, 250.0, 600.0).tolist()


@pytest.mark.parametrize("module", MODULES, ids=["numba", "numpy"])
@settings(deadline=None)
@given(seed=st.integers(0, 10_000))
def test_without_factors_all_are_one(module: ModuleType, seed: int):
    offsets, items, rows = cohort(seed, 3)
    squared = np.empty(len(rows))
    totals = np.empty(7)
    module.squared(offsets, rows, 0, 7, squared, totals)
    ones = np.ones(4)
    expected = slowly(offsets, items, rows, ones, 250.0, 600.0)
    for by_item in (ones, np.empty(0)):
        out = rows.copy()
        module.shorten(offsets, items, squared, totals, by_item, 250.0, 600.0, 0, 7, out)
        assert out.tolist() == expected.tolist()


@pytest.mark.parametrize("module", MODULES, ids=["numba", "numpy"])
def test_items_are_counted(module: ModuleType):
    counts = np.array([5, 0, 0])
    module.count(np.array([0, 2, 2], np.int32), counts)
    assert counts.tolist() == [6, 0, 2]


@pytest.mark.parametrize("module", MODULES, ids=["numba", "numpy"])
def test_a_hostile_vector_does_not_overflow(module: ModuleType):
    """A tower of 331,264 entries of the largest size: the square exceeds 2^63."""
    rows = np.full((1, 331_264), TOO_LARGE - 1, np.int32)
    squared = np.empty(1)
    module.squared(np.array([0, 1]), rows, 0, 1, squared, np.empty(1))
    assert squared[0] == pytest.approx(331_264 * float(TOO_LARGE - 1) ** 2, rel=1e-12)
