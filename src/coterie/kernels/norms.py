"""Norms of the rows of clients, and rows shortened to bounds.

The rows of client k are rows[offsets[k]:offsets[k + 1]] (rows, d).
"""

from __future__ import annotations

import math

import numpy as np
from numba import float64, int32, int64, types

from coterie.kernels.common import Integer, first_at_least, helper, kernel, readonly
from coterie.types import TOO_LARGE, Doubles, Ints, Longs

LIMIT_SQUARED = np.int64(TOO_LARGE) ** 2
"""The square of an entry that is out of range has one of the bits from this one on."""
BLOCK = 1 << 16
"""Squares of entries in range that an integer of 64 bits can hold."""
SCAN = 16
"""Rows of which a fast loop finds that none is too long, which is usual."""


@helper
def squared_norms(rows: Ints, first: Integer, last: Integer, by_row: Doubles) -> float:
    """Put the squared norms of rows first..last into `by_row`; returns their sum.

    The norm of a row with an entry out of range is infinite. Squares of the others are added up in
    integers, which is exact and fast, as far as they cannot overflow.
    """
    norm = 0.0
    if rows.shape[1] <= BLOCK:
        for r in range(first, last):
            of_row = sum_of_squares(rows[np.uint64(r)])
            by_row[np.uint64(r)] = of_row
            norm += of_row
        return norm
    for r in range(first, last):
        of_row = 0.0
        for begin in range(0, rows.shape[1], BLOCK):
            of_row += sum_of_squares(rows[r, begin : begin + BLOCK])
        by_row[r] = of_row
        norm += of_row
    return norm


@helper
def sum_of_squares(values: Ints) -> float:
    total = np.int64(0)
    bits = np.int64(0)
    # Unsigned indices need no test for negative ones, so that the loop is vectorised.
    for f in range(len(values)):
        value = np.int64(values[np.uint64(f)])
        square = value * value
        total += square
        bits |= square
    return float(total) if bits < LIMIT_SQUARED else np.inf


@helper
def number_above(values: Doubles, bound: float) -> np.int64:
    n = np.int64(0)
    for r in range(len(values)):
        n += np.int64(values[np.uint64(r)] > bound)
    return n


@kernel(types.void(readonly(int64), readonly(int32, 2), int64, int64, float64[::1], float64[::1]))
def squared(
    offsets: Longs, rows: Ints, first: int, last: int, by_row: Doubles, by_client: Doubles
) -> None:
    """For clients first..last: the squared norm of each row, and their sum; infinite where an entry
    is out of range."""
    for k in range(first, last):
        by_client[k] = squared_norms(rows, offsets[k], offsets[k + 1], by_row)


@kernel(
    types.void(
        readonly(int64),
        readonly(int32),
        readonly(float64),
        readonly(float64),
        readonly(float64),
        readonly(float64),
        float64,
        float64,
        int64,
        int64,
        int32[:, ::1],
    )
)
def shorten(
    offsets: Longs,
    items: Ints,
    by_row: Doubles,
    by_client: Doubles,
    by_item: Doubles,
    limits: Doubles,
    longest_row: float,
    longest: float,
    first: int,
    last: int,
    rows: Ints,
) -> None:
    """For clients first..last: rows of at most `longest_row`, together of at most `longest`.

    `by_row` and `by_client` are squared norms, and so are `limits` of the rows of each item;
    without any limits only `longest_row` counts. Then each row is multiplied by the factor
    `by_item` of its item and rounded towards zero; without any factors all are 1. Rows change in
    place: few are too long, and a copy of all of them would take longer than the rest.
    """
    bound = longest_row * longest_row
    same_factor = len(by_item) == 0
    same_limit = len(limits) == 0
    for k in range(first, last):
        of_client = 1.0
        if by_client[k] > longest * longest:
            total = 0.0
            for r in range(offsets[k], offsets[k + 1]):
                limit = bound if same_limit else min(bound, limits[np.uint64(items[np.uint64(r)])])
                total += min(by_row[np.uint64(r)], limit)
            if total > longest * longest:
                of_client = longest / math.sqrt(total)
        only_long = same_factor and of_client == 1.0
        for begin in range(offsets[k], offsets[k + 1], SCAN):
            end = min(begin + SCAN, offsets[k + 1])
            if only_long and same_limit and number_above(by_row[begin:end], bound) == 0:
                continue
            for r in range(begin, end):
                norm = by_row[np.uint64(r)]
                limit = bound if same_limit else min(bound, limits[np.uint64(items[np.uint64(r)])])
                if only_long and norm <= limit:
                    continue
                factor = of_client
                if not same_factor:
                    factor *= by_item[np.uint64(items[np.uint64(r)])]
                if norm > limit:
                    length = longest_row if limit == bound else math.sqrt(limit)
                    factor *= length / math.sqrt(norm)
                if factor < 1.0:
                    row = rows[np.uint64(r)]
                    for f in range(len(row)):
                        row[np.uint64(f)] = np.int32(row[np.uint64(f)] * factor)


