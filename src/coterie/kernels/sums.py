"""Integer sums of updates over users, item by item, and the validation of each update.

Every thread owns a range of items. A user's items ascend, so the thread finds its range by
bisection and needs no table of its own.
"""

from __future__ import annotations

import numpy as np
from numba import float32, float64, int8, int32, int64, types

from coterie.kernels.common import first_at_least, helper, kernel, readonly
from coterie.kernels.norms import squared_norms
from coterie.types import SCALE, TOO_LARGE, Doubles, Floats, Ints, Longs

FINE = 0
UNKNOWN_ITEM = 1
REPEATED_ITEM = 2
OUT_OF_RANGE = 3
NOT_A_NUMBER = 4
LIMIT = np.int32(TOO_LARGE)


@kernel(
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
    """For items low..high: total += n_k q_k, touched += n_k over the users k that sent the row.

    The rows of user k are rows[offsets[k]:offsets[k + 1]] (rows, d), and n_k is samples[k].
    """
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


@kernel(
    types.void(
        readonly(int64),
        readonly(int32),
        readonly(int32, 2),
        readonly(int64),
        int64,
        int64,
        int64,
        int64[:, ::1],
        int64[:, ::1],
    ),
)
def by_change(
    offsets: Longs,
    items: Ints,
    rows: Ints,
    samples: Longs,
    n_by_change: int,
    low: int,
    high: int,
    total: Longs,
    weight: Longs,
) -> None:
    """ActvAGG for items low..high: total += |q| q, weight += |q|, component by component.

    This holds for the first `n_by_change` components. Those after it, Adam's moments, are weighed
    by n_k: total += n_k q, weight += n_k.
    """
    for k in range(len(offsets) - 1):
        n = samples[k]
        start = first_at_least(items, offsets[k], offsets[k + 1], low)
        end = first_at_least(items, start, offsets[k + 1], high)
        for r in range(start, end):
            out = total[np.uint64(items[r])]
            w = weight[np.uint64(items[r])]
            row = rows[np.uint64(r)]
            for f in range(n_by_change):
                q = np.int64(row[f])
                size = abs(q)
                out[f] += size * q
                w[f] += size
            for f in range(n_by_change, len(row)):
                out[f] += n * row[f]
                w[f] += n


@kernel(
    types.void(
        readonly(float32, 2), readonly(int64, 2), readonly(int64, 2), int64, int64, float32[:, ::1]
    ),
)
def move(before: Floats, total: Longs, weight: Longs, low: int, high: int, after: Floats) -> None:
    """Rows low..high: after = before + total / weight, converted from fixed point.

    `weight` has one column per component, or one for the whole row. The loop makes no temporary
    arrays, because this is most of the server's work when there are many items.
    """
    wide = weight.shape[1] > 1
    for i in range(low, high):
        for f in range(before.shape[1]):
            each = max(weight[i, f if wide else 0], 1)
            after[i, f] = before[i, f] + total[i, f] / each / SCALE


@helper
def worst_entry(values: Ints) -> int:
    """The worst fault of the entries. NOT_FINITE is the least int32, so the minimum finds it."""
    lowest = np.int32(0)
    highest = np.int32(0)
    # Unsigned indices need no test for negative ones, so that the loop is vectorised.
    for i in range(len(values)):
        value = values[np.uint64(i)]
        lowest = min(lowest, value)
        highest = max(highest, value)
    if lowest == np.int32(-2147483648):
        return NOT_A_NUMBER
    return OUT_OF_RANGE if highest >= LIMIT or lowest <= -LIMIT else FINE


@kernel(
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
        float64[::1],
        float64[::1],
    ),
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
    by_row: Doubles,
    by_client: Doubles,
) -> None:
    """Write faults[k] for users first..last: items must exist and ascend, entries be in range.

    Unless they are empty, also write the squared norms of item rows to `by_row`, and their sums to
    `by_client`. They are infinite if an entry is out of range, so that one pass finds both.
    """
    for k in range(first, last):
        low = offsets[k]
        high = offsets[k + 1]
        in_range = False
        if len(by_client):
            by_client[k] = squared_norms(item_rows, low, high, by_row)
            in_range = bool(by_client[k] < np.inf)
        fault = FINE
        before = np.int32(-1)
        for r in range(low, high):
            item = items[np.uint64(r)]
            if item < 0 or item >= n_items:
                fault = UNKNOWN_ITEM
                break
            if item <= before:
                fault = REPEATED_ITEM
                break
            before = item
        if fault == FINE:
            fault = max(worst_entry(user_rows[k]), worst_entry(dense[k]))
            if not in_range:
                fault = max(fault, worst_entry(item_rows[low:high].reshape(-1)))
        faults[k] = fault
