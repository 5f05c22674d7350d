"""Draws without replacement for many users at once; each depends only on the user's stream."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coterie.core import streams
from coterie.types import Ints, Longs, Rows

Keys = NDArray[np.uint64]
CELLS = 1 << 20  # entries of the (users, items) block processed at a time


def unseen_items(seen: Rows, users: Ints | Longs, n_items: int, n: int, keys: Keys) -> Ints:
    """(users, n) distinct items outside `seen`, uniform; -1 where a user has fewer than n."""
    free = n_items - seen.counts_of(users)
    ranks = draw_sets(free, n, keys)
    items = nth_unseen(seen, users, np.maximum(ranks, 0), n_items)
    return np.where(ranks < 0, -1, items).astype(np.int32)


def many_unseen_items(seen: Rows, users: Ints | Longs, n_items: int, n: Longs, keys: Keys) -> Ints:
    """Like `unseen_items`, with a number of items for each user, which may be large.

    Every item gets a random value; the unseen items with the lowest values are drawn.
    """
    n = np.minimum(n, n_items - seen.counts_of(users))
    drawn = np.full((len(users), int(n.max(initial=0))), -1, np.int32)
    every_item = np.arange(n_items, dtype=np.uint64)
    bits = np.uint64(max(n_items - 1, 1).bit_length())
    step = max(1, CELLS // n_items)
    for first in range(0, len(users), step):
        part = slice(first, first + step)
        values = streams.mix_array(
            keys[part, None] + (every_item + np.uint64(1)) * np.uint64(streams.GOLDEN)
        )
        # The low bits carry the item index: a plain sort is faster than an argsort.
        values = values >> bits << bits | every_item
        values[seen.take(users[part])] = np.iinfo(np.uint64).max
        values.sort(axis=1)
        index_bits = (np.uint64(1) << bits) - np.uint64(1)
        items = (values[:, : drawn.shape[1]] & index_bits).astype(np.int32)
        drawn[part] = np.where(np.arange(drawn.shape[1]) < n[part, None], items, -1)
    return drawn


def nth_unseen(seen: Rows, users: Ints | Longs, ranks: Longs, n_items: int) -> Longs:
    """The item with `rank` unseen items before it.

    It is rank + (the number of seen items s_j with s_j - j <= rank).
    """
    n = len(seen.counts)
    # s_j - j, in one ascending sequence over all rows: every row begins n_items + 1 higher.
    row_starts = np.arange(n) * (n_items + 1) + seen.offsets[:-1]
    before = np.repeat(row_starts, seen.counts)
    before += seen.items
    before -= np.arange(len(seen.items))
    passed = np.searchsorted(
        before, users[:, None].astype(np.int64) * (n_items + 1) + ranks, side="right"
    )
    return ranks + passed - seen.offsets[users][:, None]


def draw_sets(limits: Longs, n: int, keys: Keys) -> Longs:
    """(rows, n) distinct numbers below each row's limit, by Floyd's method; -1 past the limit.

    Every set is equally likely; the order within a row is not uniform.
    """
    # Draw the j-th from 0..top. On a repeat take top, which no earlier step could draw.
    tops = limits - n + np.arange(n)[:, None]
    chosen = streams.below(streams.first_words(keys, n), np.maximum(tops + 1, 0))
    for j in range(1, n):
        repeated = (chosen[:j] == chosen[j]).any(axis=0)
        np.copyto(chosen[j], tops[j], where=repeated)
    # A row with too few numbers takes them all.
    short = np.flatnonzero(limits < n)
    numbers = np.arange(n)[:, None]
    chosen[:, short] = np.where(numbers < limits[short], numbers, -1)
    return np.ascontiguousarray(chosen.T)


def draw_sequences(limits: Longs, n: int, keys: Keys) -> Longs:
    """(rows, n) distinct numbers below each row's limit, drawn one by one; -1 past the limit.

    Every order is equally likely, so that any prefix of a row is a uniform draw too.
    """
    left = limits - np.arange(n)[:, None]
    chosen = streams.below(streams.first_words(keys, n), np.maximum(left, 1))
    taken = np.empty((n, len(limits)), np.int64)
    for j, drawn in enumerate(chosen):
        # Skip the numbers that are taken, in ascending order.
        for before in taken[:j]:
            drawn += drawn >= before
        taken[j] = np.where(left[j] > 0, drawn, np.iinfo(np.int64).max)
        taken[: j + 1].sort(axis=0)
    return np.ascontiguousarray(np.where(left > 0, chosen, -1).T)
