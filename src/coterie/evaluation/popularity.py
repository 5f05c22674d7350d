"""The reference that every result is held against: the accuracy of the most popular items.

A model that ranks worse than popularity has learned less than no personalisation at all. The ranks
need no model and no scores: among the items that a user has not seen, the place of an item is its
place in the catalogue less the seen items before it. That costs a sort of the seen interactions,
where full ranking costs users times items.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coterie.data.splits import Split
from coterie.evaluation.candidates import Candidates
from coterie.evaluation.metrics import per_user
from coterie.evaluation.protocols import Protocol
from coterie.evaluation.ranking import Ranks, rank_candidates
from coterie.models.popular import ItemCounts
from coterie.types import Longs, Rows


def popular_accuracy(
    split: Split, protocol: Protocol, candidates: Candidates | None
) -> dict[str, float]:
    """The protocol's accuracy of items by their number of training users."""
    counts = np.bincount(split.train.items, minlength=split.train.n_items)
    k = max(protocol.cutoffs)
    if candidates is None:
        ranks = popular_ranks(counts, split.seen(), split.test.rows, k)
    else:
        model = ItemCounts(counts.astype(np.float32))
        ranks = rank_candidates(model, candidates.by_user(), k)
    table = per_user(ranks, protocol.cutoffs)
    return {name: float(values.mean()) for name, values in table.items()}


def popular_ranks(counts: Longs, seen: Rows, wanted: Rows, k: int) -> Ranks:
    """`rank_all` of items by popularity, but without the lists."""
    users = np.flatnonzero(wanted.counts).astype(np.int32)
    rows, items = wanted.take(users)
    seen_rows, seen_items = seen.take(users)
    whole = _Catalogue.of(counts)
    own = _Pairs.of(seen_rows, counts[seen_items], int(counts.max(initial=0)))
    value = counts[items]
    return Ranks(
        users=users,
        candidates=len(counts) - seen.counts_of(users),
        relevant=wanted.counts_of(users),
        owner=rows,
        above=whole.more(value) - own.more(rows, value),
        tied=whole.equal(value) - own.equal(rows, value),
        top=np.full((len(users), k), -1, np.int32),
    )


class _Catalogue(NamedTuple):
    """The counts of all items, sorted."""

    counts: Longs

    @classmethod
    def of(cls, counts: Longs) -> _Catalogue:
        return cls(np.sort(counts))

    def more(self, value: Longs) -> Longs:
        """How many items have a higher count."""
        return len(self.counts) - np.searchsorted(self.counts, value, "right")

    def equal(self, value: Longs) -> Longs:
        """How many items have this count."""
        upper = np.searchsorted(self.counts, value, "right")
        return upper - np.searchsorted(self.counts, value, "left")


class _Pairs(NamedTuple):
    """The counts of the items that each user has seen, sorted by user and count in one array."""

    keys: Longs
    stride: int

    @classmethod
    def of(cls, rows: Longs, counts: Longs, most: int) -> _Pairs:
        stride = most + 1
        return cls(np.sort(rows * stride + counts), stride)

    def more(self, rows: Longs, value: Longs) -> Longs:
        """How many items a user has seen with a higher count."""
        end = np.searchsorted(self.keys, (rows + 1) * self.stride, "left")
        return end - np.searchsorted(self.keys, rows * self.stride + value, "right")

    def equal(self, rows: Longs, value: Longs) -> Longs:
        """How many items a user has seen with this count."""
        upper = np.searchsorted(self.keys, rows * self.stride + value, "right")
        return upper - np.searchsorted(self.keys, rows * self.stride + value, "left")


def below(
    metrics: dict[str, float], popular: dict[str, float], names: tuple[str, ...]
) -> list[str]:
    """The metrics among `names` that are lower than those of the most popular items."""
    return [name for name in names if name in popular and metrics[name] < popular[name]]
