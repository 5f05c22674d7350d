"""What the kernels share: decorators, bisection, random words, drawing negatives, the sigmoid."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

from coterie.types import Ints, Longs

if TYPE_CHECKING:
    from numba.core.dispatcher import Dispatcher
    from numba.core.typing.templates import Signature

Integer: TypeAlias = int | np.int64
"""A count or an index. Numba works with 64 bits."""
Real: TypeAlias = float | np.float32
"""A number in single precision inside a kernel; callers pass a Python float."""
Words64: TypeAlias = NDArray[np.uint64]
"""Keys of random streams, or the words of a bit set."""
Function = TypeVar("Function", bound=Callable[..., object])

SHIFT30 = np.uint64(30)
SHIFT27 = np.uint64(27)
SHIFT31 = np.uint64(31)
SHIFT32 = np.uint64(32)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FACTOR1 = np.uint64(0xBF58476D1CE4E5B9)
FACTOR2 = np.uint64(0x94D049BB133111EB)


def readonly(scalar: types.Type, ndim: int = 1) -> types.Array:
    """The type of an input. Numba also accepts writable arrays for it."""
    return types.Array(scalar, ndim, "C", readonly=True)


def kernel(signature: Signature) -> Callable[[Function], Dispatcher[Function]]:
    """Compile a function that Python calls, when its file is imported.

    nogil lets threads run it side by side. error_model="numpy" removes the check for a division
    by zero from every loop. There is no fastmath, because it may reorder additions, and no
    parallel=True, because threads are started by `core.parallel` over ranges of rows.
    """
    return numba.njit(signature, nogil=True, cache=True, error_model="numpy")


def helper(function: Function) -> Dispatcher[Function]:
    """Inline a function into every kernel that calls it."""
    return numba.njit(inline="always")(function)


def subroutine(function: Function) -> Dispatcher[Function]:
    """Compile a function that kernels call but do not inline."""
    return numba.njit(error_model="numpy")(function)


@helper
def finish(word: np.uint64) -> np.uint64:
    """SplitMix64's finaliser, as in `streams.mix`."""
    word = (word ^ (word >> SHIFT30)) * FACTOR1
    word = (word ^ (word >> SHIFT27)) * FACTOR2
    return word ^ (word >> SHIFT31)


@helper
def random_word(key: np.uint64, n: Integer) -> np.uint64:
    """Word n of the stream `key` (SplitMix64). It does not need the words before it."""
    return finish(key + GOLDEN * np.uint64(n + 1))


@helper
def below(word: np.uint64, n: Integer) -> np.int64:
    """A number below n from a random word (multiply-shift; the bias is at most n / 2^32)."""
    return np.int64(((word >> SHIFT32) * np.uint64(n)) >> SHIFT32)


@helper
def first_at_least(items: Ints, low: Integer, high: Integer, wanted: Integer) -> Integer:
    """The first position in items[low:high], which ascends, that holds `wanted` or more."""
    while low < high:
        middle = (low + high) >> 1
        if items[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@helper
def nth_unseen(items: Ints, start: Integer, end: Integer, rank: Integer) -> Integer:
    """The item that has `rank` unseen items before it; items[start:end] are seen and ascend.

    This takes one random word and no rejection. Each step of the bisection computes both
    outcomes and selects one: no branch is mispredicted, so the memory accesses of consecutive
    searches overlap.
    """
    low = start
    left = end - start
    while left > 0:
        half = left >> 1
        middle = low + half
        right = items[middle] - (middle - start) <= rank
        low = middle + 1 if right else low
        left = left - half - 1 if right else half
    return rank + low - start


@helper
def draw_unseen(
    user: Integer, offsets: Longs, items: Ints, n_items: Integer, word: np.uint64
) -> Integer:
    """An item outside items[offsets[user]:offsets[user + 1]], drawn uniformly.

    Returns -1 if the user has seen every item.
    """
    start: Integer = offsets[user]
    end: Integer = offsets[user + 1]
    free = n_items - (end - start)
    return nth_unseen(items, start, end, below(word, free)) if free > 0 else np.int64(-1)


@helper
def sigmoid(x: Real) -> np.float32:
    """1 / (1 + exp(-x)); the exponent is never positive, so nothing overflows."""
    if x >= 0:
        return np.float32(1.0) / (np.float32(1.0) + np.float32(math.exp(-x)))
    e = np.float32(math.exp(x))
    return e / (np.float32(1.0) + e)
