"""What a user trains on in a round: its positives in random order, each followed by fresh negatives; and the rows it touches."""

from __future__ import annotations

import numba
import numpy as np
from numba import float32, int32, int64, types, uint64

from coterie.kernels.common import Scalar, below, helper, nth_unseen, random_word, readonly
from coterie.types import Floats, Ints, Longs

ONE = np.uint64(1)
SIX = np.uint64(6)
LOW_BITS = np.uint64(63)
DE_BRUIJN = np.uint64(
    0x03F79D71B4CB0A89
)  # its six-bit windows are all different: an index for a single bit
PLACES = np.zeros(64, np.int64)
for _place in range(64):
    PLACES[(int(DE_BRUIJN) << _place & 0xFFFFFFFFFFFFFFFF) >> 58] = _place


@helper
def lowest_bit(word: Scalar) -> Scalar:
    """Where the lowest one of a word stands."""
    only_node = word & (~word + ONE)
    return PLACES[(only_node * DE_BRUIJN) >> np.uint64(58)]


@helper
def renumber(
    samples: Ints, touched: np.ndarray, parts: np.ndarray, place: Ints, rows: Ints
) -> Scalar:
    """Writes the items of `samples` into `rows`, ascending and once each, and into `samples` where each stands there.

    Nothing is left of the order in which items came. `touched` has a bit an item and `parts` a bit a word of those, because
    most are empty where items are many; both are zeros, and are so again afterwards. Returns how many rows there are.
    """
    for i in range(len(samples)):
        item = np.uint64(samples[i])
        w = item >> SIX
        touched[w] |= ONE << (item & LOW_BITS)
        parts[w >> SIX] |= ONE << (w & LOW_BITS)
    r = 0
    for part in range(len(parts)):
        words = parts[part]
        while words:
            at = (part << 6) + lowest_bit(words)
            words &= words - ONE
            word = touched[at]
            while word:
                number = (at << 6) + lowest_bit(word)
                word &= word - ONE
                place[number] = r
                rows[r] = number
                r += 1
            touched[at] = 0
        parts[part] = 0
    for i in range(len(samples)):
        samples[i] = place[samples[i]]
    return r


@numba.njit(
    types.void(
        readonly(int64),
        readonly(int64),
        readonly(int32),
        readonly(float32),
        readonly(int64),
        readonly(int32),
        int64,
        int64,
        int64,
        readonly(uint64),
        readonly(int64),
        int64,
        int64,
        int64[::1],
        int32[::1],
        int32[::1],
        float32[::1],
    ),
    nogil=True,
    cache=True,
    error_model="numpy",
)
def draw(
    people: Longs,
    offsets: Longs,
    positives: Ints,
    ratings: Floats,
    seen_offsets: Longs,
    seen: Ints,
    n_items: int,
    negatives: int,
    epochs: int,
    keys: np.ndarray,
    starts: Longs,
    first: int,
    last: int,
    n_rows: Longs,
    rows: Ints,
    samples: Ints,
    targets: Floats,
) -> None:
    """Fill people first..last: from starts[k] on, `rows` (touched items, ascending), `samples` (places in rows), `targets`.

    Without ratings the targets are 1 for a positive and 0 for a negative. A user who has everything has no negatives.
    """
    taken = np.zeros(n_items, np.uint8)
    touched = np.zeros((n_items + 63) // 64, np.uint64)
    parts = np.zeros((len(touched) + 63) // 64, np.uint64)
    place = np.empty(n_items, np.int32)
    for k in range(first, last):
        u = people[k]
        key = keys[k]
        mine = offsets[u]
        n = offsets[u + 1] - offsets[u]
        low = seen_offsets[u]
        high = seen_offsets[u + 1]
        free = n_items - (high - low)
        per = negatives if free > 0 else 0
        crowded = free * 4 < n_items  # rejecting would take long
        order = np.arange(n)
        for i in range(low, high):
            taken[seen[i]] = 1
        drawn = 0
        s = starts[k]
        for _ in range(epochs):
            for i in range(n - 1, 0, -1):  # Fisher and Yates
                j = below(random_word(key, drawn), i + 1)
                drawn += 1
                order[i], order[j] = order[j], order[i]
            for i in range(n):
                samples[s] = positives[mine + order[i]]
                targets[s] = ratings[mine + order[i]] if len(ratings) else np.float32(1.0)
                s += 1
                for _ in range(per):
                    if crowded:
                        negative = nth_unseen(seen, low, high, below(random_word(key, drawn), free))
                        drawn += 1
                    else:
                        negative = below(random_word(key, drawn), n_items)
                        drawn += 1
                        while taken[negative]:
                            negative = below(random_word(key, drawn), n_items)
                            drawn += 1
                    samples[s] = negative
                    targets[s] = np.float32(0.0)
                    s += 1
        for i in range(low, high):
            taken[seen[i]] = 0
        n_rows[k] = renumber(samples[starts[k] : s], touched, parts, place, rows[starts[k] : s])


@numba.njit(
    types.void(readonly(int64), readonly(int64), readonly(int32), int32[::1]),
    nogil=True,
    cache=True,
    error_model="numpy",
)
def pack(starts: Longs, offsets: Longs, rows: Ints, out: Ints) -> None:
    """The first offsets[k + 1] - offsets[k] rows from every starts[k] on, without the gaps between."""
    for k in range(len(offsets) - 1):
        for i in range(offsets[k + 1] - offsets[k]):
            out[offsets[k] + i] = rows[starts[k] + i]
