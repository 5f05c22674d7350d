"""GMF by every user of a cohort with Adam, from moments that travel with the parameters; what changed, in fixed point.

A row is [values | mean | root of the mean square] of its gradient, and `dense` is three such parts too: the moments are
averaged like the values they belong to. The root is of the size of a gradient, which fixed point can hold; a square is not.
"""

from __future__ import annotations

import numba
import numpy as np
from numba import boolean, float32, int32, int64, types

from coterie.kernels.common import helper, readonly
from coterie.kernels.gmf_batches import train_by_batches
from coterie.kernels.quantise import quantise
from coterie.types import Floats, Ints, Longs


@helper
def unpack(packed: Floats, values: Floats, mean: Floats, square: Floats) -> None:
    d = len(values)
    for f in range(d):
        values[f], mean[f] = packed[f], packed[d + f]
        root = max(packed[2 * d + f], np.float32(0.0))  # rounding may leave it a little below zero
        square[f] = root * root


@helper
def quantise_parts(values: Floats, mean: Floats, square: Floats, before: Floats, out: Ints) -> None:
    d = len(values)
    for f in range(d):
        out[f] = quantise(values[f] - before[f])
        out[d + f] = quantise(mean[f] - before[d + f])
        out[2 * d + f] = quantise(np.sqrt(square[f]) - before[2 * d + f])


@numba.njit(
    types.void(
        readonly(int64), readonly(int32), readonly(int64), readonly(int32), readonly(float32),
        readonly(float32, 2), readonly(float32, 2), readonly(float32), boolean, float32, float32, int64, int64,
        int64, int64, int32[:, ::1], int32[:, ::1], int32[:, ::1],
    ),
    nogil=True, cache=True, error_model="numpy",
)  # fmt: skip
def train(
    offsets: Longs, items: Ints, starts: Longs, samples: Ints, targets: Floats,
    user_rows: Floats, item_rows: Floats, dense: Floats, squared: bool, rate: float, reg: float,
    batch_size: int, steps: int, first: int, last: int,
    user_deltas: Ints, item_deltas: Ints, dense_deltas: Ints,
) -> None:  # fmt: skip
    """Users first..last of a cohort, each after so many steps; all start from the same item rows and `dense`."""
    most = 0
    for k in range(first, last):
        most = max(most, offsets[k + 1] - offsets[k])
    d, size = item_rows.shape[1] // 3, len(dense) // 3
    rows, memory, slopes = (
        np.empty((most, d), np.float32),
        np.empty((2, most, d), np.float32),
        np.empty((most, d), np.float32),
    )
    p, p_moments = np.empty(d, np.float32), np.empty((2, d), np.float32)
    h, h_moments = np.empty(size, np.float32), np.empty((2, size), np.float32)
    batch_of = np.zeros(most, np.int64)
    for k in range(first, last):
        low, n, begin, end = offsets[k], offsets[k + 1] - offsets[k], starts[k], starts[k + 1]
        q, q_moments = rows[:n], memory[:, :n]
        for r in range(n):
            unpack(item_rows[np.uint64(items[low + r])], q[r], q_moments[0, r], q_moments[1, r])
        unpack(user_rows[k], p, p_moments[0], p_moments[1])
        unpack(dense, h, h_moments[0], h_moments[1])
        train_by_batches(
            p, q, h, samples[begin:end], targets[begin:end], squared, rate, reg, batch_size, True,
            p_moments, q_moments, h_moments, steps, slopes, batch_of,
        )  # fmt: skip
        for r in range(n):
            before = item_rows[np.uint64(items[low + r])]
            quantise_parts(q[r], q_moments[0, r], q_moments[1, r], before, item_deltas[low + r])
        quantise_parts(p, p_moments[0], p_moments[1], user_rows[k], user_deltas[k])
        quantise_parts(h, h_moments[0], h_moments[1], dense, dense_deltas[k])
