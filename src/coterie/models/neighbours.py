"""Nearest neighbours by cosine: what similar people have, and what is similar to what a person has.

Of two sets a and b with c members in common the cosine is c / sqrt(|a| |b|), here times c / (c + shrink). Tables of neighbours and
histories are sparse; a score is a sparse product, summed in the order of the neighbours' numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from coterie.models.recommender import Recommender, pick
from coterie.types import Bools, Doubles, Floats, Ints, Longs, Rows

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


@dataclass(frozen=True, slots=True)
class UserNeighbours(Recommender):
    """score(u, i) = the sum of cos(u, v) over the k users v nearest to u, of those who have i."""

    kind: ClassVar[str] = "userknn"
    trained: ClassVar[tuple[str, ...]] = ("similarities",)
    offsets: Longs  # (users + 1,)
    neighbours: Ints  # the nearest users of every user, ascending
    similarities: Floats
    history_offsets: Longs  # (users + 1,)
    history_items: Ints  # what every user did
    n_items: int
    k: int
    shrink: float

    def score(self, users: Ints, items: Ints | None = None) -> Floats:
        n_users = len(self.offsets) - 1
        near = matrix(Rows(self.offsets, self.neighbours), n_users, self.similarities)
        return pick((near[users] @ self._histories()).toarray(), items)

    def score_new_user(self, history: Ints, negatives: int, reg: float) -> Floats:
        histories = self._histories()
        wanted = np.zeros(self.n_items, np.float32)
        wanted[history] = 1
        overlap = (histories @ wanted).astype(np.float64)
        met = np.flatnonzero(overlap)
        cosines = similarity(
            overlap[met], len(history), np.diff(self.history_offsets)[met], self.shrink
        )
        best = nearest(met, cosines, self.k)
        scores: Floats = histories[met[best]].T @ cosines[best].astype(np.float32)
        return scores

    def serves(self, users: Ints) -> Bools:
        """Whoever has nothing in common with anybody gets no recommendation."""
        return Rows(self.offsets, self.neighbours).counts_of(users) > 0

    def _histories(self) -> csr_matrix:
        return matrix(Rows(self.history_offsets, self.history_items), self.n_items)


@dataclass(frozen=True, slots=True)
class ItemNeighbours(Recommender):
    """score(u, i) = the sum of cos(i, j) over what u has, of those j that are among the k items nearest to i."""

    kind: ClassVar[str] = "itemknn"
    trained: ClassVar[tuple[str, ...]] = ("similarities",)
    offsets: Longs  # (items + 1,)
    followers: Ints  # row j: the items i that have j among their nearest, ascending
    similarities: Floats
    history_offsets: Longs  # (users + 1,)
    history_items: Ints  # what every user did

    def score(self, users: Ints, items: Ints | None = None) -> Floats:
        histories = matrix(Rows(self.history_offsets, self.history_items), len(self.offsets) - 1)
        return pick((histories[users] @ self._followers()).toarray(), items)

    def score_new_user(self, history: Ints, negatives: int, reg: float) -> Floats:
        scores: Floats = self._followers()[history].T @ np.ones(len(history), np.float32)
        return scores

    def serves(self, users: Ints) -> Bools:
        """Whoever has only items that are near to none gets no recommendation."""
        rows, items = Rows(self.history_offsets, self.history_items).take(users)
        followed = np.diff(self.offsets)[items] > 0
        return np.bincount(rows[followed], minlength=len(users)) > 0

    def _followers(self) -> csr_matrix:
        return matrix(Rows(self.offsets, self.followers), len(self.offsets) - 1, self.similarities)


def matrix(rows: Rows, width: int, values: np.ndarray | None = None) -> csr_matrix:
    """Rows as a sparse matrix of their values, or of ones."""
    from scipy import sparse

    ones = np.ones(len(rows.items), np.float32)
    shape = (len(rows.offsets) - 1, width)
    return sparse.csr_matrix(
        (ones if values is None else values, rows.items, rows.offsets), shape=shape
    )


def similarity(overlap: Doubles, own: Longs | int, other: Longs, shrink: float) -> Doubles:
    """The shrunken cosine of sets by how much they share and how large they are.

    Squared it is a quotient of whole numbers, which has one rounding whatever the numbers are: what ties on paper ties here.
    """
    cosine: Doubles = np.sqrt(overlap * overlap / (own * other))
    return cosine * (overlap / (overlap + shrink)) if shrink else cosine


def nearest(numbers: Ints | Longs, similar: Doubles, k: int) -> Longs:
    """Places of the k most similar, by number; of those that tie the lower numbers, and nobody who is not similar at all."""
    places = np.arange(len(similar))
    if len(similar) > k:
        least = np.partition(similar, len(similar) - k)[len(similar) - k]
        above = np.flatnonzero(similar > least)
        tied = np.flatnonzero(similar == least)
        if len(above) + len(tied) > k:
            tied = tied[np.argsort(numbers[tied])][: k - len(above)]
        places = np.concatenate([above, tied])
    places = places[similar[places] > 0]
    return places[np.argsort(numbers[places])]
