"""Item-to-item weights, such as EASE: scores are the user's history times the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coterie.models.history_bits import unpacked
from coterie.models.item_based import ItemBased
from coterie.models.recommender import pick
from coterie.types import Floats, Ints, Longs, Rows


@dataclass(frozen=True, slots=True)
class ItemToItem(ItemBased):
    """Weights between all items; subclasses know where histories are."""

    trained: ClassVar[tuple[str, ...]] = ("weights",)
    weights: Floats  # (items, items)

    def similar_items(self, item: int) -> Floats:
        """Weights of the item: how much it adds to the score of every other."""
        weights: Floats = self.weights[item].copy()
        return weights

    def score_new_user(self, history: Ints) -> Floats:
        scores: Floats = self.weights[history].sum(axis=0)
        return scores

    def contributions(self, history: Ints, items: Ints) -> Floats:
        """The weight of each item of the history on each of `items`."""
        weights: Floats = self.weights[np.ix_(history, items)].T
        return weights


@dataclass(frozen=True, slots=True)
class ItemWeights(ItemToItem):
    kind: ClassVar[str] = "ease"
    offsets: Longs  # (users + 1,)
    items: Ints  # the items of every user

    def score(self, users: Ints, items: Ints | None = None) -> Floats:
        return pick(score_histories(self.histories().of_users(users), self.weights), items)

    def histories(self) -> Rows:
        return Rows(self.offsets, self.items)


@dataclass(frozen=True, slots=True)
class PrivateItemWeights(ItemToItem):
    """Histories stay on the clients, each of which scores for itself."""

    kind: ClassVar[str] = "private-item-weights"
    private: ClassVar[tuple[str, ...]] = ("history_bits",)
    history_bits: np.ndarray  # (users, bytes) one bit per item

    def score(self, users: Ints, items: Ints | None = None) -> Floats:
        histories = unpacked(self.history_bits[users], len(self.weights))
        return pick(score_histories(histories, self.weights), items)

    def histories(self) -> Rows:
        return unpacked(self.history_bits, len(self.weights))


def score_histories(histories: Rows, weights: Floats) -> Floats:
    """(users, items) the sum of the weights of each user's items."""
    from scipy import sparse

    ones = np.ones(len(histories.items), np.float32)
    shape = (len(histories.counts), len(weights))
    table = sparse.csr_matrix((ones, histories.items, histories.offsets), shape=shape)
    return np.asarray(table @ weights)
