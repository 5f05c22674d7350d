"""Where a row's relevant columns stand among its candidates, and the best candidates."""

from __future__ import annotations

import numpy as np

from coterie.types import Bools, Floats, Ints, Longs


def rank(
    scores: Floats,
    names: Ints,
    out_offsets: Longs,
    out: Ints,
    wanted_offsets: Longs,
    wanted: Ints,
    first: int,
    last: int,
    above: Longs,
    tied: Longs,
    top: Ints,
    sound: Bools,
) -> None:
    """Rows first..last: how many candidates score above each wanted column, how many the same, and the best ones."""
    for r in range(first, last):
        row = scores[r]
        mine = slice(wanted_offsets[r], wanted_offsets[r + 1])
        sound[r] = np.isfinite(row).all()
        if not sound[r]:
            continue
        columns = np.delete(np.arange(len(row)), out[out_offsets[r] : out_offsets[r + 1]])
        values = row[columns]
        called = names[r, columns] if len(names) else columns
        ordered = np.sort(values)
        relevant = row[wanted[mine]]
        not_above = np.searchsorted(ordered, relevant, "right")
        above[mine] = len(ordered) - not_above
        tied[mine] = not_above - np.searchsorted(ordered, relevant, "left")
        top[r] = -1
        k = min(top.shape[1], len(ordered))
        if k:
            good = np.flatnonzero(values >= ordered[-k])
            top[r, :k] = called[good[np.lexsort((called[good], -values[good]))[:k]]]
