"""The extremes of every component of the rows of an item, replaced by less extreme ones.

rows[places[starts[i]:starts[i + 1]]] are the rows of item i (rows, d). Order statistics are found
by bisection on the value, component after component: a pass compares and counts, which the compiler
turns into a few vector instructions. Sorting would take several times as long.
"""

from __future__ import annotations

import numpy as np
from numba import int32, int64, types

from coterie.kernels.common import Integer, helper, kernel, readonly
from coterie.types import Ints, Longs


@helper
def number_up_to(values: Ints, bound: Integer) -> np.int64:
    """How many values are at most the bound."""
    # Integers of 32 bits all along: twice as many as of 64 bits fit into a vector.
    bound_32 = np.int32(bound)
    n = np.int32(0)
    for k in range(len(values)):
        n = np.int32(n + np.int32(values[np.uint64(k)] <= bound_32))
    return np.int64(n)


@helper
def smallest_from(values: Ints, least: Integer, largest: np.int32) -> np.int32:
    """The smallest value that is at least `least`; all are at most `largest`."""
    least_32 = np.int32(least)
    smallest = largest
    for k in range(len(values)):
        value = values[np.uint64(k)]
        smallest = min(smallest, value if value >= least_32 else largest)
    return smallest


@helper
def nth_smallest(values: Ints, n: Integer, smallest: np.int32, largest: np.int32) -> np.int32:
    """The n-th smallest value, from 1 on; all are from `smallest` to `largest`.

    Bisection until all smaller ones are separated from it. Passes that compare and count are fast,
    and at most 33 for any values that hostile clients choose.
    """
    low = np.int64(smallest)
    high = np.int64(largest)
    n_below = np.int64(0)
    while low < high and n_below < n - 1:
        middle = (low + high) >> 1
        n_middle = number_up_to(values, middle)
        if n_middle >= n:
            high = middle
        else:
            low = middle + 1
            n_below = n_middle
    return smallest_from(values, low, largest)


@kernel(types.void(readonly(int32), int64[::1], int64[::1]))
def order(items: Ints, following: Longs, places: Longs) -> None:
    """Put the position of each item into `places`, from the item's entry of `following` on."""
    for r in range(len(items)):
        item = np.uint64(items[np.uint64(r)])
        places[np.uint64(following[item])] = r
        following[item] += 1


@kernel(
    types.void(
        readonly(int64), readonly(int64), readonly(int64), int64, int64, int64, int32[:, ::1]
    )
)
def trim(
    places: Longs, starts: Longs, cuts: Longs, fewest: int, low: int, high: int, rows: Ints
) -> None:
    """For items low..high: of each component, the cuts[i] smallest and largest values get the
    values of their neighbours. Of an item with less than `fewest` rows, all become zero."""
    d = rows.shape[1]
    most = 0
    for i in range(low, high):
        most = max(most, starts[i + 1] - starts[i])
    # One component after the other, each of which is then in one piece.
    columns = np.empty((d, most), np.int32)
    smallest = np.empty(d, np.int32)
    largest = np.empty(d, np.int32)
    for i in range(low, high):
        own = places[starts[i] : starts[i + 1]]
        n = len(own)
        if n < fewest:
            for r in range(n):
                rows[np.uint64(own[r])] = 0
            continue
        for r in range(n):
            row = rows[np.uint64(own[r])]
            for f in range(d):
                columns[np.uint64(f), np.uint64(r)] = row[np.uint64(f)]
        for f in range(d):
            column = columns[f, :n]
            low_end = column.min()
            high_end = column.max()
            smallest[f] = nth_smallest(column, cuts[i] + 1, low_end, high_end)
            largest[f] = nth_smallest(column, n - cuts[i], low_end, high_end)
        for r in range(n):
            row = rows[np.uint64(own[r])]
            for f in range(d):
                at = np.uint64(f)
                row[at] = min(max(row[at], smallest[at]), largest[at])
