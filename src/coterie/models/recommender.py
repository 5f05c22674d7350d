"""What every trained model can do: score, and be saved as plain arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from coterie.core.records import Record
from coterie.types import Bools, Floats, Ints


class Recommender(Record, ABC):
    """A frozen record of arrays. A subclass is a dataclass whose fields are arrays and numbers."""

    kind: ClassVar[str]
    trained: ClassVar[tuple[str, ...] | None] = None
    """Which fields were trained; all of them by default."""
    of_users: ClassVar[tuple[str, ...]] = ()
    """Fields with a row for every user, of a model that a federation trains: a node gets those of its own people."""

    @abstractmethod
    def score(self, users: Ints, items: Ints | None = None) -> Floats:
        """Scores of `items` (users, candidates) for each user, or of all items (users, items)."""

    def score_new_user(self, history: Ints, negatives: int, reg: float) -> Floats:
        """Scores of all items for a person who was not in training, from what they did: a new row, all else frozen."""
        raise NotImplementedError

    def serves(self, users: Ints) -> Bools:
        """Whom the model has anything to recommend to; everybody, unless it says otherwise."""
        return np.ones(len(users), np.bool_)

    @property
    def n_parameters(self) -> int:
        return sum(
            a.size
            for name, a in self.arrays().items()
            if self.trained is None or name in self.trained
        )


def pick(scores: Floats, items: Ints | None) -> Floats:
    """Columns of a full score block; a padded candidate (-1) gets any finite score, callers mask it."""
    return scores if items is None else np.take_along_axis(scores, np.maximum(items, 0), axis=1)
