"""Bounded updates: no client moves the model much more than others of its round do.

The bounds of a round follow from all its clients, never from the word of one. With med the lower
median over clients, which half of them cannot raise, a client's update is shortened to

    each item row      `rows` times med of (root mean square of the norms of a client's rows)
    all item rows      `updates` times med of (norm of all item rows of a client)
    its own row        `own_row` times med of (norm of the own row)
    the dense part     `updates` times med of (norm of the dense part)
    its samples        `samples` times med of the samples

The multiples belong to the algorithm. An item row that fewer than SENDERS clients send moves by so
much less: a client that is alone with a cold item has no one to be compared with. A round of one
client has no bounds.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from coterie.federated.robust.multiples import Multiples
from coterie.types import Doubles, Ints, Longs, Updates

SENDERS = 3


def bounded(updates: Updates, multiples: Multiples) -> Updates:
    """The updates with rows, samples and norms within the bounds of the round."""
    n = len(updates)
    if n == 1:
        return updates
    rows = shortened_rows(updates, multiples)
    rows = with_few_senders(updates.items, rows, min(SENDERS, n))
    return replace(
        updates,
        samples=capped_samples(updates.samples, multiples.samples),
        item_rows=rows,
        user_rows=shortened(updates.user_rows, multiples.own_row),
        dense=shortened(updates.dense, multiples.updates),
    )


def shortened_rows(updates: Updates, multiples: Multiples) -> Ints:
    """Item rows, each and all of a client together, within their bounds."""
    rows = updates.item_rows
    if not rows.size:
        return rows
    squared = squared_norms(rows)
    offsets = updates.offsets
    counts = np.diff(offsets)
    longest_row = multiples.rows * lower_median(root_mean_squares(squared, offsets))
    totals = sums_of_clients(squared, offsets)
    longest = multiples.updates * float(np.sqrt(lower_median(totals[counts > 0])))
    within = np.minimum(squared, longest_row**2)
    factor = shrinking(np.sqrt(sums_of_clients(within, offsets)), longest)
    by_row = np.repeat(factor, counts) * shrinking(np.sqrt(squared), longest_row)
    return scaled(rows, by_row)


def with_few_senders(items: Ints, rows: Ints, fewest: int) -> Ints:
    """Rows of an item that fewer than `fewest` clients send, in proportion to their number."""
    if not rows.size:
        return rows
    senders = np.bincount(items)
    return scaled(rows, np.minimum(senders[items] / fewest, 1.0))


def capped_samples(samples: Longs, multiple: float) -> Longs:
    most = int(multiple * lower_median(samples))
    return np.minimum(samples, max(most, 1))


def shortened(vectors: Ints, multiple: float) -> Ints:
    """(n, width) a vector of each client, at most `multiple` times as long as the median."""
    if not vectors.size:
        return vectors
    norms = np.sqrt(squared_norms(vectors))
    return scaled(vectors, shrinking(norms, multiple * lower_median(norms)))


def lower_median(values: Doubles | Longs) -> float:
    """The median; of an even number, the smaller of the two in the middle, which half of the
    clients of a round cannot raise."""
    middle = (len(values) - 1) // 2
    return float(np.partition(values, middle)[middle])


def squared_norms(rows: Ints) -> Doubles:
    as_floats = rows.astype(np.float64)
    squared: Doubles = np.einsum("ij,ij->i", as_floats, as_floats)
    return squared


def root_mean_squares(squared: Doubles, offsets: Longs) -> Doubles:
    """Of the norms of each client's rows; only clients that send any."""
    counts = np.diff(offsets)
    sent = counts > 0
    means: Doubles = np.sqrt(sums_of_clients(squared, offsets)[sent] / counts[sent])
    return means


def sums_of_clients(values: Doubles, offsets: Longs) -> Doubles:
    """The sum over the rows of each client."""
    counts = np.diff(offsets)
    client = np.repeat(np.arange(len(counts)), counts)
    return np.bincount(client, values, len(counts)).astype(np.float64)


def shrinking(norms: Doubles, longest: float) -> Doubles:
    """Factors that shorten vectors with these norms to `longest`; 1 where they are shorter."""
    return longest / np.maximum(norms, max(longest, 1e-300))


def scaled(rows: Ints, factors: Doubles) -> Ints:
    """Rows times factors of at most 1, rounded towards zero; the same array if all are 1."""
    changed = np.flatnonzero(factors < 1)
    if not len(changed):
        return rows
    result: NDArray[np.int32] = rows.copy()
    result[changed] = (rows[changed] * factors[changed, None]).astype(np.int32)
    return result
