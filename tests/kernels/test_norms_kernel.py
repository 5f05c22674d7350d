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


NO_LIMITS = np.empty(0)


def slowly(offsets, items, rows, by_item, longest_row, longest, limits=(math.inf,) * 4):
    """The definition, client by client."""
    out = np.zeros_like(rows)
    for first, last in itertools.pairwise(offsets):
        squared = [sum(int(v) ** 2 for v in row) for row in rows[first:last]]
        bounds = [min(longest_row**2, limits[item]) for item in items[first:last]]
        total = sum(min(s, bound) for s, bound in zip(squared, bounds, strict=True))
        of_client = longest / math.sqrt(total) if total > longest**2 else 1.0
        for r, s, bound in zip(range(first, last), squared, bounds, strict=True):
            factor = of_client * by_item[items[r]]
            factor *= math.sqrt(bound) / math.sqrt(s) if s > bound else 1.0
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
    bounds = 250.0, 600.0
    for limits in (NO_LIMITS, np.array([10_000.0, 40_000.0, 1e9, 0.0])):
        out = rows.copy()
        for first, last in ((0, 3), (3, 7)):  # as two threads do it
            module.shorten(
                offsets, items, squared, totals, by_item, limits, *bounds, first, last, out
            )
        expected = slowly(
            offsets, items, rows, by_item, *bounds, *([limits] if len(limits) else [])
        )
        assert out.tolist() == expected.tolist()


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
        module.shorten(offsets, items, squared, totals, by_item, NO_LIMITS, 250.0, 600.0, 0, 7, out)
        assert out.tolist() == expected.tolist()


@pytest.mark.parametrize("module", MODULES, ids=["numba", "numpy"])
def test_items_are_counted(module: ModuleType):
    counts = np.array([5, 0, 0])
    module.count(np.array([0, 2, 2], np.int32), counts)
    assert counts.tolist() == [6, 0, 2]


@pytest.mark.parametrize("module", MODULES, ids=["numba", "numpy"])
def test_few_long_rows_of_many_are_found(module: ModuleType):
    """Three of a hundred rows exceed the bound of 5, of which the last client sends one."""
    rows = np.full((100, 1), 5, np.int32)
    rows[[0, 31, 99]] = 50
    offsets = np.array([0, 98, 100])
    squared = np.empty(100)
    totals = np.empty(2)
    module.squared(offsets, rows, 0, 2, squared, totals)
    items = np.zeros(100, np.int32)
    none = np.empty(0)
    module.shorten(offsets, items, squared, totals, none, none, 5.0, 1e9, 0, 2, rows)
    assert (rows == 5).all()


@pytest.mark.parametrize("module", MODULES, ids=["numba", "numpy"])
@settings(deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(1, 9), enough=st.sampled_from([0, 3, 7, 99]))
def test_the_nth_largest_value_of_items(module: ModuleType, seed: int, n: int, enough: int):
    rng = np.random.default_rng(seed)
    sent = [np.flatnonzero(rng.random(5) < 0.6) for _ in range(15)]
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in sent])])
    items = np.concatenate(sent).astype(np.int32)
    values = rng.integers(0, 9, len(items))
    nth = np.empty(5, np.int64)
    for low, high in ((0, 2), (2, 5)):  # as two threads do it
        module.nth_largest(offsets, items, values, n, enough, low, high, nth)
    for item in range(5):
        descending = sorted(values[items == item].tolist(), reverse=True)
        expected = descending[n - 1] if len(descending) >= n else enough
        assert nth[item] == min(expected, enough)


@pytest.mark.parametrize("module", MODULES, ids=["numba", "numpy"])
def test_a_hostile_vector_does_not_overflow(module: ModuleType):
    """A tower of 331,264 entries of the largest size: the square exceeds 2^63."""
    rows = np.full((1, 331_264), TOO_LARGE - 1, np.int32)
    squared = np.empty(1)
    module.squared(np.array([0, 1]), rows, 0, 1, squared, np.empty(1))
    assert squared[0] == pytest.approx(331_264 * float(TOO_LARGE - 1) ** 2, rel=1e-12)


@pytest.mark.parametrize("module", MODULES, ids=["numba", "numpy"])
@settings(deadline=None)
@given(seed=st.integers(0, 10_000), width=st.integers(1, 9))
def test_rows_of_a_client_are_multiplied_by_its_factor(module: ModuleType, seed: int, width: int):
    offsets, _, rows = cohort(seed, width)
    factors = np.random.default_rng(seed).random(7) * 2
    out = np.zeros_like(rows)
    module.scale(offsets, rows, factors, 0, 3, out)
    module.scale(offsets, rows, factors, 3, 7, out)
    for k, (first, last) in enumerate(itertools.pairwise(offsets)):
        expected = [[math.trunc(int(v) * factors[k]) for v in row] for row in rows[first:last]]
        assert out[first:last].tolist() == expected


@pytest.mark.parametrize("module", MODULES, ids=["numba", "numpy"])
@pytest.mark.parametrize("value", [TOO_LARGE, -TOO_LARGE, -(2**31)])
def test_the_norm_of_a_row_out_of_range_is_infinite(module: ModuleType, value: int):
    rows = np.array([[3, 4], [value, value], [TOO_LARGE - 1, 0]], np.int32)
    by_row = np.empty(3)
    by_client = np.empty(2)
    module.squared(np.array([0, 1, 3]), rows, 0, 2, by_row, by_client)
    assert by_row.tolist() == [25, math.inf, (TOO_LARGE - 1) ** 2]
    assert by_client.tolist() == [25, math.inf]
