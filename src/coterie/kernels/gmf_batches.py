"""GMF trained by every user of a cohort on its own copy, batch by batch with SGD or Adam; what changed, in fixed point.

The loss of a sample is the cross-entropy, or half the squared error of a rating, plus reg / 2 (|p|^2 + |q|^2); the loss of a
batch is the mean over its samples. Output layer and bias carry no regularisation. A user's samples of a round are cut into
batches in their order; the last batch is what is left.
"""

from __future__ import annotations

import numba
import numpy as np
from numba import boolean, float32, int32, int64, types

from coterie.kernels.common import Scalar, helper, readonly, sigmoid
from coterie.kernels.gmf_users import gather, predict
from coterie.kernels.optimisers import adam, adam_rows, lacking, sgd, sgd_rows
from coterie.kernels.quantise import quantise_change
from coterie.types import Floats, Ints, Longs


@helper
def gather_gradients(
    p: Floats,
    q: Floats,
    h: Floats,
    places: Ints,
    targets: Floats,
    squared: Scalar,
    reg: Scalar,
    p_gradients: Floats,
    q_gradients: Floats,
    h_gradients: Floats,
    batch_of: Longs,
    batch: Scalar,
) -> None:
    """The gradient of a batch's loss; batch_of[r] says for which batch q_slopes[r] was gathered."""
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
        # three loops: the compiler makes no vectors of one that writes to three arrays
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
    squared: Scalar,
    rate: Scalar,
    reg: Scalar,
    batch_size: Scalar,
    by_adam: Scalar,
    q_gradients: Floats,
    batch_of: Longs,
) -> None:
    """One user; writes p, q and h. `batch_of` is zeros, and is so again afterwards."""
    p_gradients = np.zeros_like(p)
    p_mean = np.zeros_like(p)
    p_square = np.zeros_like(p)
    h_gradients = np.zeros_like(h)
    h_mean = np.zeros_like(h)
    h_square = np.zeros_like(h)
    remembered = len(q) if by_adam else 0
    q_mean = np.zeros_like(q[:remembered])
    q_square = np.zeros_like(q[:remembered])
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
            lack = lacking(batch)
            adam(p, p_gradients, p_mean, p_square, rate, lack)
            adam(h, h_gradients, h_mean, h_square, rate, lack)
            adam_rows(q, q_gradients, q_mean, q_square, places, batch_of, batch, rate, lack)
        else:
            sgd(p, p_gradients, rate)
            sgd(h, h_gradients, rate)
            sgd_rows(q, q_gradients, places, batch_of, batch, rate)


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
    squared: bool,
    rate: float,
    reg: float,
    batch_size: int,
    by_adam: bool,
    first: int,
    last: int,
    user_deltas: Ints,
    item_deltas: Ints,
    dense_deltas: Ints,
) -> None:
    """Users first..last of a cohort; each starts from the same item rows and `dense` (the output layer, then the bias)."""
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
            rate,
            reg,
            batch_size,
            by_adam,
            q_gradients,
            batch_of,
        )
        quantise_change(q.reshape(-1), before.reshape(-1), item_deltas[low:high].reshape(-1))
        quantise_change(p, user_rows[k], user_deltas[k])
        quantise_change(h, dense, dense_deltas[k])
