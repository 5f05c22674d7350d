"""The distinct items of a round's requests."""

from __future__ import annotations

import numpy as np

from coterie.types import Ints, Longs


def distinct_items(items: Ints) -> tuple[Ints, Longs]:
    """The distinct items, ascending, and the position of every entry among them.

    The padding -1 comes first, where there is any. A table of all items is faster than sorting.
    """
    entries = items + 1
    present = np.zeros(int(entries.max(initial=-1)) + 1, bool)
    present[entries] = True
    distinct = np.flatnonzero(present).astype(np.int32) - np.int32(1)
    return distinct, (np.cumsum(present) - 1)[entries]
