"""Lloyd's k-means and drawing users from clusters, in passes over fixed blocks of users.

A block's sums are made in the order of its users and added in the order of the blocks: the same bits for any number of
threads, which neither BLAS nor scikit-learn promise. A label below zero marks somebody who is in no cluster.
"""

from __future__ import annotations

import numba
import numpy as np
from numba import boolean, float32, float64, int32, int64, types, uint64

from coterie.kernels.common import GOLDEN, finish, readonly
from coterie.types import Bools, Doubles, Floats, Ints, Longs


@numba.njit(
    types.void(readonly(float32, 2), readonly(int32), int64, int64, int64, float64[:, :, ::1], int64[:, ::1]),
    nogil=True, cache=True, error_model="numpy",
)  # fmt: skip
def add_up(rows: Floats, labels: Ints, size: int, first: int, last: int, sums: Doubles, counts: Longs) -> None:
    """Sums and counts of every cluster in blocks first..last of `size` users."""
    for b in range(first, last):
        sums[b] = 0.0
        counts[b] = 0
        for u in range(b * size, min(len(rows), (b + 1) * size)):
            c = labels[u]
            if c >= 0:
                counts[b, c] += 1
                for f in range(rows.shape[1]):
                    sums[b, c, f] += np.float64(rows[u, f])


@numba.njit(
    types.int64(readonly(float32, 2), readonly(float32, 2), int64, int64, int32[::1], float32[::1]),
    nogil=True, cache=True, error_model="numpy",
)  # fmt: skip
def assign(rows: Floats, centres: Floats, first: int, last: int, labels: Ints, distances: Floats) -> int:
    """The nearest centre of users first..last (the first of equally near ones); returns how many labels changed.

    `centres` is (d, clusters): the loop over clusters is the inner one and runs in vectors.
    """
    d, p = centres.shape
    near = np.empty(p, np.float32)
    changed = 0
    for u in range(first, last):
        if labels[u] < 0:
            continue
        near[:] = np.float32(0.0)
        for f in range(d):
            x, centre = rows[np.uint64(u), np.uint64(f)], centres[np.uint64(f)]
            for c in range(p):
                away = x - centre[c]
                near[c] += away * away
        best, least = 0, near[0]
        for c in range(1, p):
            if near[c] < least:
                best, least = c, near[c]
        changed += labels[u] != best
        labels[u] = best
        distances[u] = least
    return changed


@numba.njit(
    types.void(
        float32[:, ::1], readonly(int32), readonly(boolean), readonly(float32, 2), int64, int64,
    ),
    nogil=True, cache=True, error_model="numpy",
)  # fmt: skip
def move_along(rows: Floats, labels: Ints, still: Bools, moves: Floats, first: int, last: int) -> None:
    """rows[u] += moves[labels[u]] for users first..last that are not `still`. Writes rows."""
    for u in range(first, last):
        if labels[u] >= 0 and not still[u]:
            row, move = rows[np.uint64(u)], moves[np.uint64(labels[u])]
            for f in range(len(row)):
                row[f] += move[f]


@numba.njit(
    types.void(readonly(int32), uint64, readonly(uint64), int64, int64, boolean[::1]),
    nogil=True, cache=True, error_model="numpy",
)  # fmt: skip
def draw_lots(labels: Ints, key: int, thresholds: np.ndarray, first: int, last: int, drawn: Bools) -> None:
    """Marks users first..last whose lot is at most their cluster's threshold; lots are those of `streams.keys`."""
    for u in range(first, last):
        drawn[u] = labels[u] >= 0 and finish(key ^ (np.uint64(u) + GOLDEN)) <= thresholds[labels[u]]
