"""What a client of two towers draws for a round."""

from __future__ import annotations

import numpy as np

from coterie.core import sampling
from coterie.core.sampling import Keys
from coterie.types import Bools, Ints, Longs, Rows


def draw_items(users: Longs, offsets: Longs, items: Ints, keys: Keys, drawn: Ints) -> None:
    """Distinct items of each user's history, in random order; -1 past its end. Writes `drawn`."""
    counts = offsets[users + 1] - offsets[users]
    places = sampling.draw_sequences(counts, drawn.shape[1], keys)
    present = places >= 0
    drawn.fill(-1)
    drawn[present] = items[(offsets[users][:, None] + places)[present]]


def draw_unseen(
    users: Longs, offsets: Longs, items: Ints, n_items: int, keys: Keys, drawn: Ints
) -> None:
    """Distinct items outside each user's row; -1 past the last one. Writes `drawn`."""
    seen = Rows(offsets, items).of_users(users)
    rows = np.arange(len(users))
    drawn[:] = sampling.unseen_items(seen, rows, n_items, drawn.shape[1], keys)


def sort(items: Ints, n_clicks: int, clicked: Bools) -> None:
    """Sort every row, whose first `n_clicks` items were clicked. Writes both arrays."""
    # Sorting numbers that carry their column is faster than sorting columns by items.
    packed = np.sort(items.astype(np.int64) << 32 | np.arange(items.shape[1]), axis=1)
    items[:] = packed >> 32
    clicked[:] = (packed & 0xFFFFFFFF < n_clicks) & (items >= 0)
