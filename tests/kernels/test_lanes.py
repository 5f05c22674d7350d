"""Lanes of doubles: unaligned loads and stores, and products added with a single rounding."""

from __future__ import annotations

from fractions import Fraction

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.kernels.lanes import (
    LANES,
    load_doubles,
    plus_double_product,
    spread_double,
    store_doubles,
)


@numba.njit
def add_product(c: np.ndarray, a: float, b: np.ndarray, at: int, to: int) -> None:
    """c[to : to + 8] += a * b[at : at + 8]"""
    product = plus_double_product(load_doubles(c, to), spread_double(a), load_doubles(b, at))
    store_doubles(c, to, product)


@pytest.mark.parametrize("at", range(9))
def test_eight_doubles_anywhere_in_an_array(at):
    """Small integers: sums are exact, and the numbers around the lanes stay."""
    b = np.arange(20.0)
    c = np.arange(20.0) * 100
    add_product(c, 3.0, b, at, 8 - at)
    wanted = np.arange(20.0) * 100
    wanted[8 - at : 8 - at + LANES] += 3 * b[at : at + LANES]
    assert c.tolist() == wanted.tolist()


def test_a_product_is_rounded_once_by_hand():
    """(1 + 2^-30)^2 = 1 + 2^-29 + 2^-60: the last term is lost if the product is rounded first."""
    a = 1 + 2.0**-30
    c = np.full(LANES, -(1 + 2.0**-29))
    add_product(c, a, np.full(LANES, a), 0, 0)
    assert c.tolist() == [2.0**-60] * LANES


NUMBERS = st.floats(-1e50, 1e50).filter(lambda x: x == 0 or abs(x) > 1e-50)


@given(NUMBERS, st.lists(st.tuples(NUMBERS, NUMBERS), min_size=LANES, max_size=LANES))
@settings(deadline=None)
def test_lanes_equal_exact_fractions_rounded_once(a, pairs):
    c = np.array([pair[0] for pair in pairs])
    b = np.array([pair[1] for pair in pairs])
    wanted = [float(Fraction(x) + Fraction(a) * Fraction(y)) for x, y in pairs]
    add_product(c, a, b, 0, 0)
    assert c.tolist() == wanted
