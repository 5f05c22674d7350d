"""Bounded updates: no client moves the model much more than others of its round do.

The bounds of a round follow from all its clients, never from the word of one. With med the median
over clients, which less than half of them cannot move far, a client's update is shortened to

    each item row      ROWS times med of (typical norm of a client's rows)
    all item rows      UPDATES times med of (norm of all item rows of a client)
    its own row        UPDATES times med of (norm of the own row)
    the dense part     UPDATES times med of (norm of the dense part)
    its samples        SAMPLES times med of the samples

A client's typical norm is that of a row drawn in proportion to its squared norm: FCF's clients send
a row for every item, most of them tiny. An item row that fewer than SENDERS clients send moves by
so much less: a client that is alone with a cold item has no one to be compared with.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from coterie.types import Doubles, Ints, Longs, Updates

ROWS = 2.0
UPDATES = 3.0
SAMPLES = 4.0
SENDERS = 3
FEWEST_CLIENTS = 5
"""Clients of a round without whom a median says little. A smaller cohort is refused."""


def bounded(updates: Updates) -> Updates:
    """The updates with rows, samples and norms within the bounds of the round."""
    rows = shortened_rows(updates)
    rows = with_few_senders(updates.items, rows)
    return replace(
        updates,
        samples=capped_samples(updates.samples),
        item_rows=rows,
        user_rows=shortened(updates.user_rows),
        dense=shortened(updates.dense),
    )


def shortened_rows(updates: Updates) -> Ints:
    """Item rows, each and all of a client together, within their bounds."""
    rows = updates.item_rows
    if not rows.size:
        return rows
    squared = squared_norms(rows)
    totals = sums_of_clients(squared, updates.offsets)
    counts = np.diff(updates.offsets)
    sent = counts > 0
    fourth = sums_of_clients(squared**2, updates.offsets)
    typical = np.sqrt(fourth / np.maximum(totals, 1.0))
    longest_row = ROWS * float(np.median(typical[sent]))
    squared = np.minimum(squared, longest_row**2)
    longest = UPDATES * np.sqrt(np.median(totals[sent]))
    factor = shrinking(np.sqrt(sums_of_clients(squared, updates.offsets)), longest)
    by_row = np.repeat(factor, counts) * shrinking(np.sqrt(squared_norms(rows)), longest_row)
    return scaled(rows, by_row)


def with_few_senders(items: Ints, rows: Ints) -> Ints:
    """Rows of an item that fewer than SENDERS clients send, in proportion to their number."""
    if not rows.size:
        return rows
    senders = np.bincount(items)
    return scaled(rows, np.minimum(senders[items] / SENDERS, 1.0))


def capped_samples(samples: Longs) -> Longs:
    most = int(SAMPLES * np.median(samples))
    return np.minimum(samples, max(most, 1))


def shortened(vectors: Ints) -> Ints:
    """(n, width) a vector of each client, within UPDATES times the median norm."""
    if not vectors.size:
        return vectors
    norms = np.sqrt(squared_norms(vectors))
    return scaled(vectors, shrinking(norms, UPDATES * float(np.median(norms))))


def squared_norms(rows: Ints) -> Doubles:
    as_floats = rows.astype(np.float64)
    squared: Doubles = np.einsum("ij,ij->i", as_floats, as_floats)
    return squared


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
