"""Models that add a client's own item table to the server's: y_ui = w_u . (d_ui + c_i) + b_u.

A client keeps w_u . d_ui + b_u for every item, which is all of its own table that recommending
needs, and its score function, which it applies to the latest table of the server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from coterie.models.personal_scores import score_by_new_function
from coterie.models.recommender import Recommender, cosines, pick
from coterie.types import Floats, Ints


@dataclass(frozen=True, slots=True)
class AdditiveScores(Recommender):
    kind: ClassVar[str] = "additive-scores"
    private: ClassVar[tuple[str, ...]] = ("own_scores", "score_functions")
    own_scores: Floats  # (users, items)
    score_functions: Floats  # (users, d + 1) the last entry is b_u
    item_rows: Floats  # (items, d) those of the server

    def score(self, users: Ints, items: Ints | None = None) -> Floats:
        w = self.score_functions[users, :-1]
        return pick(self.own_scores[users] + w @ self.item_rows.T, items)

    def similar_items(self, item: int) -> Floats:
        """Cosines of the server's item rows."""
        return cosines(self.item_rows, item)

    def score_new_user(self, history: Ints, negatives: int, reg: float) -> Floats:
        return score_by_new_function(self.item_rows, history, negatives, reg)
