"""One score per item, the same for all users."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coterie.models.recommender import Recommender
from coterie.types import Floats, Ints


@dataclass(frozen=True, slots=True)
class ItemCounts(Recommender):
    kind: ClassVar[str] = "popular"
    counts: Floats  # (items,)

    def score(self, users: Ints, items: Ints | None = None) -> Floats:
        return np.tile(self.counts, (len(users), 1)) if items is None else self.counts[items]

    def score_new_user(self, history: Ints) -> Floats:
        return self.counts.copy()
