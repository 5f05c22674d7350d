"""What several kernels share: types, randomness, negatives, arithmetic with a fixed order of additions."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numba
import numpy as np
from numba import types

from coterie.types import Ints, Longs

Scalar: TypeAlias = Any  # a number of whatever width the kernel works with

SHIFT30 = np.uint64(30)
SHIFT27 = np.uint64(27)
SHIFT31 = np.uint64(31)
SHIFT32 = np.uint64(32)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FACTOR1 = np.uint64(0xBF58476D1CE4E5B9)
FACTOR2 = np.uint64(0x94D049BB133111EB)


def readonly(scalar: types.Type, ndim: int = 1) -> types.Array:
    """An input that a kernel only reads; arrays that may not be written are accepted."""
    return types.Array(scalar, ndim, "C", readonly=True)


helper = numba.njit(inline="always")


@helper
def finish(word: Scalar) -> Scalar:
    """SplitMix64's finaliser, as in `streams.mix`."""
    word = (word ^ (word >> SHIFT30)) * FACTOR1
    word = (word ^ (word >> SHIFT27)) * FACTOR2
    return word ^ (word >> SHIFT31)


@helper
def random_word(key: Scalar, n: Scalar) -> Scalar:
    """The n-th number of the stream `key` (SplitMix64): any position can be had without the ones before."""
    return finish(key + GOLDEN * np.uint64(n + 1))


@helper
def below(word: Scalar, n: Scalar) -> Scalar:
    """A number below n from a random word (multiply-shift; the bias is at most n / 2^32)."""
    return np.int64(((word >> SHIFT32) * np.uint64(n)) >> SHIFT32)


@helper
def nth_unseen(items: Ints, start: Scalar, end: Scalar, rank: Scalar) -> Scalar:
    """The item with `rank` items outside items[start:end] (ascending) before it: one draw, no rejection.

    Both sides of a step are computed and one is kept, so that nothing is mispredicted and searches overlap.
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
def draw_unseen(user: Scalar, offsets: Longs, items: Ints, n_items: Scalar, word: Scalar) -> Scalar:
    """An item outside items[offsets[user]:offsets[user + 1]], uniformly; -1 if the user has everything."""
    start = offsets[user]
    end = offsets[user + 1]
    free = n_items - (end - start)
    return nth_unseen(items, start, end, below(word, free)) if free > 0 else np.int64(-1)


@helper
def sigmoid(x: Scalar) -> Scalar:
    if x >= 0:
        return np.float32(1.0) / (np.float32(1.0) + np.float32(math.exp(-x)))
    e = np.float32(math.exp(x))
    return e / (np.float32(1.0) + e)
