"""A staircase above the bell curve, and exact decisions between a point below it and the curve.

    f(x) = exp(-x^2 / 2)

Columns of width 1 / per_sigma cover 0 <= x < END. Column j is a pile of bricks of height 1 / height
that just covers the curve, ceil(height f(left end)). Bricks that lie below the curve at the right
end are below it everywhere: most of them. Those above it are cut by the curve.

Beyond END a tail covers the curve: it is `tail` bricks, spread over END + v <= x < END + v + 1 with
weight 2^-(v + 1). All piles together are at most 2^INDEX_BITS bricks.

All numbers are integers with certified bounds: nothing here is rounded to a float.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from coterie.types import Longs

INDEX_BITS = 14
MOST_COLUMNS = 32
"""Columns for a sigma, at most."""
END = 6
FRACTION_BITS = 62
"""Fixed-point numbers of the kernel."""
WORK_BITS = 128
"""Precision with which a staircase is computed."""
HALF_BITS = 32
"""Random bits come in halves of words."""
GUARD_BITS = 64
"""More of the curve than of a point, so that bits are read only where they are needed."""

NextHalf: TypeAlias = Callable[[], int]
"""Gives the next 32 random bits."""


@dataclass(frozen=True, slots=True)
class Staircase:
    """Bricks in this order: below the curve, cut by it, of the tail. The rest of 2^14 is empty."""

    per_sigma: int
    height: int
    column: NDArray[np.uint8]
    """Of each brick; 0 where there is none."""
    level: NDArray[np.int16]
    """How many bricks are below it in its column."""
    left: Longs
    """f at the left end of each column, rounded down to FRACTION_BITS."""
    n_sure: int
    n_columns: int
    """Bricks of columns: those below the curve, and those that it cuts."""
    n_bricks: int
    """With those of the tail."""


@lru_cache(maxsize=8)
def staircase(per_sigma: int) -> Staircase:
    """The finest one that has room."""
    ends = [exp_bounds(j * j, 2 * per_sigma**2, WORK_BITS) for j in range(END * per_sigma + 1)]
    low = 1
    high = 1 << INDEX_BITS
    while high - low > 1:
        middle = (low + high) // 2
        if sum(_piles(ends, middle)) + _tail(per_sigma, middle) <= 1 << INDEX_BITS:
            low = middle
        else:
            high = middle
    return _of_height(per_sigma, low, ends)


def _of_height(per_sigma: int, height: int, ends: list[tuple[int, int]]) -> Staircase:
    piles = _piles(ends, height)
    # Below the right end, by its lower bound.
    sure = [height * right[0] >> WORK_BITS for right in ends[1:]]
    bricks = [(j, r) for j, n in enumerate(sure) for r in range(n)]
    n_sure = len(bricks)
    bricks += [(j, r) for j, n in enumerate(piles) for r in range(sure[j], n)]
    column = np.zeros(1 << INDEX_BITS, np.uint8)
    level = np.zeros(1 << INDEX_BITS, np.int16)
    column[: len(bricks)] = [j for j, _ in bricks]
    level[: len(bricks)] = [r for _, r in bricks]
    left = [end[0] >> (WORK_BITS - FRACTION_BITS) for end in ends[:-1]]
    return Staircase(
        per_sigma=per_sigma,
        height=height,
        column=column,
        level=level,
        left=np.array(left, np.int64),
        n_sure=n_sure,
        n_columns=len(bricks),
        n_bricks=len(bricks) + _tail(per_sigma, height),
    )


def _piles(ends: list[tuple[int, int]], height: int) -> list[int]:
    """Bricks of each column, by the upper bound of the curve at its left end."""
    return [-(-height * left[1] >> WORK_BITS) for left in ends[:-1]]


def _tail(per_sigma: int, height: int) -> int:
    """Bricks of the tail: it covers f(END), where v = 0. f falls faster than 2^-v from there."""
    least = 2 * per_sigma * height * exp_bounds(END * END, 2, WORK_BITS)[1]
    return -(-least >> WORK_BITS)


def exact_sample(stairs: Staircase, log2_sigma: int, next_half: NextHalf) -> int | None:
    """The sample of the next point under the staircase; None if the point is above the curve."""
    half = next_half()
    index = half & ((1 << INDEX_BITS) - 1)
    negative = half >> INDEX_BITS & 1
    if index >= stairs.n_bricks:
        return None
    if index >= stairs.n_columns:
        y = _tail_sample(stairs, log2_sigma, next_half)
    else:
        column = int(stairs.column[index])
        width = (1 << log2_sigma) // stairs.per_sigma
        y = column * width + (half >> (INDEX_BITS + 1)) % width
        level = int(stairs.level[index])
        if index >= stairs.n_sure and not _below(
            y, log2_sigma, next_half, prefix=level, numerator=stairs.height, denominator=1
        ):
            return None
    if y is None or (y == 0 and negative):
        return None
    return -y if negative else y


def _tail_sample(stairs: Staircase, log2_sigma: int, next_half: NextHalf) -> int | None:
    ones = 0
    while (word := next_half()) == (1 << HALF_BITS) - 1:
        ones += HALF_BITS
    while word & 1:
        ones += 1
        word >>= 1
    y = ((END + ones) << log2_sigma) + next_half() % (1 << log2_sigma)
    # The tail's height at y is tail / (2 per_sigma height 2^ones).
    bricks = stairs.n_bricks - stairs.n_columns
    numerator = 2 * stairs.per_sigma * stairs.height << ones
    is_below = _below(y, log2_sigma, next_half, prefix=0, numerator=numerator, denominator=bricks)
    return y if is_below else None


def _below(
    y: int, log2_sigma: int, next_half: NextHalf, *, prefix: int, numerator: int, denominator: int
) -> bool:
    """Whether prefix + a uniform fraction is less than numerator / denominator f(y / sigma).

    The fraction's bits are read until they decide. They do, sooner or later.
    """
    point = prefix
    bits = 0
    while True:
        point = (point << HALF_BITS) + next_half()
        bits += HALF_BITS
        precision = bits + numerator.bit_length() + GUARD_BITS
        low, high = exp_bounds(y * y, 2 << 2 * log2_sigma, precision)
        shift = precision - bits
        if (point + 1) * denominator <= numerator * low >> shift:
            return True
        if point * denominator >= -(-numerator * high >> shift):
            return False


def exp_bounds(numerator: int, denominator: int, bits: int) -> tuple[int, int]:
    """Integers around exp(-numerator / denominator) 2^bits, two apart at most."""
    if numerator == 0:
        return 1 << bits, 1 << bits
    # exp(-x) is the power 2^halvings of exp(-x / 2^halvings), whose series is short.
    halvings = (2 * numerator // denominator).bit_length()
    work = bits + halvings + 16
    one = 1 << work
    x = (numerator << work) // (denominator << halvings)
    # Each of less than `work` terms is rounded, and x once.
    error = work + 2
    value = term = one
    n = 0
    while term:
        n += 1
        term = term * x // (n << work)
        value += -term if n % 2 else term
    for _ in range(halvings):
        value = value * value >> work
        error = 2 * error + 2
    extra = work - bits
    return (value - error) >> extra, -(-(value + error) >> extra)
