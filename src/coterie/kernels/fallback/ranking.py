"""Ranks of a row's relevant columns among its candidates, and the top candidates."""

from __future__ import annotations

import numpy as np

from coterie.types import Bools, Floats, Ints, Longs


def rank(
    scores: Floats,
    names: Ints,
    excluded_offsets: Longs,
    excluded: Ints,
    relevant_offsets: Longs,
    relevant: Ints,
    first: int,
    last: int,
    above: Longs,
    tied: Longs,
    top: Ints,
    sound: Bools,
) -> None:
    """Rank rows first..last, as the kernel does.

    Writes how many candidates score above each relevant column, how many tie with it, and the top
    items.
    """
    for r in range(first, last):
        row = scores[r]
        own = slice(relevant_offsets[r], relevant_offsets[r + 1])
        sound[r] = np.isfinite(row).all()
        if not sound[r]:
            continue
        hidden = excluded[excluded_offsets[r] : excluded_offsets[r + 1]]
        columns = np.delete(np.arange(len(row)), hidden)
        values = row[columns]
        items = names[r, columns] if len(names) else columns
        ordered = np.sort(values)
        scored = row[relevant[own]]
        not_above = np.searchsorted(ordered, scored, "right")
        above[own] = len(ordered) - not_above
        tied[own] = not_above - np.searchsorted(ordered, scored, "left")
        top[r] = -1
        k = min(top.shape[1], len(ordered))
        if k:
            good = np.flatnonzero(values >= ordered[-k])
            order = np.lexsort((items[good], -values[good]))
            top[r, :k] = items[good[order[:k]]]
