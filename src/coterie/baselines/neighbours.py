"""User-kNN and Item-kNN by cosine: nothing is trained, and little is harder to beat where histories are short.

Koren. Factor in the neighbors: scalable and accurate collaborative filtering. TKDD 2010; Sarwar, Karypis, Konstan, Riedl.
Item-based collaborative filtering recommendation algorithms. WWW 2001.

User-kNN: score(u, i) = the sum of cos(u, v) over the k users v nearest to u, of those who have i.
Item-kNN: score(u, i) = the sum of cos(i, j) over the k items j nearest to i, of those that u has.

Overlaps are whole numbers and ties go to the lower number: there is no chance in it, and threads change nothing. Memory follows
the non-zeros of a block of rows of the similarities, of which every row keeps k.

Where most items have one user or two, as places do, a cosine of 1 rests on a single person; `shrink` (Koren 2010) tells such from
those that rest on many, and Item-kNN needs it there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from coterie.algorithms.algorithm import Algorithm, at_once
from coterie.core import parallel
from coterie.core.settings import Settings
from coterie.data.training_set import TrainingSet
from coterie.federated.trainer import Context
from coterie.models.neighbours import ItemNeighbours, UserNeighbours, matrix, nearest, similarity
from coterie.types import Floats, Ints, Longs, Rows

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

OVERLAPS = 1 << 19
"""Pairs of rows that share a member, counted with every member, in a block: few enough to stay in a core's cache."""


class Neighbours(Settings):
    neighbours: int = Field(50, ge=1)
    """How many of the nearest count (k)."""
    shrink: float = Field(0.0, ge=0)
    """A cosine that rests on c common members counts c / (c + shrink) of itself."""


def by_users(training: TrainingSet, settings: Neighbours, context: Context) -> UserNeighbours:
    near, cosines = neighbours(training.positives, training.by_item, settings)
    histories = training.positives
    return UserNeighbours(
        near.offsets,
        near.items,
        cosines,
        histories.offsets,
        histories.items,
        training.n_items,
        settings.neighbours,
        settings.shrink,
    )


def by_items(training: TrainingSet, settings: Neighbours, context: Context) -> ItemNeighbours:
    near, cosines = neighbours(training.by_item, training.positives, settings)
    followers = matrix(near, training.n_items, cosines).T.tocsr()
    return ItemNeighbours(
        followers.indptr.astype(np.int64),
        followers.indices.astype(np.int32),
        followers.data,
        training.positives.offsets,
        training.positives.items,
    )


def neighbours(rows: Rows, columns: Rows, settings: Neighbours) -> tuple[Rows, Floats]:
    """The k nearest rows of every row, and how similar they are; `columns` is the same table by its columns."""
    counted = np.add.reduceat(np.append(columns.counts[rows.items], 0), rows.offsets[:-1]) * (
        rows.counts > 0
    )
    load = np.concatenate([[0], np.cumsum(counted)]).astype(np.int64)
    table = matrix(columns, len(rows.counts), np.ones(len(columns.items)))
    found: list[tuple[Ints, Floats]] = [(np.empty(0, np.int32), np.empty(0, np.float32))] * len(
        rows.counts
    )

    def part(first: int, last: int) -> None:
        for begin, end in blocks(load, first, last):
            found[begin:end] = _of_block(rows, table, begin, end, settings)

    parallel.over(part, load)
    offsets = np.concatenate([[0], np.cumsum([len(near) for near, _ in found])]).astype(np.int64)
    near, cosines = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return Rows(offsets, near), cosines


def blocks(load: Longs, first: int, last: int) -> list[tuple[int, int]]:
    """Ranges of rows with about OVERLAPS of work each, and one row at least."""
    found = []
    while first < last:
        end = int(np.searchsorted(load, load[first] + OVERLAPS, side="right")) - 1
        found.append((first, min(max(end, first + 1), last)))
        first = found[-1][1]
    return found


def _of_block(
    rows: Rows, table: csr_matrix, begin: int, end: int, settings: Neighbours
) -> list[tuple[Ints, Floats]]:
    """The neighbours of some rows."""
    numbers = np.arange(begin, end)
    overlaps = matrix(rows.of_users(numbers), table.shape[0]) @ table
    owners = np.repeat(numbers, np.diff(overlaps.indptr))
    sizes = rows.counts
    cosines = similarity(overlaps.data, sizes[owners], sizes[overlaps.indices], settings.shrink)
    cosines[overlaps.indices == owners] = 0  # nobody is their own neighbour
    return [
        _best(overlaps.indices[a:b], cosines[a:b], settings.neighbours)
        for a, b in zip(overlaps.indptr[:-1], overlaps.indptr[1:], strict=True)
    ]


def _best(numbers: Ints, cosines: np.ndarray, k: int) -> tuple[Ints, Floats]:
    best = nearest(numbers, cosines, k)
    return numbers[best].astype(np.int32), cosines[best].astype(np.float32)


BY_USERS = Algorithm(
    "what the most similar people have",
    Neighbours,
    at_once(by_users),
    state=UserNeighbours,
    steps=lambda settings: 1,
    paper="Koren 2010",
)
BY_ITEMS = Algorithm(
    "what is most similar to what a person has",
    Neighbours,
    at_once(by_items),
    state=ItemNeighbours,
    steps=lambda settings: 1,
    paper="Koren 2010",
)
