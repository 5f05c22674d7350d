"""Trimmed updates: the extremes of every component of an item row count as less extreme ones.

Of each component of an item's row, the TRIMMED share of clients with the largest values get the
largest of the others, and those with the smallest values the smallest of the others (a winsorised
mean, the trimmed mean's close relative that any weighting of clients can follow; Yin et al. 2018
trim). Of a row that fewer than SENDERS clients send, nothing counts.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from coterie.federated.robust.bounds import bounded
from coterie.federated.robust.multiples import Multiples
from coterie.federated.validation import SquaredNorms
from coterie.types import Doubles, Ints, Longs, Updates

TRIMMED = 0.2
SENDERS = 3
BLOCK = 1 << 18
"""Entries that are sorted in one call. More would not stay in the processor's cache."""
FEWEST_CLIENTS = 5
"""Clients of a round of which a share can be left out. A smaller cohort is refused."""


def trimmed(updates: Updates, multiples: Multiples, norms: SquaredNorms | None = None) -> Updates:
    """Within the bounds, and then without extremes."""
    updates = bounded(updates, multiples, norms)
    rows = updates.item_rows
    if rows.size:
        rows = trimmed_rows(updates.items, rows)
    return replace(updates, item_rows=rows, dense=trimmed_columns(updates.dense))


def trimmed_rows(items: Ints, rows: Ints) -> Ints:
    """Rows with the extremes of each item's components replaced.

    Items that the same number of clients send are sorted together, block by block.
    """
    by_item = np.argsort(items, kind="stable")
    _, first, counts = np.unique(items[by_item], return_index=True, return_counts=True)
    result = np.zeros_like(rows)
    for count in np.unique(counts[counts >= SENDERS]).tolist():
        cut = max(int(TRIMMED * count), 1)
        starts = first[counts == count]
        step = max(BLOCK // (count * rows.shape[1]), 1)
        for k in range(0, len(starts), step):
            places = by_item[starts[k : k + step, None] + np.arange(count)]
            block = rows[places]  # (items, clients, components)
            ascending = np.sort(block, axis=1)
            result[places] = np.clip(block, ascending[:, [cut]], ascending[:, [count - 1 - cut]])
    return result


def trimmed_columns(vectors: Ints) -> Ints:
    """(clients, width) vectors without the extremes of each component."""
    n = len(vectors)
    cut = int(TRIMMED * n)
    if not vectors.size or not cut:
        return vectors
    ascending = np.sort(vectors, axis=0)
    return np.clip(vectors, ascending[cut], ascending[n - 1 - cut])


def trimmed_sum(sums: Longs, sizes: Longs, cut: int) -> Longs:
    """The sum over groups, were all clients like those of the groups that are not extreme.

    (groups, ...) sums and (groups,) numbers of clients. A group is extreme by its sum by client.
    """
    n = len(sums)
    by_client: Doubles = sums / sizes.reshape(n, *[1] * (sums.ndim - 1))
    middle = np.sort(by_client, axis=0)[cut : n - cut]
    whole: Longs = np.rint(middle.mean(axis=0) * sizes.sum()).astype(np.int64)
    return whole
