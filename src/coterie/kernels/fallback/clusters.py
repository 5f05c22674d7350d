"""Lloyd's k-means and drawing users from clusters.

Additions run in the order of the kernels, so that the results are bit-identical.
"""

from __future__ import annotations

import numpy as np

from coterie.core import streams
from coterie.core.sampling import Keys
from coterie.types import Bools, Doubles, Floats, Ints, Longs


def add_up(
    rows: Floats, labels: Ints, size: int, first: int, last: int, sums: Doubles, counts: Longs
) -> None:
    """Write sums and counts of every cluster for blocks first..last of `size` users."""
    n_clusters = counts.shape[1]
    for b in range(first, last):
        block = rows[b * size : (b + 1) * size]
        groups = labels[b * size : (b + 1) * size]
        block = block[groups >= 0]
        groups = groups[groups >= 0]
        counts[b] = np.bincount(groups, minlength=n_clusters)
        # np.bincount adds in user order, as the kernel does; other NumPy sums do not.
        for f in range(rows.shape[1]):
            sums[b, :, f] = np.bincount(groups, block[:, f], n_clusters)


def assign(rows: Floats, centres: Floats, half: Floats, first: int, last: int, labels: Ints) -> int:
    """Assign users first..last to their nearest centre; a tie goes to the lower index.

    Returns the number of changed labels.
    """
    users = first + np.flatnonzero(labels[first:last] >= 0)
    best = closeness(rows[users], centres, half).argmin(axis=1)
    changed = int((labels[users] != best).sum())
    labels[users] = best
    return changed


def closeness(rows: Floats, centres: Floats, half: Floats) -> Floats:
    """(users, clusters) |c|^2 / 2 - x . c; `centres` is (d, clusters).

    Four dimensions are added at a time, as in the kernel.
    """
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
    """rows[u] += moves[labels[u]] for users first..last that are not `still`. Writes `rows`."""
    users = first + np.flatnonzero((labels[first:last] >= 0) & ~still[first:last])
    rows[users] += moves[labels[users]]


def draw_lots(
    labels: Ints, key: np.uint64, thresholds: Keys, first: int, last: int, drawn: Bools
) -> None:
    """Mark users first..last whose lot is at most the threshold of their cluster.

    A user's lot is the random word that `streams.keys` derives for them.
    """
    groups = labels[first:last]
    users = np.arange(first, last, dtype=np.uint64)
    lots = streams.mix_array(key ^ (users + np.uint64(streams.GOLDEN)))
    drawn[first:last] = (groups >= 0) & (lots <= thresholds[np.maximum(groups, 0)])


def draw_lots_of_present(
    present: Bools, key: np.uint64, threshold: np.uint64, first: int, last: int, drawn: Bools
) -> None:
    """Mark users first..last who are present and whose lot is at most the threshold."""
    users = np.arange(first, last, dtype=np.uint64)
    lots = streams.mix_array(key ^ (users + np.uint64(streams.GOLDEN)))
    drawn[first:last] = present[first:last] & (lots <= threshold)
