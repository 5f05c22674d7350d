"""Bounded updates: no client moves the model much more than others of its round do.

The bounds of a round follow from all its clients, never from the word of one. With med the lower
median over clients, which is at most the largest honest value while no more than half of them are
hostile, a client's update is shortened to

    each item row      `rows` times med of (root mean square of the norms of a client's rows),
                       and the norm of the n-th longest row of the item, n being `agreeing`
                       times the number of clients
    all item rows      `updates` times med of (norm of all item rows of a client)
    its own row        `own_row` times med of (norm of the own row)
    the dense part     `updates` times med of (norm of the dense part)
    its samples        `samples` times med of the samples

The multiples belong to the algorithm, and so does the share of clients that have to agree on the
length of an item's row. An item row that fewer than SENDERS clients send moves by so
much less: a client that is alone with a cold item has no one to be compared with. A round of one
client has no bounds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from coterie import kernels
from coterie.core import parallel
from coterie.federated.client_rows import KERNELS, WORTH_THREADS, over_clients, squared_norms
from coterie.federated.robust.multiples import Multiples
from coterie.federated.validation import SquaredNorms
from coterie.types import Doubles, Ints, Longs, Updates

SENDERS = 3


def bounded(updates: Updates, multiples: Multiples, norms: SquaredNorms | None = None) -> Updates:
    """The updates with rows, samples and norms within the bounds of the round.

    Rows that are too long may change in place: the updates belong to the caller from then on.
    `norms` are those of the item rows, where they are known.
    """
    if len(updates) == 1:
        return updates
    return replace(
        updates,
        samples=capped_samples(updates.samples, multiples.samples),
        item_rows=shortened_rows(updates, multiples, norms),
        user_rows=shortened(updates.user_rows, multiples.own_row),
        dense=shortened(updates.dense, multiples.updates),
    )


def shortened_rows(
    updates: Updates, multiples: Multiples, known: SquaredNorms | None = None
) -> Ints:
    """Item rows, each and all of a client together, within their bounds."""
    rows = updates.item_rows
    if not rows.size:
        return rows
    norms = Norms(rows, updates.offsets, known or squared_norms(rows, updates.offsets))
    longest_row = multiples.rows * lower_median(norms.root_mean_squares)
    return norms.shorten(
        updates.items,
        by_senders(updates.items, updates.offsets, min(SENDERS, len(updates))),
        norms.agreed(updates.items, multiples.number_agreeing(len(updates)), longest_row),
        longest_row,
        multiples.updates * lower_median(norms.of_senders),
    )


def by_senders(items: Ints, offsets: Longs, fewest: int) -> Doubles:
    """(items,) factors: 1 for an item that `fewest` clients send, and their share with fewer.

    It is empty where all items have enough senders, which is usual and then saves time.
    """
    n_items = number_of(items, offsets)
    if (np.diff(offsets) == n_items).sum() >= fewest:
        return np.empty(0)  # so many clients send all items
    counts = np.zeros(n_items, np.int64)
    kernels.load(KERNELS).count(items, counts)
    if not ((counts > 0) & (counts < fewest)).any():
        return np.empty(0)
    return np.minimum(counts / fewest, 1.0)


def number_of(items: Ints, offsets: Longs) -> int:
    """One more than the largest item. Those of a client ascend."""
    last = offsets[1:][np.diff(offsets) > 0] - 1
    return int(items[last].max()) + 1


def capped_samples(samples: Longs, multiple: float) -> Longs:
    most = int(multiple * lower_median(samples))
    return np.minimum(samples, max(most, 1))


def shortened(vectors: Ints, multiple: float) -> Ints:
    """(n, width) a vector of each client, at most `multiple` times as long as the median."""
    if not vectors.size:
        return vectors
    offsets = np.arange(len(vectors) + 1)
    norms = Norms(vectors, offsets, squared_norms(vectors, offsets))
    longest = multiple * lower_median(norms.of_senders)
    return norms.shorten(np.empty(0, np.int32), np.empty(0), np.empty(0), longest, longest)


def lower_median(values: Doubles | Longs) -> float:
    """The median; of an even number, the smaller of the two in the middle."""
    middle = (len(values) - 1) // 2
    return float(np.partition(values, middle)[middle])


@dataclass(frozen=True, slots=True)
class Norms:
    """The rows of clients and their squared norms: of each row, and of all rows of a client."""

    rows: Ints
    offsets: Longs
    squared: SquaredNorms

    @property
    def of_senders(self) -> Doubles:
        """The norm of all rows of each client that sends any."""
        return np.sqrt(self.squared.by_client[np.diff(self.offsets) > 0])

    @property
    def root_mean_squares(self) -> Doubles:
        """Of the norms of each client's rows; only clients that send any."""
        counts = np.diff(self.offsets)
        sent = counts > 0
        return np.sqrt(self.squared.by_client[sent] / counts[sent])

    def agreed(self, items: Ints, agreeing: int, longest_row: float) -> Doubles:
        """(items,) the squared norm of the n-th longest row of each item, n being `agreeing`.

        It is that of `longest_row` where it is no bound: where fewer clients send the item, or the
        n-th row is as long as any may be. It is empty for n = 1.
        """
        if agreeing == 1:
            return np.empty(0)
        n_items = number_of(items, self.offsets)
        nth = np.empty(n_items)
        kernel = kernels.load(KERNELS).nth_largest
        by_row = self.squared.by_row.view(np.int64)
        enough = int(np.float64(longest_row * longest_row).view(np.int64))
        patterns = nth.view(np.int64)
        parallel.over(
            lambda low, high: kernel(
                self.offsets, items, by_row, agreeing, enough, low, high, patterns
            ),
            n_items,
            alone=self.rows.size < WORTH_THREADS,
        )
        return nth

    def shorten(
        self,
        items: Ints,
        by_item: Doubles,
        limits: Doubles,
        longest_row: float,
        longest: float,
    ) -> Ints:
        """Rows within all bounds, times the factor of their item, rounded towards zero.

        `limits` are squared norms by item, `longest_row` and `longest` are norms. Rows change in
        place unless they are read-only, as those decoded from a message are.
        """
        rows = self.rows if self.rows.flags.writeable else self.rows.copy()
        kernel = kernels.load(KERNELS).shorten
        over_clients(
            lambda first, last: kernel(
                self.offsets,
                items,
                *self.squared,
                by_item,
                limits,
                longest_row,
                longest,
                first,
                last,
                rows,
            ),
            rows,
            self.offsets,
        )
        return rows
