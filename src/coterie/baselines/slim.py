"""SLIM: a sparse linear item-to-item model.

Ning, Karypis. SLIM: sparse linear methods for top-N recommender systems. ICDM 2011.

Scores are X W. `algorithms/local/sparse_weights.py` has the objective of W, and its solution from
co-occurrence counts: rows of G = X^T X. A table of bounded memory has the rows that are costly to
count, which are those of popular items; the other rows are counted whenever they are needed. G
itself never exists, so memory does not grow with the square of the items.
"""

from __future__ import annotations

import numpy as np

from coterie import kernels
from coterie.algorithms.algorithm import Algorithm, at_once, score_history
from coterie.algorithms.local.sparse_weights import Counts, SparseWeights, solve
from coterie.core import parallel
from coterie.data.training_set import TrainingSet
from coterie.federated.trainer import Context
from coterie.models.neighbours import ItemNeighbours
from coterie.types import Ints, Longs

TABLE_BYTES = 1 << 28
"""Memory of the table of counts. It holds all items of a catalogue of up to 8,192."""


class SLIM(SparseWeights):
    """Settings of SLIM: those of coordinate descent."""


def train(training: TrainingSet, settings: SLIM, context: Context) -> ItemNeighbours:
    load = counting_cost(training)
    counts = count(training, costly_rows(load))
    near, weights = solve(counts, load, settings)
    return ItemNeighbours.of_items(near, weights, training.positives)


def count(training: TrainingSet, chosen: Ints) -> Counts:
    """The counts, with the rows of the chosen items in the table."""
    places = np.full(training.n_items, -1, np.int32)
    places[chosen] = np.arange(len(chosen))
    by_item = training.by_item
    table = count_table(training, chosen)
    return Counts(by_item.counts, places, table, by_item, training.positives)


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
