"""SLIM: a sparse linear item-to-item model.

Ning, Karypis. SLIM: sparse linear methods for top-N recommender systems. ICDM 2011.

Scores are X W. The weights w of item j, a column of W, are the solution of

    min_w  1/2 |x_j - X w|^2 + reg_l2 / 2 |w|^2 + reg_l1 |w|_1,   w >= 0,  w_j = 0

by cyclic coordinate descent. The items are independent of each other. With `neighbours`, only the
items most similar to j by cosine have a weight (fsSLIM, section IV-D of the paper).

Coordinate descent reads co-occurrence counts: rows of G = X^T X. A table of bounded memory has the
rows that are costly to count, which are those of popular items; the other rows are counted whenever
they are needed. G itself never exists, so memory does not grow with the square of the items.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from coterie import kernels
from coterie.algorithms.algorithm import Algorithm, at_once, score_history
from coterie.core import parallel
from coterie.core.settings import SearchSpace, Settings
from coterie.data.training_set import TrainingSet
from coterie.federated.trainer import Context
from coterie.models.neighbours import ItemNeighbours
from coterie.types import Doubles, Floats, Ints, Longs, Rows

TABLE_BYTES = 1 << 28
"""Memory of the table of counts. It holds all items of a catalogue of up to 8,192."""


class SLIM(Settings):
    search_space: ClassVar[SearchSpace] = {
        "reg_l1": (0.3, 30.0),
        "reg_l2": (3.0, 1000.0),
        "neighbours": [50, 100, 200, 500, 0],
    }

    reg_l1: float = Field(0.5, ge=0)
    """Regularisation of the sum of the weights, which makes them sparse."""
    reg_l2: float = Field(30.0, ge=0)
    """Regularisation of the squared weights."""
    neighbours: int = Field(500, ge=0)
    """Number of most similar items that may have a weight, for every item; 0 for all items."""
    max_sweeps: int = Field(100, ge=1)
    """Most sweeps of coordinate descent over the weights of an item."""
    tolerance: float = Field(1e-4, ge=0)
    """Descent ends with a sweep that changes no weight by more than this."""


def train(training: TrainingSet, settings: SLIM, context: Context) -> ItemNeighbours:
    load = counting_cost(training)
    chosen = costly_rows(load)
    table = count_table(training, chosen)
    near, weights = solve(training, chosen, table, load, settings)
    return ItemNeighbours.of_items(near, weights, training.positives)


def counting_cost(training: TrainingSet) -> Longs:
    """(items + 1,) cumulative cost of counting every row of G: the histories of its users."""
    by_user = training.positives.counts
    costs = np.bincount(training.positives.items, by_user[training.users], training.n_items)
    return np.concatenate([[0], np.cumsum(costs)]).astype(np.int64)


def costly_rows(load: Longs) -> Ints:
    """The items in the table: as many as its memory allows, those of the highest cost."""
    costs = np.diff(load)
    most = TABLE_BYTES // (4 * max(len(costs), 1))
    return np.argsort(-costs, kind="stable")[:most].astype(np.int32)


def count_table(training: TrainingSet, chosen: Ints) -> Ints:
    """(chosen, items) the rows of G of the chosen items."""
    kernel = kernels.load("slim")
    by_item = training.by_item
    histories = training.positives
    table = np.empty((len(chosen), training.n_items), np.int32)

    def part(first: int, last: int) -> None:
        kernel.count_rows(
            by_item.offsets,
            by_item.items,
            histories.offsets,
            histories.items,
            chosen,
            first,
            last,
            table,
        )

    parallel.over(part, len(chosen))
    return table


def solve(
    training: TrainingSet, chosen: Ints, table: Ints, load: Longs, settings: SLIM
) -> tuple[Rows, Floats]:
    """The items with a positive weight for every item, and these weights."""
    kernel = kernels.load("slim")
    by_item = training.by_item
    histories = training.positives
    places = np.full(training.n_items, -1, np.int32)
    places[chosen] = np.arange(len(chosen))
    sizes = np.empty(training.n_items, np.int64)
    parts: dict[int, Doubles] = {}

    def part(first: int, last: int) -> None:
        parts[first] = kernel.solve_items(
            by_item.offsets,
            by_item.items,
            histories.offsets,
            histories.items,
            places,
            table,
            settings.reg_l1,
            settings.reg_l2,
            settings.neighbours,
            settings.max_sweeps,
            settings.tolerance,
            first,
            last,
            sizes,
        )

    parallel.over(part, load)
    found = np.concatenate([parts[first] for first in sorted(parts)])  # (weights, 2)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Rows(offsets, found[:, 0].astype(np.int32)), found[:, 1].astype(np.float32)


ALGORITHM = Algorithm(
    "sparse linear item-to-item model",
    SLIM,
    at_once(train),
    state=ItemNeighbours,
    steps=lambda settings: 1,
    kernels=("slim",),
    paper="Ning and Karypis 2011",
    item_based=True,
    score_new_user=score_history,
)
