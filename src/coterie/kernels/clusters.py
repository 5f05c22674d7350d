"""Lloyd's k-means and drawing users from clusters, in passes over fixed blocks of users.

Sums within a block run in user order, and blocks are added in block order. The result has the
same bits for any number of threads, which neither BLAS nor scikit-learn promises. A negative
label marks a user who is in no cluster.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, float32, float64, int32, int64, types, uint64

from coterie.kernels.common import GOLDEN, Words64, finish, helper, kernel, readonly
from coterie.types import Bools, Doubles, Floats, Ints, Longs


@kernel(
    types.void(
        readonly(float32, 2),
        readonly(int32),
        int64,
        int64,
        int64,
        float64[:, :, ::1],
        int64[:, ::1],
    ),
)
def add_up(
    rows: Floats, labels: Ints, size: int, first: int, last: int, sums: Doubles, counts: Longs
) -> None:
    """Write sums and counts of every cluster for blocks first..last of `size` users.

    `sums` is (blocks, clusters, d) and `counts` is (blocks, clusters).
    """
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

    `centres` is (d, clusters), so that the inner loop runs over clusters and is vectorised. Four
    dimensions at a time save three of four loads and stores of `near`.
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


@kernel(
    types.int64(
        readonly(float32, 2), readonly(float32, 2), readonly(float32), int64, int64, int32[::1]
    ),
)
def assign(rows: Floats, centres: Floats, half: Floats, first: int, last: int, labels: Ints) -> int:
    """Assign users first..last to their nearest centre; a tie goes to the lower index.

    `half` is |c|^2 / 2 of every centre. Returns the number of changed labels.
    """
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


@kernel(
    types.void(
        float32[:, ::1],
        readonly(int32),
        readonly(boolean),
        readonly(float32, 2),
        int64,
        int64,
    ),
)
def move_along(
    rows: Floats, labels: Ints, still: Bools, moves: Floats, first: int, last: int
) -> None:
    """rows[u] += moves[labels[u]] for users first..last that are not `still`. Writes `rows`."""
    for u in range(first, last):
        if labels[u] >= 0 and not still[u]:
            row = rows[np.uint64(u)]
            move = moves[np.uint64(labels[u])]
            for f in range(len(row)):
                row[f] += move[f]


@kernel(
    types.void(readonly(int32), uint64, readonly(uint64), int64, int64, boolean[::1]),
)
def draw_lots(
    labels: Ints, key: np.uint64, thresholds: Words64, first: int, last: int, drawn: Bools
) -> None:
    """Mark users first..last whose lot is at most the threshold of their cluster.

    A user's lot is the random word that `streams.keys` derives for them.
    """
    for u in range(first, last):
        drawn[u] = labels[u] >= 0 and finish(key ^ (np.uint64(u) + GOLDEN)) <= thresholds[labels[u]]


@kernel(
    types.void(readonly(boolean), uint64, uint64, int64, int64, boolean[::1]),
)
def draw_lots_of_present(
    present: Bools, key: np.uint64, threshold: np.uint64, first: int, last: int, drawn: Bools
) -> None:
    """Mark users first..last who are present and whose lot is at most the threshold."""
    for u in range(first, last):
        drawn[u] = present[u] and finish(key ^ (np.uint64(u) + GOLDEN)) <= threshold
