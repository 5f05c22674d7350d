"""Generalised matrix factorisation (He et al. 2017): y = h . (p_u * q_i) + b."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coterie.models.factors import rows, score_rows
from coterie.models.new_user import fit_row
from coterie.models.recommender import Recommender, cosines
from coterie.types import Floats, Ints


@dataclass(frozen=True, slots=True)
class GMF(Recommender):
    kind: ClassVar[str] = "gmf"
    of_users: ClassVar[tuple[str, ...]] = ("user_rows",)
    user_rows: Floats  # (users, d)
    item_rows: Floats  # (items, d)
    output: Floats  # (d,)
    bias: Floats  # (1,)

    def score(self, users: Ints, items: Ints | None = None) -> Floats:
        """The logit (implicit) or the rating (explicit); both give the same ranking."""
        return self._scores(self.user_rows[users], items)

    def _scores(self, rows: Floats, items: Ints | None) -> Floats:
        same_bias = np.broadcast_to(self.bias, len(self.item_rows))
        return score_rows(rows * self.output, self.item_rows, same_bias, items)

    def similar_items(self, item: int) -> Floats:
        """Cosines of item rows."""
        return cosines(self.item_rows, item)

    def score_new_user(self, history: Ints, negatives: int, reg: float) -> Floats:
        """A new user without a history gets the average user row."""
        row = self.user_rows.mean(axis=0)
        if len(history):
            features = self.item_rows * self.output
            row = fit_row(features, float(self.bias[0]), history, negatives, reg)
        scores: Floats = self._scores(row[None, :], None)[0]
        return scores

    @classmethod
    def start(cls, n_users: int, n_items: int, size: int, seed: int, scale: float) -> GMF:
        """Gaussian rows; an output layer of ones, where GMF equals plain matrix factorisation."""
        return cls(
            rows(n_users, size, seed, "users", scale),
            rows(n_items, size, seed, "items", scale),
            np.ones(size, np.float32),
            np.zeros(1, np.float32),
        )
