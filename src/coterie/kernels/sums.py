"""Integer sums of updates over users, item by item, and the check that every update may enter them.

Threads own ranges of items. A user's items ascend, so a range is found by bisection and no table is needed per thread.
"""

from __future__ import annotations

import numba
import numpy as np
from numba import float32, int8, int32, int64, types

from coterie.kernels.common import Scalar, helper, readonly
from coterie.types import SCALE, TOO_LARGE, Floats, Ints, Longs

FINE = 0
UNKNOWN_ITEM = 1
REPEATED_ITEM = 2
OUT_OF_RANGE = 3
NOT_A_NUMBER = 4
LIMIT = np.int32(TOO_LARGE)


@helper
def first_at_least(items: Ints, low: Scalar, high: Scalar, wanted: Scalar) -> Scalar:
    """The first place in items[low:high], which ascends, that holds `wanted` or more."""
    while low < high:
        middle = (low + high) >> 1
        if items[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@numba.njit(
    types.void(
        readonly(int64),
        readonly(int32),
        readonly(int32, 2),
        readonly(int64),
        int64,
        int64,
        int64[:, ::1],
        int64[::1],
    ),
    nogil=True,
    cache=True,
    error_model="numpy",
)
def by_samples(
    offsets: Longs,
    items: Ints,
    rows: Ints,
    samples: Longs,
    low: int,
    high: int,
    total: Longs,
    touched: Longs,
) -> None:
    """For items low..high: total += n_k q_k, touched += n_k of those who sent the row."""
    for k in range(len(samples)):
        n = samples[k]
        start = first_at_least(items, offsets[k], offsets[k + 1], low)
        end = first_at_least(items, start, offsets[k + 1], high)
        for r in range(start, end):
            out = total[np.uint64(items[r])]
            q = rows[np.uint64(r)]
            for f in range(len(q)):
                out[f] += n * q[f]
            touched[items[r]] += n


@numba.njit(
    types.void(
        readonly(int64),
        readonly(int32),
        readonly(int32, 2),
        int64,
        int64,
        int64[:, ::1],
        int64[:, ::1],
    ),
    nogil=True,
    cache=True,
    error_model="numpy",
)
def by_change(
    offsets: Longs, items: Ints, rows: Ints, low: int, high: int, total: Longs, weight: Longs
) -> None:
    """For items low..high: total += |q| q, weight += |q|, component by component."""
    for k in range(len(offsets) - 1):
        start = first_at_least(items, offsets[k], offsets[k + 1], low)
        end = first_at_least(items, start, offsets[k + 1], high)
        for r in range(start, end):
            out = total[np.uint64(items[r])]
            w = weight[np.uint64(items[r])]
            row = rows[np.uint64(r)]
            for f in range(len(row)):
                q = np.int64(row[f])
                size = abs(q)
                out[f] += size * q
                w[f] += size


@numba.njit(
    types.void(
        readonly(float32, 2), readonly(int64, 2), readonly(int64, 2), int64, int64, float32[:, ::1]
    ),
    nogil=True,
    cache=True,
    error_model="numpy",
)
def move(before: Floats, total: Longs, weight: Longs, low: int, high: int, after: Floats) -> None:
    """Rows low..high: after = before + total / weight, out of fixed point; a weight is one for a row or for a component.

    In one pass and without large arrays in between: that is most of the server's work where items are many.
    """
    wide = weight.shape[1] > 1
    for i in range(low, high):
        for f in range(before.shape[1]):
            each = max(weight[i, f if wide else 0], 1)
            after[i, f] = before[i, f] + total[i, f] / each / SCALE


@helper
def worst_entry(values: Ints) -> Scalar:
    """Whether numbers are below the limit; what stands for no number is the least there is."""
    lowest = np.int32(0)
    highest = np.int32(0)
    for value in values:
        lowest = min(lowest, value)
        highest = max(highest, value)
    if lowest == np.int32(-2147483648):
        return NOT_A_NUMBER
    return OUT_OF_RANGE if highest >= LIMIT or lowest <= -LIMIT else FINE


@numba.njit(
    types.void(
        readonly(int64),
        readonly(int32),
        readonly(int32, 2),
        readonly(int32, 2),
        readonly(int32, 2),
        int64,
        int64,
        int64,
        int8[::1],
    ),
    nogil=True,
    cache=True,
    error_model="numpy",
)
def check(
    offsets: Longs,
    items: Ints,
    item_rows: Ints,
    user_rows: Ints,
    dense: Ints,
    n_items: int,
    first: int,
    last: int,
    faults: np.ndarray,
) -> None:
    """faults[k] for users first..last: items exist and ascend, entries are numbers within range."""
    for k in range(first, last):
        low = offsets[k]
        high = offsets[k + 1]
        fault = FINE
        before = np.int32(-1)
        for r in range(low, high):
            item = items[r]
            if item < 0 or item >= n_items:
                fault = UNKNOWN_ITEM
                break
            if item <= before:
                fault = REPEATED_ITEM
                break
            before = item
        if fault == FINE:
            fault = max(
                worst_entry(item_rows[low:high].reshape(-1)),
                worst_entry(user_rows[k]),
                worst_entry(dense[k]),
            )
        faults[k] = fault