@kernel(
    types.void(readonly(int64), readonly(int32, 2), readonly(float64), int64, int64, int32[:, ::1])
)
def scale(offsets: Longs, rows: Ints, factors: Doubles, first: int, last: int, out: Ints) -> None:
    """For clients first..last: put rows times the factor of their client into `out`, rounded
    towards zero."""
    for k in range(first, last):
        factor = factors[k]
        for r in range(offsets[k], offsets[k + 1]):
            row = rows[np.uint64(r)]
            into = out[np.uint64(r)]
            for f in range(len(row)):
                into[np.uint64(f)] = np.int32(row[np.uint64(f)] * factor)


@kernel(types.void(readonly(int32), int64[::1]))
def count(items: Ints, counts: Longs) -> None:
    """Add to counts[i] how often item i is there."""
    for r in range(len(items)):
        counts[np.uint64(items[np.uint64(r)])] += 1


@helper
def number_from(patterns: Longs, least: Integer) -> np.int64:
    n = np.int64(0)
    for r in range(len(patterns)):
        n += np.int64(patterns[np.uint64(r)] >= least)
    return n


@helper
def largest_below(patterns: Longs, bound: Integer) -> np.int64:
    largest = np.int64(0)
    for r in range(len(patterns)):
        pattern = patterns[np.uint64(r)]
        largest = max(largest, pattern if pattern < bound else np.int64(0))
    return largest


@helper
def nth_of(patterns: Longs, n: Integer, bound: Integer, n_from: np.int64) -> np.int64:
    """The n-th largest, which is below `bound`; `n_from` are not.

    Bisection until all larger ones are separated from it. Passes that compare and count are fast,
    and at most 63 for any values that hostile clients choose.
    """
    low = patterns.min()
    while n_from < n - 1 and bound - low > 1:
        middle = low + (bound - low) // 2
        n_middle = number_from(patterns, middle)
        if n_middle >= n:
            low = middle
        else:
            bound = middle
            n_from = n_middle
    return largest_below(patterns, bound)


@kernel(
    types.void(
        readonly(int64),
        readonly(int32),
        readonly(int64),
        int64,
        int64,
        int64,
        int64,
        int64[::1],
    )
)
def nth_largest(
    offsets: Longs,
    items: Ints,
    by_row: Longs,
    n: int,
    enough: int,
    low: int,
    high: int,
    nth: Longs,
) -> None:
    """For items low..high: the n-th largest value of the item's rows; `enough` where it is no less,
    or where there are fewer rows.

    Values are the bit patterns of floats that are not negative, which are in the same order.
    """
    n_clients = len(offsets) - 1
    first = np.empty(n_clients, np.int64)
    last = np.empty(n_clients, np.int64)
    # In the end the values of item low + i are grouped[starts[i]:starts[i + 1]]. Until then
    # starts[i + 1] is where its next one goes.
    starts = np.zeros(high - low + 2, np.int64)
    for k in range(n_clients):
        first[k] = first_at_least(items, offsets[k], offsets[k + 1], low)
        last[k] = first_at_least(items, first[k], offsets[k + 1], high)
        for r in range(first[k], last[k]):
            starts[np.uint64(items[np.uint64(r)] - low + 2)] += 1
    for i in range(1, len(starts)):
        starts[i] += starts[i - 1]
    grouped = np.empty(starts[-1], np.int64)
    for k in range(n_clients):
        for r in range(first[k], last[k]):
            at = np.uint64(items[np.uint64(r)] - low + 1)
            grouped[np.uint64(starts[at])] = by_row[np.uint64(r)]
            starts[at] += 1
    for i in range(low, high):
        of_item = grouped[starts[i - low] : starts[i - low + 1]]
        n_from = number_from(of_item, enough)
        if len(of_item) < n or n_from >= n:
            nth[i] = enough
        else:
            nth[i] = nth_of(of_item, n, enough, n_from)
