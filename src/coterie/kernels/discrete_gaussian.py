"""Exact samples of the discrete Gaussian, P(y) proportional to exp(-y^2 / (2 sigma^2)).

Rejection from a staircase above the curve (`federated/privacy/staircase.py`). The distribution is
that of Canonne, Kamath, Steinke, "The discrete Gaussian for differential privacy", 2020, and so is
the rule that all arithmetic is in integers: noise in floating point has gaps that can reveal what
it should hide (Mironov 2012). Their algorithm takes 3.8 words of 64 bits a sample, this one 0.52:

    repeat
        take a brick of the 2^14, a sign, and a uniform y in the brick's column
        if the brick is cut by the curve
            take a uniform height in the brick
    until the height is below exp(-y^2 / (2 sigma^2)), and (y, sign) is not -0

Both steps take half a word, 32 random bits. 4 % of the bricks are cut. Where 32 bits of height do
not decide, or the brick is of the tail, the kernel stops: such a sample takes further bits and
exact arithmetic (`staircase.exact_sample`). That is one of 16,000.

    bits of the first half     0-13 brick     14 sign     15-31 y within the column
"""

from __future__ import annotations

import numpy as np
from numba import int16, int64, types, uint8, uint64
from numpy.typing import NDArray

from coterie.kernels.common import Integer, Words64, helper, kernel, readonly, subroutine
from coterie.types import Longs

INDEX_BITS = 14
INDEX_MASK = (1 << INDEX_BITS) - 1
LOW = 0xFFFFFFFF
ONE = 1 << 62
"""Fixed-point numbers have 62 bits of fraction."""
TERMS = 13
"""Of the series of exp(-x): with x < 0.19 the rest is below 2^-62."""
SLACK = 2
"""How far the computed height of the curve is from the exact one, at most, in units of 2^-32
bricks. The curve has an error below 2^-56, it is rounded down to 2^-48, multiplied by up to 2^14
bricks, and rounded down to 2^-32."""
ABOVE = 0
BELOW = 1
UNDECIDED = 2


@helper
def half_word(words: Words64, at: Integer) -> np.int64:
    """The 32 bits at a place: the low half of a word comes first."""
    return np.int64((words[np.uint64(at >> 1)] >> np.uint64((at & 1) << 5)) & np.uint64(LOW))


@subroutine
def product(a: Integer, b: Integer) -> Integer:
    """Of two fixed-point numbers, neither negative: at most 12 units too small."""
    a_high = a >> 32
    a_low = a & LOW
    b_high = b >> 32
    b_low = b & LOW
    return (a_high * b_high + (a_high * b_low >> 32) + (a_low * b_high >> 32)) << 2


@subroutine
def compare(
    y: Integer, left: Integer, at_left: Integer, k: Integer, height: Integer, point: Integer
) -> Integer:
    """Whether a point is below the curve at y. Points are in units of 2^-32 bricks.

    f(y) = f(left) exp(-(y^2 - left^2) / (2 sigma^2)), where the last factor is a short series.
    """
    x = ((y - left) * (y + left)) << (61 - 2 * k)
    factor: Integer = np.int64(ONE)
    for n in range(TERMS, 0, -1):
        factor = ONE - product(x, factor) // n
    curve = (height * (product(at_left, factor) >> 14)) >> 16
    if point + 1 + SLACK <= curve:
        return BELOW
    if point >= curve + SLACK:
        return ABOVE
    return UNDECIDED


@kernel(
    types.void(
        readonly(uint64),
        readonly(uint8),
        readonly(int16),
        readonly(int64),
        int64,
        int64,
        int64,
        int64,
        int64,
        int64[::1],
        int64[::1],
    )
)
def draw(
    words: Words64,
    columns: NDArray[np.uint8],
    levels: NDArray[np.int16],
    left_heights: Longs,
    n_sure: int,
    n_columns: int,
    n_bricks: int,
    height: int,
    log2_sigma: int,
    out: Longs,
    counts: Longs,
) -> None:
    """Write samples until `out` is full, the words run out, or one takes exact arithmetic.

    counts[1] is the place of the first half word to use, and becomes that of the next sample's
    first. counts[0] becomes the number of samples, and counts[2] whether the next one takes exact
    arithmetic.
    """
    # Columns per sigma are 2^min(k, 5).
    shift = max(log2_sigma - 5, 0)
    mask = (np.int64(1) << shift) - 1
    n = np.int64(0)
    at: Integer = counts[1]
    counts[2] = 0
    # A sample takes two halves at most.
    end = 2 * len(words) - 1
    while n < len(out) and at < end:
        half = half_word(words, at)
        brick = half & INDEX_MASK
        left = np.int64(columns[np.uint64(brick)]) << shift
        y = left + ((half >> (INDEX_BITS + 1)) & mask)
        taken = 1
        if brick >= n_sure:
            if brick >= n_columns:
                if brick < n_bricks:
                    counts[2] = 1
                    break
                at += 1
                continue
            point = (np.int64(levels[np.uint64(brick)]) << 32) + half_word(words, at + 1)
            at_left = left_heights[np.uint64(columns[np.uint64(brick)])]
            result = compare(y, left, at_left, log2_sigma, height, point)
            if result == UNDECIDED:
                counts[2] = 1
                break
            taken = 2
            if result == ABOVE:
                at += 2
                continue
        at += taken
        negative = (half >> INDEX_BITS) & 1
        out[np.uint64(n)] = (y ^ -negative) + negative
        # -0 is not a sample: the next one takes its place.
        n += np.int64((y != 0) | (negative == 0))
    counts[0] = n
    counts[1] = at
