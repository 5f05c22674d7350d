"""NeuMF trained by every user of a cohort on a local copy: SGD per sample, then the change."""

from __future__ import annotations

import numpy as np
from numba import boolean, float32, int32, int64, types

from coterie.kernels.common import Integer, Real, helper, kernel, readonly, subroutine
from coterie.kernels.quantise import quantise, quantise_change
from coterie.kernels.tower import lay_out, step
from coterie.types import Floats, Ints, Longs


@helper
def gather(item_rows: Floats, items: Ints, low: Integer, q: Floats, before: Floats) -> None:
    """Copy the rows that a user touches twice, flat: to train on, and to compare with later."""
    width = item_rows.shape[1]
    for r in range(len(q) // width):
        row = item_rows[np.uint64(items[low + r])]
        for f in range(width):
            q[r * width + f] = row[f]
            before[r * width + f] = row[f]


@helper
def gather_dense(dense: Floats, places: Longs, w: Floats) -> None:
    """Copy the dense parameters to their padded positions."""
    # Clear the padding too: a user who diverged may have left NaN there.
    w[:] = np.float32(0.0)
    for j in range(len(dense)):
        w[places[j]] = dense[j]


@subroutine
def train_user(
    samples: Ints,
    targets: Floats,
    first: int,
    last: int,
    p: Floats,
    q: Floats,
    w: Floats,
    padded: Longs,
    x: Floats,
    g: Floats,
    active: Longs,
    counts: Longs,
    squared: bool,
    learning_rate: Real,
    keep: Real,
) -> None:
    """Train on one user's samples.

    This is a separate function without slices, because slicing in the loop would make Numba count
    references there.
    """
    width = len(p)
    for s in range(first, last):
        row = np.int64(samples[s]) * width
        step(
            p,
            0,
            q,
            row,
            width // 2,
            w,
            padded,
            x,
            g,
            active,
            counts,
            targets[s],
            squared,
            learning_rate,
            keep,
        )


@kernel(
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
    learning_rate: float,
    reg: float,
    first: int,
    last: int,
    user_deltas: Ints,
    item_deltas: Ints,
    dense_deltas: Ints,
) -> None:
    """Train users first..last of a cohort, as `gmf_users.train` does.

    `sizes` are the layer sizes of the tower, and `dense` holds everything but the rows.
    """
    most = 0
    width = item_rows.shape[1]
    for k in range(first, last):
        most = max(most, offsets[k + 1] - offsets[k])
    rows = np.empty(most * width, np.float32)
    rows_before = np.empty(most * width, np.float32)
    padded = np.empty(len(sizes), np.int64)
    places = np.empty(len(dense), np.int64)
    w = np.empty(lay_out(sizes, padded, places), np.float32)
    x = np.zeros(padded.sum(), np.float32)
    g = np.zeros(padded.sum(), np.float32)
    active = np.empty(padded.sum() + 1, np.int64)
    counts = np.empty(len(sizes), np.int64)
    keep = np.float32(1.0) - learning_rate * reg
    for k in range(first, last):
        low = offsets[k]
        high = offsets[k + 1]
        p = user_rows[k].copy()
        q = rows[: (high - low) * width]
        before = rows_before[: (high - low) * width]
        gather(item_rows, items, low, q, before)
        gather_dense(dense, places, w)
        train_user(
            samples,
            targets,
            starts[k],
            starts[k + 1],
            p,
            q,
            w,
            padded,
            x,
            g,
            active,
            counts,
            squared,
            learning_rate,
            keep,
        )
        quantise_change(q, before, item_deltas[low:high].reshape(-1))
        quantise_change(p, user_rows[k], user_deltas[k])
        for j in range(len(dense)):
            dense_deltas[k, j] = quantise(w[places[j]] - dense[j])
