"""Co-occurrences of items equal Python integers; weights in fixed point fit their words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_twins import pair_sums
from small_data import SmallData, locked, small_data

from coterie import kernels
from coterie.algorithms.local.cooccurrence import (
    FINE_BITS,
    LEAST_WEIGHT,
    fixed_point,
    n_pairs,
    sum_pairs,
    upper_to_matrix,
    weights,
)
from coterie.types import Rows


def rows_of(data: SmallData) -> Rows:
    return Rows(data.offsets, data.items)


@given(st.integers(1, 12), st.integers(0, 2**32), st.data())
@settings(deadline=None, max_examples=60)
def test_sums_of_pairs_equal_python_integers(n_items, seed, data):
    """Any density; weights up to 2^40, as where 32-bit words are too coarse."""
    rng = np.random.default_rng(seed)
    owned = rng.random((rng.integers(1, 30), n_items)) < data.draw(st.floats(0, 1))
    histories = [np.flatnonzero(row).tolist() for row in owned]
    small = SmallData.of(histories, n_items)
    weight = locked(rng.integers(0, 1 << FINE_BITS, len(histories), endpoint=True))
    found = sum_pairs(rows_of(small), n_items, weight)
    assert found.tolist() == pair_sums(histories, weight.tolist(), n_items)


def test_a_range_of_items_adds_to_its_own_pairs():
    """Pairs are added to what is there, and pairs of other items stay."""
    data = small_data(3, n_users=20, n_items=9)
    by_item = Rows.build(data.items, data.users, 9)
    weight = np.arange(20)
    total = np.full(n_pairs(9), 1000)
    kernels.load("cooccurrence").add_pairs(
        data.offsets, data.items, by_item.offsets, by_item.items, weight, 2, 5, total
    )
    wanted = np.array(pair_sums(data.histories, weight.tolist(), 9))
    first = np.repeat(np.arange(9), np.arange(9, 0, -1))
    wanted[(first < 2) | (first >= 5)] = 0
    np.testing.assert_array_equal(total, 1000 + wanted)


def test_the_number_of_threads_does_not_matter(monkeypatch):
    data = small_data(4, n_users=60, n_items=50)
    weight = np.arange(60)
    one = sum_pairs(rows_of(data), 50, weight)
    monkeypatch.setenv("COTERIE_THREADS", "7")
    np.testing.assert_array_equal(sum_pairs(rows_of(data), 50, weight), one)


def test_the_matrix_of_pairs_by_hand():
    """Pairs (0, 0), (0, 1), (1, 1) in units of 4."""
    assert upper_to_matrix(np.array([4, 8, 12]), 2, 4).tolist() == [[1, 0], [2, 3]]


@pytest.mark.parametrize("exponent", [0.0, 0.25, 0.5, 1.0])
def test_weights_are_powers_of_lengths(exponent):
    counts = np.array([0, 1, 2, 7, 100_000])
    found = weights(counts, exponent, 1 << 40)
    assert found[0] == 0
    for n, weight in zip(counts[1:].tolist(), found[1:].tolist(), strict=True):
        assert abs(weight - 2**40 / n ** (2 * exponent)) <= 0.51


@given(st.integers(1, 1 << 40), st.integers(1, 1 << 30), st.sampled_from([0.0, 0.1, 0.5, 1.0]))
def test_sums_over_all_users_fit_their_words(n_users, n_items, exponent):
    """Where a word has 32 bits, the weights of all users together are below 2^31.

    The weight of the longest history is then fine enough.
    """
    scale, word = fixed_point(n_users, n_items, exponent)
    if not exponent:
        assert (scale, word) == (1, 32)
    elif word == 32:
        assert n_users * scale < 1 << 31
        assert scale / n_items ** (2 * exponent) >= LEAST_WEIGHT
    else:
        assert (scale, word) == (1 << FINE_BITS, 64)
