"""User-based and item-based nearest neighbours, by cosine similarity or by learned weights.

The cosine of two sets a and b with c common members is c / sqrt(|a| |b|), here multiplied by
c / (c + shrink). Neighbours and histories are sparse matrices. A score is an entry of their
product, summed in the order of the neighbours' indices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from coterie.models.history_bits import unpacked
from coterie.models.item_based import ItemBased
from coterie.models.recommender import Recommender, pick
from coterie.types import Bools, Doubles, Floats, Ints, Longs, Rows

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


@dataclass(frozen=True, slots=True)
class UserNeighbours(Recommender):
    """score(u, i) = sum of cos(u, v) over those of the k users v nearest to u that have i."""

    kind: ClassVar[str] = "userknn"
    trained: ClassVar[tuple[str, ...]] = ("similarities",)
    offsets: Longs  # (users + 1,)
    neighbours: Ints  # the nearest users of every user, ascending
    similarities: Floats
    history_offsets: Longs  # (users + 1,)
    history_items: Ints  # the items of every user
    n_items: int
    k: int
    shrink: float

    def score(self, users: Ints, items: Ints | None = None) -> Floats:
        n_users = len(self.offsets) - 1
        near = matrix(Rows(self.offsets, self.neighbours), n_users, self.similarities)
        return pick((near[users] @ self._histories()).toarray(), items)

    def score_new_user(self, history: Ints) -> Floats:
        histories = self._histories()
        chosen = np.zeros(self.n_items, np.float32)
        chosen[history] = 1
        overlap = (histories @ chosen).astype(np.float64)
        users = np.flatnonzero(overlap)
        sizes = np.diff(self.history_offsets)[users]
        cosines = similarity(overlap[users], len(history), sizes, self.shrink)
        best = nearest(users, cosines, self.k)
        scores: Floats = histories[users[best]].T @ cosines[best].astype(np.float32)
        return scores

    def similar_items(self, item: int) -> Floats:
        """Shrunken cosines of the sets of users that have the items."""
        histories = self._histories()
        have_it = histories[:, item].toarray()[:, 0]
        overlap = (histories.T @ have_it).astype(np.float64)
        sizes = np.bincount(self.history_items, minlength=self.n_items)
        similar = np.zeros(self.n_items, np.float32)
        met = np.flatnonzero(overlap)
        similar[met] = similarity(overlap[met], int(sizes[item]), sizes[met], self.shrink)
        return similar

    def serves(self, users: Ints) -> Bools:
        """Users without neighbours get no recommendations."""
        return Rows(self.offsets, self.neighbours).counts_of(users) > 0

    def _histories(self) -> csr_matrix:
        return matrix(Rows(self.history_offsets, self.history_items), self.n_items)


@dataclass(frozen=True, slots=True)
class NearItems(ItemBased):
    """score(u, i) = sum of the similarity of i to j over those items j of u near to i.

    Item-kNN takes the k items nearest to i by cosine. SLIM learns the items and their similarities.
    Subclasses know where histories are.
    """

    trained: ClassVar[tuple[str, ...]] = ("similarities",)
    offsets: Longs  # (items + 1,)
    followers: Ints  # row j: the items i that have j among their nearest, ascending
    similarities: Floats

    def score_new_user(self, history: Ints) -> Floats:
        scores: Floats = self._followers()[history].T @ np.ones(len(history), np.float32)
        return scores

    def similar_items(self, item: int) -> Floats:
        """How much the item adds to the score of those that have it near; 0 for others."""
        similar: Floats = self._followers()[[item]].toarray()[0]
        return similar

    def contributions(self, history: Ints, items: Ints) -> Floats:
        """Similarities; 0 for an item of the history that is not near."""
        similar: Floats = self._followers()[history][:, items].toarray().T
        return similar

    def _score(self, histories: Rows) -> Floats:
        """(users, items) scores of users with these histories."""
        scores: Floats = (matrix(histories, len(self.offsets) - 1) @ self._followers()).toarray()
        return scores

    def _serves(self, histories: Rows) -> Bools:
        """Users whose items are not near to any item get no recommendations."""
        user = np.repeat(np.arange(len(histories.counts)), histories.counts)
        followed = np.diff(self.offsets)[histories.items] > 0
        return np.bincount(user[followed], minlength=len(histories.counts)) > 0

    def _followers(self) -> csr_matrix:
        return matrix(Rows(self.offsets, self.followers), len(self.offsets) - 1, self.similarities)


@dataclass(frozen=True, slots=True)
class ItemNeighbours(NearItems):
    kind: ClassVar[str] = "itemknn"
    history_offsets: Longs  # (users + 1,)
    history_items: Ints  # the items of every user

    @classmethod
    def of_items(cls, near: Rows, similarities: Floats, histories: Rows) -> ItemNeighbours:
        """The model in which row i of `near` lists the items j near to i."""
        followers = transposed(near, similarities)
        return cls(*followers, histories.offsets, histories.items)

    def score(self, users: Ints, items: Ints | None = None) -> Floats:
        return pick(self._score(self.histories().of_users(users)), items)

    def serves(self, users: Ints) -> Bools:
        return self._serves(self.histories().of_users(users))

    def histories(self) -> Rows:
        return Rows(self.history_offsets, self.history_items)


@dataclass(frozen=True, slots=True)
class PrivateItemNeighbours(NearItems):
    """Histories stay on the clients, each of which scores for itself."""

    kind: ClassVar[str] = "private-item-neighbours"
    private: ClassVar[tuple[str, ...]] = ("history_bits",)
    history_bits: np.ndarray  # (users, bytes) one bit per item

    def score(self, users: Ints, items: Ints | None = None) -> Floats:
        return pick(self._score(self._histories_of(users)), items)

    def serves(self, users: Ints) -> Bools:
        return self._serves(self._histories_of(users))

    def histories(self) -> Rows:
        return unpacked(self.history_bits, len(self.offsets) - 1)

    def _histories_of(self, users: Ints) -> Rows:
        return unpacked(self.history_bits[users], len(self.offsets) - 1)


def transposed(near: Rows, similarities: Floats) -> tuple[Longs, Ints, Floats]:
    """Offsets, followers and similarities of a model in which row i of `near` is near to i."""
    followers = matrix(near, len(near.offsets) - 1, similarities).T.tocsr()
    return followers.indptr.astype(np.int64), followers.indices.astype(np.int32), followers.data


def matrix(rows: Rows, width: int, values: np.ndarray | None = None) -> csr_matrix:
    """Rows as a sparse matrix of the given values, or of ones."""
    from scipy import sparse

    if values is None:
        values = np.ones(len(rows.items), np.float32)
    shape = (len(rows.offsets) - 1, width)
    return sparse.csr_matrix((values, rows.items, rows.offsets), shape=shape)


def similarity(overlap: Doubles, own: Longs | int, other: Longs, shrink: float) -> Doubles:
    """The shrunken cosine of sets, from the sizes of their intersection and of the sets.

    The squared cosine is a quotient of integers and is rounded once, so that cosines that are equal
    on paper are equal here.
    """
    cosine: Doubles = np.sqrt(overlap * overlap / (own * other))
    return cosine * (overlap / (overlap + shrink)) if shrink else cosine


def nearest(indices: Ints | Longs, similar: Doubles, k: int) -> Longs:
    """Positions of the k most similar, ordered by index.

    Ties go to the lower index. Candidates with similarity zero are left out.
    """
    positions = np.arange(len(similar))
    if len(similar) > k:
        least = np.partition(similar, len(similar) - k)[len(similar) - k]
        above = np.flatnonzero(similar > least)
        tied = np.flatnonzero(similar == least)
        if len(above) + len(tied) > k:
            tied = tied[np.argsort(indices[tied])][: k - len(above)]
        positions = np.concatenate([above, tied])
    positions = positions[similar[positions] > 0]
    return positions[np.argsort(indices[positions])]
