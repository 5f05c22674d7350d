"""Item-based models: a score is a sum over the user's history, and so explains itself."""

from __future__ import annotations

from abc import abstractmethod

from coterie.models.recommender import Recommender
from coterie.types import Floats, Ints, Rows


class ItemBased(Recommender):
    """A model whose score of an item is a sum of one contribution per item of the history."""

    @abstractmethod
    def histories(self) -> Rows:
        """The items of every user that the scores are summed over."""

    @abstractmethod
    def contributions(self, history: Ints, items: Ints) -> Floats:
        """(items, history) what each item of a history adds to the score of each of `items`.

        A row sums to the score of its item, for a user in training and for a new one.
        """
