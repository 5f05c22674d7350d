"""What a cohort trains on in a round, drawn on its devices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie import kernels
from coterie.core import parallel, streams
from coterie.federated.federation import (
    AnyWorld,
    NodeData,
)
from coterie.types import Floats, Ints, Longs

NO_RATINGS: Floats = np.empty(0, np.float32)


@dataclass(frozen=True, slots=True)
class Samples:
    """User k trains on places[starts[k]:starts[k + 1]], each a row number within items[offsets[k]:offsets[k + 1]]."""

    offsets: Longs  # (n + 1,)
    items: Ints  # (rows,) what users touch, ascending within a user
    starts: Longs  # (n + 1,)
    places: Ints  # (samples,)
    targets: Floats  # (samples,) 1 or 0, or the rating

    @property
    def counts(self) -> Longs:
        return np.diff(self.starts)


def draw(world: AnyWorld, users: Ints, t: int, node: NodeData) -> Samples:
    """Every positive once per local epoch in a new order, each with fresh negatives outside the training positives."""
    settings = world.settings
    history = node.training
    people = node.positions(users)
    negatives = 0 if history.ratings is not None else settings.negatives
    has_everything = history.excluded.counts_of(people) >= world.n_items
    per_positive = np.where(has_everything, 1, 1 + negatives)
    starts = _running(history.positives.counts_of(people) * per_positive * settings.local_epochs)
    keys = streams.keys(node.seed, "samples", t, last=users)
    n_rows = np.empty(len(users), np.int64)
    rows = np.empty(starts[-1], np.int32)
    places = np.empty(starts[-1], np.int32)
    targets = np.empty(starts[-1], np.float32)
    kernel = kernels.load("samples")

    def part(first: int, last: int) -> None:
        kernel.draw(
            people,
            history.positives.offsets,
            history.positives.items,
            NO_RATINGS if history.ratings is None else history.ratings,
            history.excluded.offsets,
            history.excluded.items,
            world.n_items,
            negatives,
            settings.local_epochs,
            keys,
            starts,
            first,
            last,
            n_rows,
            rows,
            places,
            targets,
        )

    parallel.over(part, starts, smallest=32)  # every call marks items in tables of its own
    offsets = _running(n_rows)
    items = np.empty(offsets[-1], np.int32)
    kernel.pack(starts, offsets, rows, items)
    return Samples(offsets, items, starts, places, targets)


def _running(counts: Longs) -> Longs:
    total = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=total[1:])
    return total
