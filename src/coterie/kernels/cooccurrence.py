"""Weighted co-occurrences of items, as integers.

Every thread owns a range of items and adds to its own rows only.
"""

from __future__ import annotations

from numba import int32, int64, types

from coterie.kernels.common import kernel, readonly
from coterie.types import Ints, Longs


@kernel(
    types.void(
        readonly(int64),
        readonly(int32),
        readonly(int64),
        readonly(int32),
        readonly(int64),
        int64,
        int64,
        int64[::1],
    ),
)
def add_pairs(
    offsets: Longs,
    items: Ints,
    item_offsets: Longs,
    users: Ints,
    weights: Longs,
    low: int,
    high: int,
    total: Longs,
) -> None:
    """For items i in low..high and j >= i: add the weights of the users who have both.

    The items of user u are items[offsets[u]:offsets[u + 1]], ascending, and the users of item i
    are users[item_offsets[i]:item_offsets[i + 1]]. `total` lists the pairs row by row, on and above
    the diagonal.
    """
    n = len(item_offsets) - 1
    for i in range(low, high):
        # Pair (i, j) is at start + j.
        start = i * n - i * (i - 1) // 2 - i
        for e in range(item_offsets[i], item_offsets[i + 1]):
            u = users[e]
            weight = weights[u]
            for f in range(offsets[u + 1] - 1, offsets[u] - 1, -1):
                if items[f] < i:
                    break
                total[start + items[f]] += weight
