"""The extremes of every component of the rows of an item, replaced by less extreme ones.

rows[places[starts[i]:starts[i + 1]]] are the rows of item i (rows, d). Order statistics are found
by bisection on the value, for all components of a row at once: a pass compares and counts, which
the compiler turns into a few vector instructions. Sorting would take component after component.
"""

from __future__ import annotations

import numpy as np
from numba import int32, int64, types

from coterie.kernels.common import Integer, helper, kernel, readonly
from coterie.types import Ints, Longs


@helper
def limits(block: Ints) -> tuple[np.int32, np.int32]:
    """The smallest and the largest entry."""
    lowest = highest = block[0, 0]
    for r in range(len(block)):
        row = block[np.uint64(r)]
        for f in range(len(row)):
            lowest = min(lowest, row[np.uint64(f)])
            highest = max(highest, row[np.uint64(f)])
    return lowest, highest


@helper
def halve(low: Ints, high: Ints, middle: Ints) -> None:
    """The middles, rounded down, without overflow."""
    for f in range(len(low)):
        at = np.uint64(f)
        middle[at] = (low[at] & high[at]) + ((low[at] ^ high[at]) >> np.int32(1))


@helper
def count_up_to(
    block: Ints, first: Ints, second: Ints, up_to_first: Ints, up_to_second: Ints
) -> None:
    """How many entries of each component are at most the first bound, and the second."""
    up_to_first[:] = 0
    up_to_second[:] = 0
    for r in range(len(block)):
        row = block[np.uint64(r)]
        for f in range(len(row)):
            at = np.uint64(f)
            up_to_first[at] += np.int32(row[at] <= first[at])
            up_to_second[at] += np.int32(row[at] <= second[at])


@helper
def narrow(low: Ints, high: Ints, middle: Ints, counts: Ints, wanted: Integer) -> None:
    """Keep the half that has the wanted value."""
    for f in range(len(low)):
        at = np.uint64(f)
        if counts[at] >= wanted:
            high[at] = middle[at]
        else:
            low[at] = middle[at] + np.int32(1)


@helper
def order_statistics(
    block: Ints, first: Integer, second: Integer, smaller: Ints, larger: Ints
) -> None:
    """Of each component: the first-th smallest value and the second-th smallest, from 1 on."""
    d = block.shape[1]
    lowest, highest = limits(block)
    # The value is from `smaller` to `up`, and from `larger` to `top`.
    up = np.full(d, highest, np.int32)
    top = np.full(d, highest, np.int32)
    smaller[:] = lowest
    larger[:] = lowest
    # Arrays of their own, which cannot overlap: the loops over them are vectorised.
    lower = np.empty(d, np.int32)
    upper = np.empty(d, np.int32)
    up_to_lower = np.empty(d, np.int32)
    up_to_upper = np.empty(d, np.int32)
    width = np.int64(highest) - np.int64(lowest)
    while width > 0:
        halve(smaller, up, lower)
        halve(larger, top, upper)
        count_up_to(block, lower, upper, up_to_lower, up_to_upper)
        narrow(smaller, up, lower, up_to_lower, first)
        narrow(larger, top, upper, up_to_upper, second)
        width //= 2


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
    block = np.empty((most, d), np.int32)
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
            block[np.uint64(r)] = rows[np.uint64(own[r])]
        order_statistics(block[:n], cuts[i] + 1, n - cuts[i], smallest, largest)
        for r in range(n):
            row = rows[np.uint64(own[r])]
            for f in range(d):
                at = np.uint64(f)
                row[at] = min(max(row[at], smallest[at]), largest[at])
