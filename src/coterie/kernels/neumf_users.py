"""NeuMF trained by every user of a cohort on its own copy: SGD sample by sample, then what changed, in fixed point."""

from __future__ import annotations

import numba
import numpy as np
from numba import boolean, float32, int32, int64, types

from coterie.kernels.common import Scalar, helper, readonly
from coterie.kernels.quantise import quantise, quantise_change
from coterie.kernels.tower import make_room, step
from coterie.types import Floats, Ints, Longs


@helper
def gather(item_rows: Floats, items: Ints, low: Scalar, q: Floats, before: Floats) -> None:
    """The rows a user touches, twice: to train on, and to compare with."""
    width = item_rows.shape[1]
    for r in range(len(q) // width):
        row = item_rows[np.uint64(items[low + r])]
        for f in range(width):
            q[r * width + f] = row[f]
            before[r * width + f] = row[f]


@helper
def gather_dense(dense: Floats, places: Longs, w: Floats) -> None:
    w[:] = np.float32(0.0)  # a user who diverged leaves nothing to the next one
    for j in range(len(dense)):
        w[places[j]] = dense[j]


@numba.njit(error_model="numpy")
def visit(
    samples: Ints,
    targets: Floats,
    first: int,
    last: int,
    p: Floats,
    q: Floats,
    w: Floats,
    rooms: Longs,
    x: Floats,
    g: Floats,
    on: Longs,
    counts: Longs,
    squared: bool,
    rate: Scalar,
    keep: Scalar,
) -> None:
    """One user's samples. A function of its own and without slices: then no reference is counted inside the loop."""
    width = len(p)
    for s in range(first, last):
        row = np.int64(samples[s]) * width
        step(p, 0, q, row, width // 2, w, rooms, x, g, on, counts, targets[s], squared, rate, keep)


@numba.njit(
    types.void(
        readonly(int64),
        readonly(int32),
        readonly(int64),
        readonly(int32),
        readonly(float32),
        readonly(float32, 2),
        readonly(float32, 2),
        readonly(float32),
        readonly(int64),
        boolean,
        float32,
        float32,
        int64,
        int64,
        int32[:, ::1],
        int32[:, ::1],
        int32[:, ::1],
    ),
    nogil=True,
    cache=True,
    error_model="numpy",
)
def train(
    offsets: Longs,
    items: Ints,
    starts: Longs,
    samples: Ints,
    targets: Floats,
    user_rows: Floats,
    item_rows: Floats,
    dense: Floats,
    sizes: Longs,
    squared: bool,
    rate: float,
    reg: float,
    first: int,
    last: int,
    user_deltas: Ints,
    item_deltas: Ints,
    dense_deltas: Ints,
) -> None:
    """Users first..last of a cohort; each starts from the same item rows and `dense`. `sizes` are those of the tower."""
    most = 0
    width = item_rows.shape[1]
    for k in range(first, last):
        most = max(most, offsets[k + 1] - offsets[k])
    rows = np.empty(most * width, np.float32)
    rows_before = np.empty(most * width, np.float32)
    rooms = np.empty(len(sizes), np.int64)
    places = np.empty(len(dense), np.int64)
    w = np.empty(make_room(sizes, rooms, places), np.float32)
    x = np.zeros(rooms.sum(), np.float32)
    g = np.zeros(rooms.sum(), np.float32)
    on = np.empty(rooms.sum() + 1, np.int64)
    counts = np.empty(len(sizes), np.int64)
    keep = np.float32(1.0) - rate * reg
    for k in range(first, last):
        low = offsets[k]
        high = offsets[k + 1]
        p = user_rows[k].copy()
        q = rows[: (high - low) * width]
        before = rows_before[: (high - low) * width]
        gather(item_rows, items, low, q, before)
        gather_dense(dense, places, w)
        visit(
            samples,
            targets,
            starts[k],
            starts[k + 1],
            p,
            q,
            w,
            rooms,
            x,
            g,
            on,
            counts,
            squared,
            rate,
            keep,
        )
        quantise_change(q, before, item_deltas[low:high].reshape(-1))
        quantise_change(p, user_rows[k], user_deltas[k])
        for j in range(len(dense)):
            dense_deltas[k, j] = quantise(w[places[j]] - dense[j])
