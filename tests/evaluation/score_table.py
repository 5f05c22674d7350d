"""Test helpers: a model with given scores, and histories from plain lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coterie.models.recommender import Recommender
from coterie.types import Bools, Ints, Rows


@dataclass(frozen=True, slots=True)
class Table(Recommender):
    kind: ClassVar[str] = "table"
    table: np.ndarray  # (users, items)

    def score(self, users: Ints, items: Ints | None = None) -> np.ndarray:
        scores = self.table[users]
        return scores if items is None else np.take_along_axis(scores, np.maximum(items, 0), axis=1)


@dataclass(frozen=True, slots=True)
class Choosy(Table):
    """Serves only the chosen users."""

    kind: ClassVar[str] = "choosy"
    chosen: np.ndarray  # (users,)

    def serves(self, users: Ints) -> Bools:
        return self.chosen[users]


def histories(lists: Sequence[Sequence[int]]) -> Rows:
    """One list of items per user."""
    flat = [item for items in lists for item in sorted(items)]
    return Rows(np.cumsum([0, *map(len, lists)]).astype(np.int64), np.array(flat, np.int32))
