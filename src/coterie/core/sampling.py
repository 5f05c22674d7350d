"""Draws without replacement, for many people at once: what one person draws depends on their own stream alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coterie.core import streams
from coterie.types import Ints, Longs, Rows

Keys = NDArray[np.uint64]
CELLS = 1 << 20


def unseen_items(seen: Rows, users: Ints | Longs, n_items: int, n: int, keys: Keys) -> Ints:
    """(users, n) distinct items outside `seen`, uniformly; -1 where a user has no more."""
    free = n_items - seen.counts_of(users)
    ranks = a_set(free, n, keys)
    return np.where(ranks < 0, -1, nth_unseen(seen, users, np.maximum(ranks, 0), n_items)).astype(
        np.int32
    )


def many_unseen_items(seen: Rows, users: Ints | Longs, n_items: int, n: Longs, keys: Keys) -> Ints:
    """The same with a number for each user and no limit to it: everything draws a lot, and the lowest are in."""
    n = np.minimum(n, n_items - seen.counts_of(users))
    found = np.full((len(users), int(n.max(initial=0))), -1, np.int32)
    numbers = np.arange(n_items, dtype=np.uint64)
    bits = np.uint64(max(n_items - 1, 1).bit_length())
    step = max(1, CELLS // n_items)
    for first in range(0, len(users), step):
        part = slice(first, first + step)
        lots = streams.mix_array(
            keys[part, None] + (numbers + np.uint64(1)) * np.uint64(streams.GOLDEN)
        )
        lots = lots >> bits << bits | numbers  # sorting numbers is quicker than sorting places
        lots[seen.take(users[part])] = np.iinfo(np.uint64).max
        lots.sort(axis=1)
        items = (lots[:, : found.shape[1]] & ((np.uint64(1) << bits) - np.uint64(1))).astype(
            np.int32
        )
        found[part] = np.where(np.arange(found.shape[1]) < n[part, None], items, -1)
    return found


def nth_unseen(seen: Rows, users: Ints | Longs, ranks: Longs, n_items: int) -> Longs:
    """The item with `rank` unseen items before it: rank + (how many seen items s_j have s_j - j <= rank)."""
    owner = np.repeat(np.arange(len(seen.counts)), seen.counts)
    before = seen.items - (np.arange(len(seen.items)) - seen.offsets[owner])
    passed = np.searchsorted(
        owner * (n_items + 1) + before,
        users[:, None].astype(np.int64) * (n_items + 1) + ranks,
        side="right",
    )
    return ranks + passed - seen.offsets[users][:, None]


def a_set(limits: Longs, n: int, keys: Keys) -> Longs:
    """(rows, n) distinct numbers below each row's limit, by Floyd's method for all rows at once; -1 past the limit.

    Every set is as likely as any other; the order within a row is not.
    """
    chosen = np.full((len(limits), n), -1, np.int64)
    for j in range(n):
        top = (
            limits - n + j
        )  # draw from 0..top; if that is taken, take top, which no earlier step could draw
        drawn = streams.below(streams.words(keys, j), np.maximum(top + 1, 0))
        chosen[:, j] = np.where((chosen[:, :j] == drawn[:, None]).any(axis=1), top, drawn)
    short = limits < n
    chosen[short] = np.where(np.arange(n) < limits[short, None], np.arange(n), -1)
    return chosen


def sequential(limits: Longs, n: int, keys: Keys) -> Longs:
    """(rows, n) distinct numbers below each row's limit, one drawn after the other from those left; -1 where none is.

    Every order is as likely as any other: the first few are a draw of their own.
    """
    chosen = np.empty((len(limits), n), np.int64)
    taken = np.empty((len(limits), 0), np.int64)
    for j in range(n):
        left = limits - j
        drawn = streams.below(streams.words(keys, j), np.maximum(left, 1))
        for before in taken.T:  # ascending: past each that is taken and not above
            drawn += drawn >= before
        chosen[:, j] = np.where(left > 0, drawn, -1)
        taken = np.sort(
            np.hstack([taken, np.where(left > 0, drawn, np.iinfo(np.int64).max)[:, None]]), axis=1
        )
    return chosen
