"""A user's history times item-to-item weights."""

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
    items: Ints  # what every user did

    def score(self, users: Ints, items: Ints | None = None) -> Floats:
        from scipy import sparse

        rows, columns = Rows(self.offsets, self.items).take(users)
        histories = sparse.csr_matrix(
            (np.ones(len(rows), np.float32), (rows, columns)), shape=(len(users), len(self.weights))
        )
        return pick(np.asarray(histories @ self.weights), items)

    def score_new_user(self, history: Ints, negatives: int, reg: float) -> Floats:
        scores: Floats = self.weights[history].sum(axis=0)
        return scores
