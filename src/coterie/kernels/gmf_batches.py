"""GMF trained by every user of a cohort on a local copy, in batches with SGD or Adam.

The loss of a sample is the cross-entropy, or half the squared error of a rating, plus
reg / 2 (|p|^2 + |q|^2). The loss of a batch is the mean over its samples. The output layer and the
bias are not regularised. A user's samples are cut into batches in their order; the last batch may
be smaller.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, float32, int32, int64, types

from coterie.kernels.common import Integer, Real, helper, kernel, readonly, sigmoid
from coterie.kernels.gmf_users import gather, predict
from coterie.kernels.optimisers import adam, adam_rows, bias_corrections, sgd, sgd_rows
from coterie.kernels.quantise import quantise_change
from coterie.types import Floats, Ints, Longs


@helper
def gather_gradients(
    p: Floats,
    q: Floats,
    h: Floats,
    places: Ints,
    targets: Floats,
    squared: bool,
    reg: Real,
    p_gradients: Floats,
    q_gradients: Floats,
    h_gradients: Floats,
    batch_of: Longs,
    batch: Integer,
) -> None:
    """The gradient of a batch's loss. batch_of[r] is the batch that q_gradients[r] belongs to."""
    size = np.float32(len(places))
    shrink = reg / size
    for f in range(len(p)):
        p_gradients[f] = reg * p[f]
    h_gradients[:] = np.float32(0.0)
    for s in range(len(places)):
        r = np.uint64(places[s])
        row = q[r]
        row_gradients = q_gradients[r]
        if batch_of[r] != batch:
            batch_of[r] = batch
            row_gradients[:] = np.float32(0.0)
        y = predict(p, row, h)
        gradient = ((y if squared else sigmoid(y)) - targets[s]) / size
        # Three loops, because the compiler does not vectorise one that writes to three arrays.
        for f in range(len(p)):
            p_gradients[f] += gradient * h[f] * row[f]
        for f in range(len(p)):
            row_gradients[f] += gradient * h[f] * p[f] + shrink * row[f]
        for f in range(len(p)):
            h_gradients[f] += gradient * p[f] * row[f]
        h_gradients[len(p)] += gradient


@helper
def train_by_batches(
    p: Floats,
    q: Floats,
    h: Floats,
    samples: Ints,
    targets: Floats,
    squared: bool,
    learning_rate: Real,
    reg: Real,
    batch_size: Integer,
    by_adam: bool,
    q_gradients: Floats,
    batch_of: Longs,
) -> None:
    """Train one user. Writes p, q and h. `batch_of` must be zero and is zero again afterwards."""
    p_gradients = np.zeros_like(p)
    p_mean = np.zeros_like(p)
    p_square = np.zeros_like(p)
    h_gradients = np.zeros_like(h)
    h_mean = np.zeros_like(h)
    h_square = np.zeros_like(h)
    # SGD has no moments.
    n_moments = len(q) if by_adam else 0
    q_mean = np.zeros_like(q[:n_moments])
    q_square = np.zeros_like(q[:n_moments])
    for batch, begin in enumerate(range(0, len(samples), batch_size), 1):
        end = min(begin + batch_size, len(samples))
        places = samples[begin:end]
        gather_gradients(
            p,
            q,
            h,
            places,
            targets[begin:end],
            squared,
            reg,
            p_gradients,
            q_gradients,
            h_gradients,
            batch_of,
            batch,
        )
        if by_adam:
            corrections = bias_corrections(batch)
            adam(p, p_gradients, p_mean, p_square, learning_rate, corrections)
            adam(h, h_gradients, h_mean, h_square, learning_rate, corrections)
            adam_rows(
                q,
                q_gradients,
                q_mean,
                q_square,
                places,
                batch_of,
                batch,
                learning_rate,
                corrections,
            )
        else:
            sgd(p, p_gradients, learning_rate)
            sgd(h, h_gradients, learning_rate)
            sgd_rows(q, q_gradients, places, batch_of, batch, learning_rate)


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
        boolean,
        float32,
        float32,
        int64,
        boolean,
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
    squared: bool,
    learning_rate: float,
    reg: float,
    batch_size: int,
    by_adam: bool,
    first: int,
    last: int,
    user_deltas: Ints,
    item_deltas: Ints,
    dense_deltas: Ints,
) -> None:
    """Train users first..last of a cohort, as `gmf_users.train` does."""
    most = 0
    for k in range(first, last):
        most = max(most, offsets[k + 1] - offsets[k])
    rows = np.empty((most, item_rows.shape[1]), np.float32)
    rows_before = np.empty_like(rows)
    q_gradients = np.empty_like(rows)
    batch_of = np.zeros(most, np.int64)
    for k in range(first, last):
        low = offsets[k]
        high = offsets[k + 1]
        begin = starts[k]
        end = starts[k + 1]
        q = rows[: high - low]
        before = rows_before[: high - low]
        gather(item_rows, items, low, q, before)
        p = user_rows[k].copy()
        h = dense.copy()
        train_by_batches(
            p,
            q,
            h,
            samples[begin:end],
            targets[begin:end],
            squared,
            learning_rate,
            reg,
            batch_size,
            by_adam,
            q_gradients,
            batch_of,
        )
        quantise_change(q.reshape(-1), before.reshape(-1), item_deltas[low:high].reshape(-1))
        quantise_change(p, user_rows[k], user_deltas[k])
        quantise_change(h, dense, dense_deltas[k])
