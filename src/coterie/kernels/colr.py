"""CoLR on a client: the user row moves freely, item rows only within the span of a fixed matrix.

The row of item i is Q_i + A_i B. Q and B do not change while a client trains; A starts at zero and
is what the client sends.
"""

from __future__ import annotations

import numpy as np
from numba import float32, int32, int64, types

from coterie.kernels.common import helper, kernel, readonly, sigmoid
from coterie.kernels.quantise import quantise
from coterie.types import Floats, Ints, Longs


@helper
def dot(p: Floats, q: Floats) -> np.float32:
    x = np.float32(0.0)
    for f in range(len(p)):
        x += p[f] * q[f]
    return x


@helper
def move_within(g: Floats, B: Floats, rate: np.float32, a: Floats, q: Floats) -> None:
    """a <- a - rate B g, and q <- q - rate B^T B g."""
    for j in range(len(B)):
        step = rate * dot(B[j], g)
        a[j] -= step
        for f in range(len(q)):
            q[f] -= step * B[j, f]


@kernel(
    types.void(
        readonly(int64),
        readonly(int32),
        readonly(int64),
        readonly(int32),
        readonly(float32),
        readonly(float32, 2),
        readonly(float32, 2),
        readonly(float32, 2),
        float32,
        float32,
        float32,
        int64,
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
    basis: Floats,
    user_rate: np.float32,
    item_rate: np.float32,
    reg: np.float32,
    batch_size: int,
    first: int,
    last: int,
    after: Floats,
    factors: Ints,
) -> None:
    """Users first..last: write their rows to `after`, and A of their items in fixed point.

    User k trains on samples[starts[k]:starts[k + 1]], which are positions in items[offsets[k]:]. A
    step takes the mean gradient of a batch: for the user over all of its samples, for an item over
    its own.
    """
    rank, d = basis.shape
    most = 0
    for k in range(first, last):
        most = max(most, offsets[k + 1] - offsets[k])
    Q = np.empty((most, d), np.float32)
    A = np.empty((most, rank), np.float32)
    gradients = np.zeros((most, d), np.float32)
    occurs = np.zeros(most, np.int64)
    own = np.empty(d, np.float32)
    for k in range(first, last):
        low = offsets[k]
        n_rows = offsets[k + 1] - low
        for r in range(n_rows):
            row = item_rows[items[low + r]]
            for f in range(d):
                Q[r, f] = row[f]
        A[:n_rows] = 0
        p = after[k]
        for f in range(d):
            p[f] = user_rows[k, f]
        for begin in range(starts[k], starts[k + 1], batch_size):
            end = min(begin + batch_size, starts[k + 1])
            own[:] = 0
            # All gradients are those before the step: an item may occur twice in a batch.
            for s in range(begin, end):
                r = samples[s]
                q = Q[r]
                gradient = gradients[r]
                e = sigmoid(dot(p, q)) - targets[s]
                for f in range(d):
                    gradient[f] += e * p[f]
                    own[f] += e * q[f]
                occurs[r] += 1
            for s in range(begin, end):
                r = samples[s]
                if occurs[r] == 0:
                    continue
                share = np.float32(1.0) / np.float32(occurs[r])
                q = Q[r]
                gradient = gradients[r]
                for f in range(d):
                    gradient[f] = share * gradient[f] + reg * q[f]
                move_within(gradient, basis, item_rate, A[r], q)
                gradient[:] = 0
                occurs[r] = 0
            share = np.float32(1.0) / np.float32(end - begin)
            for f in range(d):
                p[f] -= user_rate * (share * own[f] + reg * p[f])
        for r in range(n_rows):
            for j in range(rank):
                factors[low + r, j] = quantise(A[r, j])
