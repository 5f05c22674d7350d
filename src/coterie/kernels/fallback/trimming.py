"""The extremes of every component of the rows of an item, replaced by less extreme ones."""

from __future__ import annotations

import numpy as np

from coterie.types import Ints, Longs

BLOCK = 1 << 18
"""Entries that are sorted in one call. More would not stay in the processor's cache."""


def order(items: Ints, following: Longs, places: Longs) -> None:
    """Put the position of each item into `places`, from the item's entry of `following` on."""
    by_item = np.argsort(items, kind="stable")
    ordered = items[by_item]
    earlier = np.arange(len(items)) - np.searchsorted(ordered, ordered)
    places[following[ordered] + earlier] = by_item
    following += np.bincount(items, minlength=len(following))


def trim(
    places: Longs, starts: Longs, cuts: Longs, fewest: int, low: int, high: int, rows: Ints
) -> None:
    """For items low..high: extremes get the values of their neighbours; few rows become zero.

    Items that the same number of clients send are sorted together, block by block.
    """
    counts = np.diff(starts[low : high + 1])
    few = np.flatnonzero(counts < fewest)
    for i in few[counts[few] > 0] + low:
        rows[places[starts[i] : starts[i + 1]]] = 0
    for count in np.unique(counts[counts >= fewest]).tolist():
        same = low + np.flatnonzero(counts == count)
        cut = int(cuts[same[0]])
        step = max(BLOCK // (count * rows.shape[1]), 1)
        for k in range(0, len(same), step):
            own = places[starts[same[k : k + step], None] + np.arange(count)]
            block = rows[own]  # (items, clients, components)
            ascending = np.sort(block, axis=1)
            rows[own] = np.clip(block, ascending[:, [cut]], ascending[:, [count - 1 - cut]])
