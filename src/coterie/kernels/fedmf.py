"""FedMF on a client: its own vector moves, and the gradients of item vectors are sent.

Item vectors do not change while a client trains. Both readings of the paper's step are here: the
vector of the user moves from rating to rating, or once by the sum over all of them.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, float32, int32, int64, types

from coterie.kernels.common import Real, helper, kernel, readonly
from coterie.kernels.quantise import quantise
from coterie.types import Floats, Ints, Longs


@helper
def error(p: Floats, q: Floats, target: Real) -> np.float32:
    """p . q - t"""
    x = np.float32(0.0)
    for f in range(len(p)):
        x += p[f] * q[f]
    difference: np.float32 = x - target
    return difference


@kernel(
    types.void(
        readonly(int64),
        readonly(int32),
        readonly(int64),
        readonly(int32),
        readonly(float32),
        readonly(float32, 2),
        readonly(float32, 2),
        float32,
        float32,
        float32,
        boolean,
        int64,
        int64,
        float32[:, ::1],
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
    learning_rate: float,
    reg_user: float,
    reg_item: float,
    at_once: bool,
    first: int,
    last: int,
    after: Floats,
    item_deltas: Ints,
) -> None:
    """Users first..last: write their vectors to `after`, and -rate gradient in fixed point.

    User k trains on samples[starts[k]:starts[k + 1]], which are positions in items[offsets[k]:].
    """
    d = item_rows.shape[1]
    most = 0
    for k in range(first, last):
        most = max(most, offsets[k + 1] - offsets[k])
    gradients = np.empty((most, d), np.float32)
    own = np.empty(d, np.float32)
    rate = np.float32(2.0) * learning_rate
    for k in range(first, last):
        low = offsets[k]
        gradients[: offsets[k + 1] - low] = 0
        before = user_rows[k]
        p = after[k]
        for f in range(d):
            p[f] = before[f]
            own[f] = reg_user * before[f]
        for s in range(starts[k], starts[k + 1]):
            q = item_rows[items[low + samples[s]]]
            gradient = gradients[samples[s]]
            if at_once:
                e = error(before, q, targets[s])
                for f in range(d):
                    own[f] += e * q[f]
                    gradient[f] += e * before[f]
            else:
                e = error(p, q, targets[s])
                for f in range(d):
                    p[f] -= rate * (e * q[f] + reg_user * p[f])
                for f in range(d):
                    gradient[f] += e * p[f] + reg_item * q[f]
        if at_once:
            for f in range(d):
                p[f] -= rate * own[f]
        for r in range(offsets[k + 1] - low):
            for f in range(d):
                item_deltas[low + r, f] = quantise(-rate * gradients[r, f])
