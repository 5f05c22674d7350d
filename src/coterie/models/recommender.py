"""The interface of trained models: they score items and are saved as plain arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from coterie.core.records import Record
from coterie.types import Bools, Floats, Ints


class Recommender(Record, ABC):
    """A frozen record of arrays. A subclass is a dataclass whose fields are arrays and numbers.

    In a federation a node gets the rows of its own users, of the fields `of_users`.
    """

    kind: ClassVar[str]
    trained: ClassVar[tuple[str, ...] | None] = None
    """The trained fields; None means all of them."""

    @abstractmethod
    def score(self, users: Ints, items: Ints | None = None) -> Floats:
        """Scores of `items` (users, candidates) for each user, or of all items (users, items)."""

    def similar_items(self, item: int) -> Floats | None:
        """(items,) the similarity of every item to this one; None if the model has none."""
        return None

    def serves(self, users: Ints) -> Bools:
        """Mask of the users that the model can recommend to; all of them by default."""
        return np.ones(len(users), np.bool_)

    @property
    def n_parameters(self) -> int:
        arrays = self.arrays()
        names = arrays if self.trained is None else [n for n in arrays if n in self.trained]
        return sum(arrays[name].size for name in names)


def cosines(rows: Floats, item: int) -> Floats:
    """(items,) the cosine of every row with the row of an item; 0 with a row of zeros."""
    lengths = np.linalg.norm(rows, axis=1)
    products: Floats = rows @ rows[item] / np.maximum(lengths * lengths[item], 1e-12)
    return products


def pick(scores: Floats, items: Ints | None) -> Floats:
    """Columns of a full score block. Padding (-1) gets an arbitrary score, which callers mask."""
    return scores if items is None else np.take_along_axis(scores, np.maximum(items, 0), axis=1)
