"""Models whose clients have item rows of their own: each client keeps the scores they give.

A personal item table has a row for every item. Its scores are one number per item, and all that
recommending needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coterie.models.new_user import fit_row
from coterie.models.recommender import Recommender, cosines, pick
from coterie.types import Floats, Ints


@dataclass(frozen=True, slots=True)
class PersonalScores(Recommender):
    kind: ClassVar[str] = "personal-scores"
    private: ClassVar[tuple[str, ...]] = ("scores",)
    scores: Floats  # (users, items) by every client's own item rows
    item_rows: Floats  # (items, d) those of the server

    def score(self, users: Ints, items: Ints | None = None) -> Floats:
        return pick(self.scores[users], items)

    def similar_items(self, item: int) -> Floats:
        """Cosines of the server's item rows."""
        return cosines(self.item_rows, item)

    def score_new_user(self, history: Ints, negatives: int, reg: float) -> Floats:
        return score_by_new_function(self.item_rows, history, negatives, reg)


def score_by_new_function(item_rows: Floats, history: Ints, negatives: int, reg: float) -> Floats:
    """A new user fits a score function to the server's rows; without items, all are equal."""
    with_bias = np.column_stack([item_rows, np.ones(len(item_rows), np.float32)])
    scores: Floats = with_bias @ fit_row(with_bias, 0.0, history, negatives, reg)
    return scores
