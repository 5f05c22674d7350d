"""Trimming of item rows, against sorting one component at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import kernels
from coterie.kernels.fallback import trimming as fallback
from coterie.types import TOO_LARGE, Ints

MODULES = [kernels.load("trimming"), fallback]
FEWEST = 3


def slow(items: Ints, rows: Ints) -> Ints:
    """Sort every component of every item."""
    out = np.zeros_like(rows)
    for item in set(items.tolist()):
        own = np.flatnonzero(items == item)
        if len(own) < FEWEST:
            continue
        cut = max(len(own) // 5, 1)
        for f in range(rows.shape[1]):
            ascending = sorted(rows[own, f].tolist())
            for r in own:
                out[r, f] = min(max(rows[r, f], ascending[cut]), ascending[-1 - cut])
    return out


@pytest.mark.parametrize("module", MODULES)
@settings(deadline=None, max_examples=40)
@given(
    n=st.integers(0, 60),
    n_items=st.integers(1, 9),
    width=st.integers(1, 9),
    largest=st.sampled_from([1, 3, 1000, TOO_LARGE - 1]),
    seed=st.integers(0, 10_000),
)
def test_extremes_get_the_values_of_their_neighbours(module, n, n_items, width, largest, seed):
    rng = np.random.default_rng(seed)
    items = rng.integers(0, n_items, n, dtype=np.int32)
    rows = rng.integers(-largest, largest, (n, width), dtype=np.int32, endpoint=True)
    counts = np.bincount(items, minlength=n_items)
    starts = np.concatenate([[0], np.cumsum(counts)])
    places = np.empty(n, np.int64)
    module.order(items, starts[:-1].copy(), places)
    assert places.tolist() == np.argsort(items, kind="stable").tolist()
    found = rows.copy()
    middle = n_items // 2
    for low, high in ((0, middle), (middle, n_items)):
        cuts = np.maximum(counts // 5, 1)
        module.trim(places, starts, cuts, FEWEST, low, high, found)
    assert found.tolist() == slow(items, rows).tolist()


@pytest.mark.parametrize("module", MODULES)
def test_the_whole_range_of_integers(module):
    """The middle of the smallest and the largest integer does not overflow."""
    ends = np.iinfo(np.int32)
    rows = np.array([[ends.min], [ends.max], [ends.min], [7], [ends.max]], np.int32)
    places = np.arange(5)
    module.trim(places, np.array([0, 5]), np.array([2]), FEWEST, 0, 1, rows)
    assert rows.ravel().tolist() == [7] * 5
