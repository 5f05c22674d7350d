"""Matrix factorisation with an item bias: y = p_u . q_i + b_i."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coterie.core import streams
from coterie.models.new_user import NewUser, fit_row_to_pairs
from coterie.models.recommender import Recommender, cosines
from coterie.types import Floats, Ints

BLOCK = 1 << 14
"""Rows that are drawn at a time."""


@dataclass(frozen=True, slots=True)
class Factors(Recommender):
    kind: ClassVar[str] = "factors"
    of_users: ClassVar[tuple[str, ...]] = ("user_rows",)
    user_rows: Floats  # (users, d)
    item_rows: Floats  # (items, d)
    item_bias: Floats  # (items,)

    def score(self, users: Ints, items: Ints | None = None) -> Floats:
        return score_rows(self.user_rows[users], self.item_rows, self.item_bias, items)

    def similar_items(self, item: int) -> Floats:
        """Cosines of item rows."""
        return cosines(self.item_rows, item)

    def score_row(self, row: Floats) -> Floats:
        """Scores of all items for the row of a user who was not in training."""
        scores: Floats = score_rows(row[None, :], self.item_rows, self.item_bias, None)[0]
        return scores

    def average_row(self) -> Floats:
        """The row of a new user without a history."""
        average: Floats = self.user_rows.mean(axis=0)
        return average

    @classmethod
    def start(cls, n_users: int, n_items: int, size: int, seed: int, scale: float) -> Factors:
        return cls(
            rows(n_users, size, seed, "users", scale),
            rows(n_items, size, seed, "items", scale),
            np.zeros(n_items, np.float32),
        )


def rows(n: int, size: int, seed: int, what: str, scale: float) -> Floats:
    """Gaussian start values of all users or items."""
    return rows_of(np.arange(n, dtype=np.int32), size, seed, what, scale)


def rows_of(indices: Ints, size: int, seed: int, what: str, scale: float) -> Floats:
    """Gaussian start values. Each row has its own stream, so that a node can draw any subset."""
    drawn = np.empty((len(indices), size), np.float32)
    # In blocks: the numbers behind a row need several times its memory.
    for first in range(0, len(indices), BLOCK):
        part = slice(first, first + BLOCK)
        keys = streams.keys(seed, f"start {what}", last=indices[part])
        drawn[part] = streams.normal(keys, size) * scale
    return drawn


def score_by_pairs(model: Factors, user: NewUser, reg: float) -> Floats:
    """Scores for a new user whose row is fitted to the loss of BPR."""
    if not len(user.items):
        return model.score_row(model.average_row())
    row = fit_row_to_pairs(model.item_rows, model.item_bias, user.items, reg)
    return model.score_row(row)


def score_rows(p: Floats, item_rows: Floats, item_bias: Floats, items: Ints | None) -> Floats:
    """p . q_i + b_i for all items, or for each user's own candidates."""
    if items is None:
        return p @ item_rows.T + item_bias
    scores: Floats = np.einsum("ud,ucd->uc", p, item_rows[items], optimize=False) + item_bias[items]
    return scores
