"""Norms of the rows of clients, and rows shortened to bounds."""

from __future__ import annotations

import numpy as np

from coterie.types import TOO_LARGE, Doubles, Ints, Longs

BLOCK = 1 << 16


def squared(
    offsets: Longs, rows: Ints, first: int, last: int, by_row: Doubles, by_client: Doubles
) -> None:
    """For clients first..last: the squared norm of each row, and their sum."""
    own = slice(offsets[first], offsets[last])
    by_row[own] = sum(
        (rows[own, begin : begin + BLOCK].astype(np.int64) ** 2).sum(axis=1).astype(np.float64)
        for begin in range(0, rows.shape[1], BLOCK)
    )
    by_row[own][(np.abs(rows[own].astype(np.int64)) >= TOO_LARGE).any(axis=1)] = np.inf
    by_client[first:last] = _sums_of_clients(by_row, offsets, first, last)


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
    """For clients first..last: rows of at most `longest_row`, together of at most `longest`."""
    own = slice(offsets[first], offsets[last])
    bound = longest_row * longest_row
    limit = np.minimum(bound, limits[items] if len(limits) else np.full(len(rows), bound))
    totals = _sums_of_clients(np.minimum(by_row, limit), offsets, first, last)
    is_long = totals > longest * longest
    of_client = np.where(is_long, longest / np.sqrt(np.where(is_long, totals, 1.0)), 1.0)
    factors = np.repeat(of_client, np.diff(offsets[first : last + 1]))
    if len(by_item):
        factors *= by_item[items[own]]
    norms = by_row[own]
    limit = limit[own]
    is_long = norms > limit
    lengths = np.where(limit == bound, longest_row, np.sqrt(limit))
    factors *= np.where(is_long, lengths / np.sqrt(np.where(is_long, norms, 1.0)), 1.0)
    shorter = own.start + np.flatnonzero(factors < 1.0)
    rows[shorter] = (rows[shorter] * factors[factors < 1.0, None]).astype(np.int32)


def scale(offsets: Longs, rows: Ints, factors: Doubles, first: int, last: int, out: Ints) -> None:
    """For clients first..last: put rows times the factor of their client into `out`, truncated."""
    own = slice(offsets[first], offsets[last])
    by_row = np.repeat(factors[first:last], np.diff(offsets[first : last + 1]))
    out[own] = (rows[own] * by_row[:, None]).astype(np.int32)


def count(items: Ints, counts: Longs) -> None:
    """Add to counts[i] how often item i is there."""
    counts += np.bincount(items, minlength=len(counts))


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
    """For items low..high: the n-th largest value of the item's rows, at most `enough`."""
    order = np.lexsort((-by_row, items))
    ordered = items[order]
    place = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)
    wanted = (place == n - 1) & (ordered >= low) & (ordered < high)
    nth[low:high] = enough
    nth[ordered[wanted]] = np.minimum(by_row[order[wanted]], enough)


def _sums_of_clients(values: Doubles, offsets: Longs, first: int, last: int) -> Doubles:
    clients = np.repeat(np.arange(last - first), np.diff(offsets[first : last + 1]))
    own = values[offsets[first] : offsets[last]]
    return np.bincount(clients, own, last - first).astype(np.float64)
