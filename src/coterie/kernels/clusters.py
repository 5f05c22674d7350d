"""Lloyd's k-means and drawing users from clusters, in passes over fixed blocks of users.

A block's sums are made in the order of its users and added in the order of the blocks: the same bits for any number of
threads, which neither BLAS nor scikit-learn promise. A label below zero marks somebody who is in no cluster.
"""

from __future__ import annotations

import numba
import numpy as np
from numba import boolean, float32, float64, int32, int64, types, uint64

from coterie.kernels.common import GOLDEN, finish, helper, readonly
from coterie.types import Bools, Doubles, Floats, Ints, Longs


@numba.njit(
    types.void(
        readonly(float32, 2),
        readonly(int32),
        int64,
        int64,
        int64,
        float64[:, :, ::1],
        int64[:, ::1],
    ),
    nogil=True,
    cache=True,
    error_model="numpy",
)
def add_up(
    rows: Floats, labels: Ints, size: int, first: int, last: int, sums: Doubles, counts: Longs
) -> None:
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


@helper
def closeness(row: Floats, centres: Floats, half: Floats, near: Floats) -> None:
    """near[c] = |c|^2 / 2 - x . c, which orders centres as their distance to x does.

    `centres` is (d, clusters): clusters are the inner loop, which the compiler turns into vectors; four dimensions at a
    time spare it three loads and stores of `near` in four.
    """
    d, p = centres.shape
    for c in range(p):
        near[c] = half[c]
    for f in range(0, d // 4 * 4, 4):
        x0 = row[f]
        x1 = row[f + 1]
        x2 = row[f + 2]
        x3 = row[f + 3]
        c0 = centres[f]
        c1 = centres[f + 1]
        c2 = centres[f + 2]
        c3 = centres[f + 3]
        for c in range(p):
            near[c] -= (x0 * c0[c] + x1 * c1[c]) + (x2 * c2[c] + x3 * c3[c])
    for f in range(d // 4 * 4, d):
        x = row[f]
        centre = centres[f]
        for c in range(p):
            near[c] -= x * centre[c]


@numba.njit(
    types.int64(
        readonly(float32, 2), readonly(float32, 2), readonly(float32), int64, int64, int32[::1]
    ),
    nogil=True,
    cache=True,
    error_model="numpy",
)
def assign(rows: Floats, centres: Floats, half: Floats, first: int, last: int, labels: Ints) -> int:
    """The nearest centre of users first..last (the first of equally near ones); returns how many labels changed."""
    near = np.empty(len(half), np.float32)
    changed = 0
    for u in range(first, last):
        if labels[u] < 0:
            continue
        closeness(rows[np.uint64(u)], centres, half, near)
        best = 0
        least = near[0]
        for c in range(1, len(near)):
            if near[c] < least:
                best = c
                least = near[c]
        changed += labels[u] != best
        labels[u] = best
    return changed


@numba.njit(
    types.void(
        float32[:, ::1],
        readonly(int32),
        readonly(boolean),
        readonly(float32, 2),
        int64,
        int64,
    ),
    nogil=True,
    cache=True,
    error_model="numpy",
)
def move_along(
    rows: Floats, labels: Ints, still: Bools, moves: Floats, first: int, last: int
) -> None:
    """rows[u] += moves[labels[u]] for users first..last that are not `still`. Writes rows."""
    for u in range(first, last):
        if labels[u] >= 0 and not still[u]:
            row = rows[np.uint64(u)]
            move = moves[np.uint64(labels[u])]
            for f in range(len(row)):
                row[f] += move[f]


@numba.njit(
    types.void(readonly(int32), uint64, readonly(uint64), int64, int64, boolean[::1]),
    nogil=True,
    cache=True,
    error_model="numpy",
)
def draw_lots(
    labels: Ints, key: int, thresholds: np.ndarray, first: int, last: int, drawn: Bools
) -> None:
    """Marks users first..last whose lot is at most their cluster's threshold; lots are those of `streams.keys`."""
    for u in range(first, last):
        drawn[u] = labels[u] >= 0 and finish(key ^ (np.uint64(u) + GOLDEN)) <= thresholds[labels[u]]
