"""User-kNN and Item-kNN by cosine similarity: strong baselines for short histories.

Koren. Factor in the neighbors: scalable and accurate collaborative filtering. TKDD 2010; Sarwar,
Karypis, Konstan, Riedl. Item-based collaborative filtering recommendation algorithms. WWW 2001.

User-kNN: score(u, i) = sum of cos(u, v) over those of the k users v nearest to u who have i.
Item-kNN: score(u, i) = sum of cos(i, j) over those of the k items j nearest to i that u has.

Overlaps are integers, and ties go to the lower index, so the result is deterministic for any number
of threads. Memory is the non-zero similarities of one block of rows, plus k per row.

If most items have one or two users, as check-in places do, a cosine of 1 may rest on a single user.
`shrink` (Koren 2010) discounts such a cosine, and Item-kNN needs it on such data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field

from coterie.algorithms.algorithm import Algorithm, at_once, score_history
from coterie.core import parallel
from coterie.core.settings import SearchSpace, Settings
from coterie.data.training_set import TrainingSet
from coterie.federated.trainer import Context
from coterie.models.neighbours import ItemNeighbours, UserNeighbours, matrix, nearest, similarity
from coterie.types import Doubles, Floats, Ints, Longs, Rows

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

OVERLAPS = 1 << 19
"""Pairs of rows that share a member, over all members, in a block: few enough to fit the cache."""


class Neighbours(Settings):
    search_space: ClassVar[SearchSpace] = {
        "neighbours": [10, 20, 30, 50, 70, 100, 150, 200, 300],
        "shrink": [0.0, 1.0, 3.0, 10.0, 30.0],
    }

    neighbours: int = Field(50, ge=1)
    """Number of nearest neighbours (k)."""
    shrink: float = Field(0.0, ge=0)
    """A cosine over c common members is multiplied by c / (c + shrink)."""


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
    return ItemNeighbours.of_items(near, cosines, training.positives)


def neighbours(rows: Rows, columns: Rows, settings: Neighbours) -> tuple[Rows, Floats]:
    """The k nearest rows of every row, and their similarities; `columns` is `rows` transposed."""
    per_entry = np.append(columns.counts[rows.items], 0)
    overlaps = np.add.reduceat(per_entry, rows.offsets[:-1]) * (rows.counts > 0)
    load = np.concatenate([[0], np.cumsum(overlaps)]).astype(np.int64)
    table = matrix(columns, len(rows.counts), np.ones(len(columns.items)))
    nothing: tuple[Ints, Floats] = (np.empty(0, np.int32), np.empty(0, np.float32))
    by_row = [nothing] * len(rows.counts)

    def part(first: int, last: int) -> None:
        for begin, end in blocks(load, first, last):
            by_row[begin:end] = _neighbours_of_block(rows, table, begin, end, settings)

    parallel.over(part, load)
    counts = [len(near) for near, _ in by_row]
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    near, cosines = (np.concatenate(parts) for parts in zip(*by_row, strict=True))
    return Rows(offsets, near), cosines


def blocks(load: Longs, first: int, last: int) -> list[tuple[int, int]]:
    """Ranges of at least one row, with at most OVERLAPS of work if they have more than one."""
    ranges: list[tuple[int, int]] = []
    while first < last:
        end = int(np.searchsorted(load, load[first] + OVERLAPS, side="right")) - 1
        ranges.append((first, min(max(end, first + 1), last)))
        first = ranges[-1][1]
    return ranges


def _neighbours_of_block(
    rows: Rows, table: csr_matrix, begin: int, end: int, settings: Neighbours
) -> list[tuple[Ints, Floats]]:
    """The neighbours of rows begin..end."""
    block = np.arange(begin, end)
    overlaps = matrix(rows.of_users(block), table.shape[0]) @ table
    owners = np.repeat(block, np.diff(overlaps.indptr))
    sizes = rows.counts
    cosines = similarity(overlaps.data, sizes[owners], sizes[overlaps.indices], settings.shrink)
    # A row is not its own neighbour.
    cosines[overlaps.indices == owners] = 0
    return [
        _best(overlaps.indices[a:b], cosines[a:b], settings.neighbours)
        for a, b in zip(overlaps.indptr[:-1], overlaps.indptr[1:], strict=True)
    ]


def _best(rows: Ints, cosines: Doubles, k: int) -> tuple[Ints, Floats]:
    best = nearest(rows, cosines, k)
    return rows[best].astype(np.int32), cosines[best].astype(np.float32)


BY_USERS = Algorithm(
    "items of the most similar users",
    Neighbours,
    at_once(by_users),
    state=UserNeighbours,
    steps=lambda settings: 1,
    paper="Koren 2010",
    score_new_user=score_history,
)
BY_ITEMS = Algorithm(
    "items most similar to the user's own",
    Neighbours,
    at_once(by_items),
    state=ItemNeighbours,
    steps=lambda settings: 1,
    paper="Koren 2010",
    score_new_user=score_history,
    item_based=True,
)
