"""What a client of two towers draws for a round: clicks, negatives, titles for its profile.

Every user has a stream of their own. The rules are those of `core.sampling`.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, int32, int64, types, uint64

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
from coterie.types import Bools, Ints, Longs


@helper
def skip_taken(number: Integer, taken: Longs, n: Integer) -> Integer:
    """The free number with `number` free ones before it. Inserts it into taken[:n], ascending."""
    place = 0
    while place < n and taken[place] <= number + place:
        place += 1
    for later in range(n, place, -1):
        taken[later] = taken[later - 1]
    taken[place] = number + place
    return number + place


@kernel(
    types.void(readonly(int64), readonly(int64), readonly(int32), readonly(uint64), int32[:, ::1]),
)
def draw_items(users: Longs, offsets: Longs, items: Ints, keys: Words64, drawn: Ints) -> None:
    """Distinct items of each user's history, in random order; -1 past its end. Writes `drawn`."""
    taken = np.empty(drawn.shape[1], np.int64)
    for k in range(len(users)):
        start = offsets[users[k]]
        n = offsets[users[k] + 1] - start
        for j in range(drawn.shape[1]):
            drawn[k, j] = -1
            if j < n:
                free = below(random_word(keys[k], j), n - j)
                drawn[k, j] = items[start + skip_taken(free, taken, j)]


@kernel(
    types.void(
        readonly(int64),
        readonly(int64),
        readonly(int32),
        int64,
        readonly(uint64),
        int32[:, ::1],
    ),
)
def draw_unseen(
    users: Longs, offsets: Longs, items: Ints, n_items: int, keys: Words64, drawn: Ints
) -> None:
    """Distinct items outside each user's row, by Floyd's method; -1 past the last one.

    Writes `drawn`.
    """
    width = drawn.shape[1]
    ranks = np.empty(width, np.int64)
    for k in range(len(users)):
        start = offsets[users[k]]
        end = offsets[users[k] + 1]
        free = n_items - (end - start)
        for j in range(width):
            # Too few items: all of them, in their order.
            ranks[j] = j if j < free else -1
            if free >= width:
                top = free - width + j
                ranks[j] = below(random_word(keys[k], j), top + 1)
                for before in range(j):
                    if ranks[before] == ranks[j]:
                        # No earlier step could draw it.
                        ranks[j] = top
                        break
            drawn[k, j] = nth_unseen(items, start, end, ranks[j]) if ranks[j] >= 0 else -1


@kernel(types.void(int32[:, ::1], int64, boolean[:, ::1]))
def sort(items: Ints, n_clicks: int, clicked: Bools) -> None:
    """Sort every row, whose first `n_clicks` items were clicked. Writes both arrays.

    Insertion is fast for rows as short as requests.
    """
    for k in range(items.shape[0]):
        for j in range(items.shape[1]):
            item = items[k, j]
            place = j
            while place > 0 and items[k, place - 1] > item:
                items[k, place] = items[k, place - 1]
                clicked[k, place] = clicked[k, place - 1]
                place -= 1
            items[k, place] = item
            clicked[k, place] = j < n_clicks and item >= 0
