"""The training samples of a cohort in a round, drawn on the clients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coterie import kernels
from coterie.core import parallel, streams
from coterie.data.training_set import TrainingSet
from coterie.federated.federation import (
    AnyWorld,
    NodeData,
)
from coterie.types import Floats, Ints, Longs

NO_RATINGS: Floats = np.empty(0, np.float32)


@dataclass(frozen=True, slots=True)
class Samples:
    """User k trains on places[starts[k]:starts[k + 1]].

    A place is an index into the user's own rows, items[offsets[k]:offsets[k + 1]].
    """

    offsets: Longs  # (n + 1,)
    items: Ints  # (rows,) the touched items, ascending within a user
    starts: Longs  # (n + 1,)
    places: Ints  # (samples,)
    targets: Floats  # (samples,) 1 or 0, or the rating

    @property
    def counts(self) -> Longs:
        """Samples of every user."""
        return np.diff(self.starts)


def draw(world: AnyWorld, users: Ints, t: int, node: NodeData) -> Samples:
    """Draw every positive once per local epoch in a new order, each with fresh negatives."""
    settings = world.settings
    keys = streams.keys(node.seed, "samples", t, last=users)
    places = node.positions(users)
    return draw_from(node.training, places, settings.negatives, settings.local_epochs, keys)


def draw_from(
    history: TrainingSet, users: Longs, negatives: int, epochs: int, keys: NDArray[np.uint64]
) -> Samples:
    """The samples of users of a training set, each from the stream of its key.

    Negatives are drawn outside the user's training positives. Ratings have none.
    """
    if history.ratings is not None:
        negatives = 0
    has_everything = history.excluded.counts_of(users) >= history.n_items
    per_positive = np.where(has_everything, 1, 1 + negatives)
    starts = _offsets(history.positives.counts_of(users) * per_positive * epochs)
    n_rows = np.empty(len(users), np.int64)
    rows = np.empty(starts[-1], np.int32)
    places = np.empty(starts[-1], np.int32)
    targets = np.empty(starts[-1], np.float32)
    kernel = kernels.load("samples")

    def part(first: int, last: int) -> None:
        kernel.draw(
            users,
            history.positives.offsets,
            history.positives.items,
            NO_RATINGS if history.ratings is None else history.ratings,
            history.excluded.offsets,
            history.excluded.items,
            history.n_items,
            negatives,
            epochs,
            keys,
            starts,
            first,
            last,
            n_rows,
            rows,
            places,
            targets,
        )

    # Every call allocates tables over all items, so it should have some users to work on.
    parallel.over(part, starts, smallest=32)
    offsets = _offsets(n_rows)
    items = np.empty(offsets[-1], np.int32)
    kernel.pack(starts, offsets, rows, items)
    return Samples(offsets, items, starts, places, targets)


def _offsets(counts: Longs) -> Longs:
    """(n + 1,) running totals, from 0."""
    total = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=total[1:])
    return total
