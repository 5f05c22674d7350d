"""The training samples of a user in a round, and the item rows they touch.

The samples are the user's positives in random order, each followed by fresh negatives.
"""

from __future__ import annotations

import numpy as np
from numba import float32, int32, int64, types, uint64

from coterie.kernels.common import (
    Integer,
    Words64,
    below,
    helper,
    kernel,
    nth_unseen,
    random_word,
    readonly,
)
from coterie.types import Floats, Ints, Longs

ONE = np.uint64(1)
SIX = np.uint64(6)
LOW_BITS = np.uint64(63)
# All six-bit windows of this word differ, so a shift by a bit's position gives a distinct index.
DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
PLACES = np.zeros(64, np.int64)
for _place in range(64):
    PLACES[(int(DE_BRUIJN) << _place & 0xFFFFFFFFFFFFFFFF) >> 58] = _place


@helper
def lowest_bit(word: np.uint64) -> Integer:
    """The position of the lowest set bit of a word."""
    only_node = word & (~word + ONE)
    position: Integer = PLACES[(only_node * DE_BRUIJN) >> np.uint64(58)]
    return position


@helper
def renumber(samples: Ints, touched: Words64, parts: Words64, place: Ints, rows: Ints) -> Integer:
    """Write the distinct items of `samples` to `rows`, and replace each item by its position in it.

    `rows` ascends, so it does not reveal the order in which items were drawn. `touched` has one
    bit per item and `parts` one bit per word of `touched`, because most words are empty when there
    are many items. Both must be zero and are zero again afterwards. Returns the number of rows.
    """
    for i in range(len(samples)):
        item = np.uint64(samples[i])
        w = item >> SIX
        touched[w] |= ONE << (item & LOW_BITS)
        parts[w >> SIX] |= ONE << (w & LOW_BITS)
    r = 0
    for part in range(len(parts)):
        words: np.uint64 = parts[part]
        while words:
            at = (part << 6) + lowest_bit(words)
            words &= words - ONE
            word: np.uint64 = touched[at]
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


@kernel(
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
)
def draw(
    users: Longs,
    offsets: Longs,
    positives: Ints,
    ratings: Floats,
    seen_offsets: Longs,
    seen: Ints,
    n_items: int,
    negatives: int,
    epochs: int,
    keys: Words64,
    starts: Longs,
    first: int,
    last: int,
    n_rows: Longs,
    rows: Ints,
    samples: Ints,
    targets: Floats,
) -> None:
    """Draw the samples of users first..last, each user's from starts[k] on.

    Writes `rows` (the touched items, ascending), `samples` (positions in rows) and `targets`.
    Without ratings, targets are 1 for a positive and 0 for a negative. A user who has seen every
    item gets no negatives.
    """
    taken = np.zeros(n_items, np.uint8)
    touched = np.zeros((n_items + 63) // 64, np.uint64)
    parts = np.zeros((len(touched) + 63) // 64, np.uint64)
    place = np.empty(n_items, np.int32)
    for k in range(first, last):
        u = users[k]
        key = keys[k]
        begin = offsets[u]
        n = offsets[u + 1] - offsets[u]
        low = seen_offsets[u]
        high = seen_offsets[u + 1]
        free = n_items - (high - low)
        per = negatives if free > 0 else 0
        # Rejection sampling would need many tries.
        crowded = free * 4 < n_items
        order = np.arange(n)
        for i in range(low, high):
            taken[seen[i]] = 1
        drawn = 0
        s = starts[k]
        for _ in range(epochs):
            # Fisher-Yates shuffle.
            for i in range(n - 1, 0, -1):
                j = below(random_word(key, drawn), i + 1)
                drawn += 1
                order[i], order[j] = order[j], order[i]
            for i in range(n):
                samples[s] = positives[begin + order[i]]
                targets[s] = ratings[begin + order[i]] if len(ratings) else np.float32(1.0)
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


@kernel(
    types.void(readonly(int64), readonly(int64), readonly(int32), int32[::1]),
)
def pack(starts: Longs, offsets: Longs, rows: Ints, out: Ints) -> None:
    """Copy offsets[k + 1] - offsets[k] rows from every starts[k] on, without the gaps between."""
    for k in range(len(offsets) - 1):
        for i in range(offsets[k + 1] - offsets[k]):
            out[offsets[k] + i] = rows[starts[k] + i]
