"""FedRecon on a client: fit the user row to frozen item rows, then move item rows, row frozen.

Prediction: y = p . q, or p . q + b_u + b_i with biases, which are then the last entry of a row.
Every step takes the mean gradient of a batch, as `gmf_batches` does.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, float32, int32, int64, types

from coterie.kernels.common import Real, helper, kernel, readonly, sigmoid
from coterie.kernels.gmf_rows import gather
from coterie.kernels.quantise import quantise_change
from coterie.types import Floats, Ints, Longs


@helper
def predict(p: Floats, q: Floats, biased: bool) -> np.float32:
    """p . q, or p . q + b_u + b_i where the last entries are biases."""
    d = len(p) - 1 if biased else len(p)
    x = p[d] + q[d] if biased else np.float32(0.0)
    for f in range(d):
        x += p[f] * q[f]
    return x


@helper
def error(y: Real, target: Real, squared: bool) -> np.float32:
    """The derivative of the loss by the prediction, of (y - t)^2 / 2 or of cross-entropy."""
    return np.float32((y if squared else sigmoid(y)) - target)


@kernel(
    types.void(
        readonly(int64),
        readonly(int32),
        readonly(int64),
        readonly(int32),
        readonly(float32),
        readonly(float32, 2),
        boolean,
        boolean,
        float32,
        float32,
        int64,
        int64,
        int64,
        int64,
        float32[:, ::1],
    ),
)
def reconstruct(
    offsets: Longs,
    items: Ints,
    starts: Longs,
    samples: Ints,
    targets: Floats,
    item_rows: Floats,
    squared: bool,
    biased: bool,
    learning_rate: float,
    reg: float,
    batch_size: int,
    most_steps: int,
    first: int,
    last: int,
    user_rows: Floats,
) -> None:
    """Users first..last take SGD steps on their row, at most `most_steps`. Writes `user_rows`.

    User k trains on samples[starts[k]:starts[k + 1]], which are positions in items[offsets[k]:].
    """
    width = item_rows.shape[1]
    d = width - 1 if biased else width
    gradient = np.empty(width, np.float32)
    for k in range(first, last):
        p = user_rows[k]
        begin = starts[k]
        taken = 0
        while begin < starts[k + 1] and taken < most_steps:
            end = min(begin + batch_size, starts[k + 1])
            gradient[:] = 0
            for s in range(begin, end):
                q = item_rows[items[offsets[k] + samples[s]]]
                e = error(predict(p, q, biased), targets[s], squared)
                for f in range(d):
                    gradient[f] += e * q[f]
                if biased:
                    gradient[d] += e
            share = np.float32(1.0) / np.float32(end - begin)
            for f in range(width):
                p[f] -= learning_rate * (share * gradient[f] + reg * p[f])
            begin = end
            taken += 1


@kernel(
    types.void(
        readonly(int64),
        readonly(int32),
        readonly(int64),
        readonly(int32),
        readonly(float32),
        readonly(float32, 2),
        readonly(float32, 2),
        boolean,
        boolean,
        float32,
        float32,
        int64,
        int64,
        int64,
        int64,
        int32[:, ::1],
    ),
)
def update(
    offsets: Longs,
    items: Ints,
    starts: Longs,
    samples: Ints,
    targets: Floats,
    user_rows: Floats,
    item_rows: Floats,
    squared: bool,
    biased: bool,
    learning_rate: float,
    reg: float,
    batch_size: int,
    most_steps: int,
    first: int,
    last: int,
    item_deltas: Ints,
) -> None:
    """Users first..last take SGD steps on copies of item rows. Writes changes in fixed point."""
    width = item_rows.shape[1]
    d = width - 1 if biased else width
    most = 0
    for k in range(first, last):
        most = max(most, offsets[k + 1] - offsets[k])
    rows = np.empty((most, width), np.float32)
    rows_before = np.empty_like(rows)
    longest = 0
    for k in range(first, last):
        longest = max(longest, starts[k + 1] - starts[k])
    # A batch may be larger than all that a user has.
    errors = np.empty(min(batch_size, longest), np.float32)
    rows_now = np.empty((len(errors), width), np.float32)
    for k in range(first, last):
        low = offsets[k]
        high = offsets[k + 1]
        local = rows[: high - low]
        before = rows_before[: high - low]
        gather(item_rows, items, low, local, before)
        p = user_rows[k]
        begin = starts[k]
        taken = 0
        while begin < starts[k + 1] and taken < most_steps:
            end = min(begin + batch_size, starts[k + 1])
            rate = learning_rate / np.float32(end - begin)
            # All gradients are those before the step: an item may occur twice in a batch.
            for s in range(begin, end):
                q = local[samples[s]]
                errors[s - begin] = error(predict(p, q, biased), targets[s], squared)
                for f in range(width):
                    rows_now[s - begin, f] = q[f]
            for s in range(begin, end):
                q = local[samples[s]]
                now = rows_now[s - begin]
                e = errors[s - begin]
                for f in range(d):
                    q[f] -= rate * (e * p[f] + reg * now[f])
                if biased:
                    q[d] -= rate * (e + reg * now[d])
            begin = end
            taken += 1
        quantise_change(local.reshape(-1), before.reshape(-1), item_deltas[low:high].reshape(-1))
