"""GMF trained by every user of a cohort on a local copy, in batches with SGD or Adam.

The loss of a sample is the cross-entropy, or half the squared error of a rating, plus
reg / 2 (|p|^2 + |q|^2). The loss of a batch is the mean over its samples. The output layer and the
bias are not regularised. A user's samples are cut into batches in their order; the last batch may
be smaller.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, float32, int8, int32, int64, types

from coterie.kernels.common import Integer, Real, helper, kernel, readonly, sigmoid
from coterie.kernels.gmf_rows import gather, predict
from coterie.kernels.lanes import LANES, load, minus_product, product, spread, store
from coterie.kernels.logits import (
    NOTHING,
    ONE,
    add_changes,
    find_errors,
    gather_padded,
    quantise_rows,
    sum_gradients,
)
from coterie.kernels.optimisers import adam, adam_rows, bias_corrections
from coterie.kernels.quantise import quantise_change
from coterie.kernels.tower import whole_lanes
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
def train_by_sgd(
    p: Floats,
    q: Floats,
    width: Integer,
    h: Floats,
    samples: Ints,
    targets: Floats,
    squared: bool,
    learning_rate: Real,
    reg: Real,
    batch_size: Integer,
    w: Floats,
    w_gradient: Floats,
    errors: Floats,
    row_errors: Floats,
    row_counts: Floats,
) -> None:
    """Train one user by SGD. Writes p, h and q, whose rows are padded as in `logits`.

    Within a batch logits are w . q + b with w = h * p, so that the gradients by p and h follow from
    that by w, and the gradient by a row from the sum of its samples' errors and their number.
    `row_errors` and `row_counts` must be zero and are zero again afterwards.
    """
    d = len(p)
    for begin in range(0, len(samples), batch_size):
        end = min(begin + batch_size, len(samples))
        places = samples[begin:end]
        rate = learning_rate / np.float32(end - begin)
        for f in range(d):
            w[f] = h[f] * p[f]
        w[width] = h[d]
        find_errors(w, width, q, places, targets[begin:end], squared, errors)
        sum_gradients(width, q, places, errors, w_gradient)
        for s in range(len(places)):
            row_errors[places[s]] += errors[s]
            row_counts[places[s]] += ONE
        for s in range(len(places)):
            r = np.int64(places[s])
            if row_counts[r] == NOTHING:
                # The row was updated at its first sample.
                continue
            keep = spread(ONE - rate * reg * row_counts[r])
            move = spread(rate * row_errors[r])
            row_errors[r] = NOTHING
            row_counts[r] = NOTHING
            for f in range(r * width, r * width + width, LANES):
                kept = product(keep, load(q, f))
                store(q, f, minus_product(kept, move, load(w, f - r * width)))
        keep_p = ONE - learning_rate * reg
        for f in range(d):
            moved = rate * w_gradient[f]
            before = p[f]
            p[f] = keep_p * before - moved * h[f]
            h[f] -= moved * before
        h[d] -= rate * w_gradient[width]


@helper
def train_by_adam(
    p: Floats,
    q: Floats,
    h: Floats,
    samples: Ints,
    targets: Floats,
    squared: bool,
    learning_rate: Real,
    reg: Real,
    batch_size: Integer,
    q_gradients: Floats,
    batch_of: Longs,
) -> None:
    """Train one user by Adam. Writes p, q and h; `batch_of` must be zero, and is zero again."""
    p_gradients = np.zeros_like(p)
    p_mean = np.zeros_like(p)
    p_square = np.zeros_like(p)
    h_gradients = np.zeros_like(h)
    h_mean = np.zeros_like(h)
    h_square = np.zeros_like(h)
    q_mean = np.zeros_like(q)
    q_square = np.zeros_like(q)
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
        int64[:, ::1],
        int8[::1],
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
    total: Longs,
    faults: np.ndarray,
) -> None:
    """Train users first..last of a cohort, as `gmf_users.train` does.

    Where `total` has rows, which needs SGD, a user's changes of item rows are added to it instead,
    times the number of samples, and faults[k] says what validation would find in them.
    """
    d = item_rows.shape[1]
    width = whole_lanes(d)
    most = 0
    for k in range(first, last):
        most = max(most, offsets[k + 1] - offsets[k])
    n_sgd = 0 if by_adam else most
    q = np.empty(n_sgd * width, np.float32)
    w = np.zeros(width + 1, np.float32)
    w_gradient = np.empty_like(w)
    errors = np.empty(min(batch_size, starts[last] - starts[first]) + LANES, np.float32)
    row_errors = np.zeros(n_sgd, np.float32)
    row_counts = np.zeros(n_sgd, np.float32)
    n_adam = most if by_adam else 0
    rows = np.empty((n_adam, d), np.float32)
    rows_before = np.empty_like(rows)
    q_gradients = np.empty_like(rows)
    batch_of = np.zeros(n_adam, np.int64)
    for k in range(first, last):
        low = offsets[k]
        high = offsets[k + 1]
        own = items[low:high]
        places = samples[starts[k] : starts[k + 1]]
        wanted = targets[starts[k] : starts[k + 1]]
        p = user_rows[k].copy()
        h = dense.copy()
        if by_adam:
            table = rows[: high - low]
            before = rows_before[: high - low]
            gather(item_rows, items, low, table, before)
            train_by_adam(
                p,
                table,
                h,
                places,
                wanted,
                squared,
                learning_rate,
                reg,
                batch_size,
                q_gradients,
                batch_of,
            )
            deltas = item_deltas[low:high].reshape(-1)
            quantise_change(table.reshape(-1), before.reshape(-1), deltas)
        else:
            gather_padded(item_rows, own, width, q)
            train_by_sgd(
                p,
                q,
                width,
                h,
                places,
                wanted,
                squared,
                learning_rate,
                reg,
                batch_size,
                w,
                w_gradient,
                errors,
                row_errors,
                row_counts,
            )
            if len(total):
                n = np.int32(len(places))
                faults[k] = add_changes(q, width, item_rows, own, ONE, n, total)
            else:
                quantise_rows(q, width, item_rows, own, ONE, item_deltas[low:high])
        quantise_change(p, user_rows[k], user_deltas[k])
        quantise_change(h, dense, dense_deltas[k])
