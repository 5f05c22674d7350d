"""Lloyd's k-means and drawing users from clusters. Additions come in the kernels' order, so that the bits are theirs."""

from __future__ import annotations

import numpy as np

from coterie.core import streams
from coterie.types import Bools, Doubles, Floats, Ints, Longs


def add_up(
    rows: Floats, labels: Ints, size: int, first: int, last: int, sums: Doubles, counts: Longs
) -> None:
    """Sums and counts of every cluster in blocks first..last of `size` users."""
    n_clusters = counts.shape[1]
    for b in range(first, last):
        block = rows[b * size : (b + 1) * size]
        groups = labels[b * size : (b + 1) * size]
        block = block[groups >= 0]
        groups = groups[groups >= 0]
        counts[b] = np.bincount(groups, minlength=n_clusters)
        for f in range(rows.shape[1]):  # bincount adds one user after the other
            sums[b, :, f] = np.bincount(groups, block[:, f], n_clusters)


def assign(rows: Floats, centres: Floats, half: Floats, first: int, last: int, labels: Ints) -> int:
    """The nearest centre of users first..last (the first of equally near ones); returns how many labels changed."""
    people = first + np.flatnonzero(labels[first:last] >= 0)
    best = closeness(rows[people], centres, half).argmin(axis=1)
    changed = int((labels[people] != best).sum())
    labels[people] = best
    return changed


def closeness(rows: Floats, centres: Floats, half: Floats) -> Floats:
    """(users, clusters) |c|^2 / 2 - x . c, four dimensions at a time; `centres` is (d, clusters)."""
    near = np.tile(half, (len(rows), 1))
    d = len(centres)
    x = [rows[:, f, None] * centres[f] for f in range(d)]
    for f in range(0, d - 3, 4):
        near -= (x[f] + x[f + 1]) + (x[f + 2] + x[f + 3])
    for f in range(d - d % 4, d):
        near -= x[f]
    return near


def move_along(
    rows: Floats, labels: Ints, still: Bools, moves: Floats, first: int, last: int
) -> None:
    """rows[u] += moves[labels[u]] for users first..last that are not `still`. Writes rows."""
    people = first + np.flatnonzero((labels[first:last] >= 0) & ~still[first:last])
    rows[people] += moves[labels[people]]


def draw_lots(
    labels: Ints, key: np.uint64, thresholds: np.ndarray, first: int, last: int, drawn: Bools
) -> None:
    """Marks users first..last whose lot is at most their cluster's threshold; lots are those of `streams.keys`."""
    groups = labels[first:last]
    lots = streams.mix_array(
        key ^ (np.arange(first, last, dtype=np.uint64) + np.uint64(streams.GOLDEN))
    )
    drawn[first:last] = (groups >= 0) & (lots <= thresholds[np.maximum(groups, 0)])
