"""SLIM's sparse weights, from co-occurrence counts of items.

Ning, Karypis. SLIM: sparse linear methods for top-N recommender systems. ICDM 2011.

The weights w of item j, a column of W, are the solution of

    min_w  1/2 |x_j - X w|^2 + reg_l2 / 2 |w|^2 + reg_l1 |w|_1,   w >= 0,  w_j = 0

by cyclic coordinate descent. The items are independent of each other. With `neighbours`, only the
items most similar to j by cosine have a weight (fsSLIM, section IV-D of the paper).

Descent reads counts alone: rows of G = X^T X. It gives the same bits from a table of all of them as
from histories that rows are counted from.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np
from pydantic import Field

from coterie import kernels
from coterie.core import parallel
from coterie.core.settings import SearchSpace, Settings
from coterie.types import Doubles, Floats, Ints, Longs, Rows


class SparseWeights(Settings):
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


class Counts(NamedTuple):
    """The counts G: rows in a table, and histories that the other rows are counted from."""

    n_users: Longs  # (items,) the diagonal: users of every item
    places: Ints  # (items,) the row of an item in the table; -1 if it has none
    table: Ints  # (rows, items)
    by_item: Rows  # users of every item
    histories: Rows  # items of every user


def counts_from_pairs(pairs: Longs, n_items: int) -> Counts:
    """All rows of G, from its entries on and above the diagonal."""
    table = np.empty((n_items, n_items), np.int32)
    start = 0
    for i in range(n_items):
        end = start + n_items - i
        table[i, i:] = pairs[start:end]
        table[i:, i] = pairs[start:end]
        start = end
    n_users = np.diagonal(table).astype(np.int64)
    nothing = Rows(np.zeros(1, np.int64), np.empty(0, np.int32))
    return Counts(n_users, np.arange(n_items, dtype=np.int32), table, nothing, nothing)


def solve(counts: Counts, load: Longs, settings: SparseWeights) -> tuple[Rows, Floats]:
    """The items with a positive weight for every item, and these weights.

    `load` (items + 1,) is cumulative, and divides the items among threads.
    """
    kernel = kernels.load("slim")
    n_items = len(counts.n_users)
    sizes = np.empty(n_items, np.int64)
    parts: dict[int, Doubles] = {}

    def part(first: int, last: int) -> None:
        parts[first] = kernel.solve_items(
            counts.by_item.offsets,
            counts.by_item.items,
            counts.histories.offsets,
            counts.histories.items,
            counts.n_users,
            counts.places,
            counts.table,
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
