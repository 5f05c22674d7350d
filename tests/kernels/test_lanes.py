"""Lanes: unaligned loads and stores, products rounded once, sigmoids, and fixed point."""

from __future__ import annotations

from fractions import Fraction

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.kernels.lanes import (
    LANES,
    add_integers,
    fixed_point,
    load,
    load_doubles,
    mark_beyond,
    plus_double_product,
    sigmoids,
    spread,
    spread_double,
    store,
    store_doubles,
    store_integers,
)
from coterie.types import NOT_FINITE, TOO_LARGE


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


@numba.njit
def all_sigmoids(x: np.ndarray, out: np.ndarray) -> None:
    for i in range(0, len(x), LANES):
        store(out, i, sigmoids(load(x, i)))


def test_sigmoids_are_within_two_units_in_the_last_place():
    """Down to exp(-87), below which they stay; two units are 2.4e-7."""
    x = np.linspace(-86.9, 86.9, 1 << 16).astype(np.float32)
    found = np.empty_like(x)
    all_sigmoids(x, found)
    wanted = 1 / (1 + np.exp(-x.astype(float)))
    assert np.abs(found / wanted - 1).max() < 2.4e-7


def test_sigmoids_of_special_numbers():
    x = np.array([np.nan, np.inf, -np.inf, 0.0, 1e30, -1e30, 20.0, -0.0], np.float32)
    found = np.empty_like(x)
    all_sigmoids(x, found)
    assert np.isnan(found[0])
    assert found[[1, 3, 4, 6, 7]].tolist() == [1.0, 0.5, 1.0, 1.0, 0.5]
    assert 0 < found[2] == found[5] < 1e-37


SIGMOID_BITS = [
    701675270,
    1022369844,
    1049211569,
    1056126446,
    1058213546,
    1059786330,
    1063353322,
    1065351146,
]


def test_bits_of_sigmoids_are_the_same_on_every_machine():
    """Frozen: a processor or a compiler that rounds differently changes them."""
    x = np.array([-30.0, -3.5, -1.0, -0.1, 0.3, 0.7, 2.0, 9.0], np.float32)
    found = np.empty_like(x)
    all_sigmoids(x, found)
    assert found.view(np.uint32).tolist() == SIGMOID_BITS


@numba.njit
def to_fixed_point(
    x: np.ndarray, out: np.ndarray, total: np.ndarray, limit: float, marks: np.ndarray
) -> None:
    values = fixed_point(load(x, 0))
    store_integers(out, 0, values)
    add_integers(total, 0, values, np.int32(-3))
    store(marks, 0, mark_beyond(load(marks, 0), values, spread(limit)))


def test_fixed_point_by_hand():
    """Halves go to the even neighbour; what is not finite or too large gets a number of its own."""
    limit = np.float32(TOO_LARGE)
    x = np.array([0.5, 1.5, -2.5, limit - 1, limit, -limit, np.nan, -np.inf], np.float32)
    out = np.empty(LANES, np.int32)
    total = np.full(LANES, 10)
    marks = np.zeros(LANES, np.float32)
    to_fixed_point(x, out, total, limit, marks)
    wanted = [0, 2, -2, TOO_LARGE - 1, TOO_LARGE, TOO_LARGE, NOT_FINITE, NOT_FINITE]
    assert out.tolist() == wanted
    assert total.tolist() == [10 - 3 * number for number in wanted]
    assert marks.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
