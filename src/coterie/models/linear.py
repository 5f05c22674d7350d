"""Item-to-item weights, such as EASE: scores are the user's history times the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coterie.models.recommender import Recommender, pick
from coterie.types import Floats, Ints, Longs, Rows


@dataclass(frozen=True, slots=True)
class ItemWeights(Recommender):
    kind: ClassVar[str] = "ease"
    trained: ClassVar[tuple[str, ...]] = ("weights",)
    weights: Floats  # (items, items)
    offsets: Longs  # (users + 1,)
    items: Ints  # the items of every user

    def score(self, users: Ints, items: Ints | None = None) -> Floats:
        from scipy import sparse

        rows, columns = Rows(self.offsets, self.items).take(users)
        ones = np.ones(len(rows), np.float32)
        shape = (len(users), len(self.weights))
        histories = sparse.csr_matrix((ones, (rows, columns)), shape=shape)
        return pick(np.asarray(histories @ self.weights), items)

    def similar_items(self, item: int) -> Floats:
        """Weights of the item: how much it adds to the score of every other."""
        weights: Floats = self.weights[item].copy()
        return weights

    def score_new_user(self, history: Ints) -> Floats:
        scores: Floats = self.weights[history].sum(axis=0)
        return scores
