"""GMF trained by every user of a cohort with Adam, whose moments are sent and averaged too.

A row is [values (d,) | mean (d,) | root mean square (d,) | age] of its gradient, and `dense` has
the same four parts. The server averages all of it like the values. The moments are stored after
bias correction, and the second as a root: both then have the size of a gradient, which fixed point
can represent. An age of 1 is AGES steps.
"""

from __future__ import annotations

import math

import numpy as np
from numba import boolean, float32, int32, int64, types

from coterie.kernels.common import Integer, Real, helper, kernel, readonly
from coterie.kernels.gmf_batches import gather_gradients
from coterie.kernels.optimisers import DECAY1, DECAY2, adam
from coterie.kernels.quantise import quantise
from coterie.types import Doubles, Floats, Ints, Longs

AGES = np.float32(1024.0)
FORGET1 = math.log(DECAY1)
FORGET2 = math.log(DECAY2)
LEAST = np.float32((1 - DECAY1**2 / DECAY2) * (1 - DECAY2) / (1 - DECAY1) ** 2)
"""Least ratio of mean square to squared mean (Cauchy-Schwarz). Rounding can fall below it."""


@helper
def bias_corrections(decay: Doubles, further: tuple[float, float]) -> tuple[np.float32, np.float32]:
    """1 - beta^t of both moments, where beta^t is `decay` (earlier rounds) times `further`."""
    return np.float32(1.0 - decay[0] * further[0]), np.float32(1.0 - decay[1] * further[1])


@helper
def unpack(packed: Floats, values: Floats, moments: Floats, decay: Doubles) -> None:
    """Read a row: its values, Adam's moments without bias correction, and beta^t of both."""
    d = len(values)
    steps = max(packed[3 * d], np.float32(0.0)) * AGES
    decay[0] = math.exp(steps * FORGET1)
    decay[1] = math.exp(steps * FORGET2)
    correction1, correction2 = bias_corrections(decay, (1.0, 1.0))
    for f in range(d):
        values[f] = packed[f]
        mean = packed[d + f] * correction1
        root = packed[2 * d + f]
        moments[0, f] = mean
        moments[1, f] = max(root * root * correction2, LEAST * mean * mean)


@helper
def pack_change(
    values: Floats,
    moments: Floats,
    decay: Doubles,
    further: tuple[float, float],
    n: Integer,
    before: Floats,
    out: Ints,
) -> None:
    """Write the change of a row after n steps, in fixed point; the inverse of `unpack`."""
    d = len(values)
    correction1, correction2 = bias_corrections(decay, further)
    for f in range(d):
        out[f] = quantise(values[f] - before[f])
        out[d + f] = quantise(moments[0, f] / correction1 - before[d + f])
        out[2 * d + f] = quantise(np.sqrt(moments[1, f] / correction2) - before[2 * d + f])
    out[3 * d] = quantise(np.float32(n) / AGES)


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
    p_moments: Floats,
    q_moments: Floats,
    h_moments: Floats,
    p_decay: Doubles,
    q_decay: Doubles,
    h_decay: Doubles,
    q_gradients: Floats,
    batch_of: Longs,
) -> Integer:
    """Train one user. Writes p, q, h and their moments. Returns the number of steps.

    `batch_of` must be zero and is zero again afterwards.
    """
    p_gradients = np.zeros_like(p)
    h_gradients = np.zeros_like(h)
    batch = 0
    for begin in range(0, len(samples), batch_size):
        batch += 1
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
        further = math.pow(DECAY1, batch), math.pow(DECAY2, batch)
        adam(
            p,
            p_gradients,
            p_moments[0],
            p_moments[1],
            learning_rate,
            bias_corrections(p_decay, further),
        )
        adam(
            h,
            h_gradients,
            h_moments[0],
            h_moments[1],
            learning_rate,
            bias_corrections(h_decay, further),
        )
        for at in places:
            r = np.uint64(at)
            if batch_of[r] == batch:
                batch_of[r] = 0
                adam(
                    q[r],
                    q_gradients[r],
                    q_moments[r, 0],
                    q_moments[r, 1],
                    learning_rate,
                    bias_corrections(q_decay[r], further),
                )
    return batch


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
    first: int,
    last: int,
    user_deltas: Ints,
    item_deltas: Ints,
    dense_deltas: Ints,
) -> None:
    """Train users first..last of a cohort, as `gmf_users.train` does, with moments in all rows."""
    most = 0
    for k in range(first, last):
        most = max(most, offsets[k + 1] - offsets[k])
    d = item_rows.shape[1] // 3
    size = len(dense) // 3
    rows = np.empty((most, d), np.float32)
    memory = np.empty((most, 2, d), np.float32)
    gradients = np.empty((most, d), np.float32)
    p = np.empty(d, np.float32)
    p_moments = np.empty((2, d), np.float32)
    h = np.empty(size, np.float32)
    h_moments = np.empty((2, size), np.float32)
    batch_of = np.zeros(most, np.int64)
    q_decay = np.empty((most, 2))
    p_decay = np.empty(2)
    h_decay = np.empty(2)
    for k in range(first, last):
        low = offsets[k]
        n = offsets[k + 1] - offsets[k]
        begin = starts[k]
        end = starts[k + 1]
        q = rows[:n]
        q_moments = memory[:n]
        for r in range(n):
            unpack(item_rows[np.uint64(items[low + r])], q[r], q_moments[r], q_decay[r])
        unpack(user_rows[k], p, p_moments, p_decay)
        unpack(dense, h, h_moments, h_decay)
        n_batches = train_by_batches(
            p,
            q,
            h,
            samples[begin:end],
            targets[begin:end],
            squared,
            learning_rate,
            reg,
            batch_size,
            p_moments,
            q_moments,
            h_moments,
            p_decay,
            q_decay,
            h_decay,
            gradients,
            batch_of,
        )
        further = math.pow(DECAY1, n_batches), math.pow(DECAY2, n_batches)
        for r in range(n):
            before = item_rows[np.uint64(items[low + r])]
            out = item_deltas[low + r]
            pack_change(q[r], q_moments[r], q_decay[r], further, n_batches, before, out)
        pack_change(p, p_moments, p_decay, further, n_batches, user_rows[k], user_deltas[k])
        pack_change(h, h_moments, h_decay, further, n_batches, dense, dense_deltas[k])
