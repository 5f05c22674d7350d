"""User and item vectors of a trained two-tower model; the score is their cosine.

Item vectors are sent to clients as float32, in half the bytes (float16), or in a quarter (int8,
with one scale per row). User vectors stay on the clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from coterie.models.factors import score_rows
from coterie.models.recommender import Recommender, cosines
from coterie.types import Floats, Ints

Precision: TypeAlias = Literal["float32", "float16", "int8"]
INT8_MAX = 127


@dataclass(frozen=True, slots=True)
class Directions(Recommender):
    kind: ClassVar[str] = "directions"
    of_users: ClassVar[tuple[str, ...]] = ("user_rows",)
    private: ClassVar[tuple[str, ...]] = ("user_rows",)
    trained: ClassVar[tuple[str, ...]] = ("user_rows", "item_rows", "units")
    user_rows: Floats  # (users, k), each of length one
    item_rows: np.ndarray  # (items, k) as they are sent
    units: Floats  # (items,) the scale of each row of item_rows
    user_tower: Floats | None = None
    """Parameters of the tower that reads users, for new users; earlier versions did not save it."""

    def score(self, users: Ints, items: Ints | None = None) -> Floats:
        no_bias = np.zeros(len(self.units), np.float32)
        return score_rows(self.user_rows[users], self.unpacked(), no_bias, items)

    def similar_items(self, item: int) -> Floats:
        """Cosines of item vectors."""
        return cosines(self.unpacked(), item)

    def score_row(self, row: Floats) -> Floats:
        """Scores of all items for the vector of a user who was not in training."""
        no_bias = np.zeros(len(self.units), np.float32)
        scores: Floats = score_rows(row[None, :], self.unpacked(), no_bias, None)[0]
        return scores

    def average_row(self) -> Floats:
        """The vector of a new user about whom nothing is known."""
        average = self.user_rows.mean(axis=0)
        scaled: Floats = average / max(float(np.linalg.norm(average)), 1e-8)
        return scaled

    def unpacked(self) -> Floats:
        """Item vectors as float32, as a client computes with them."""
        if self.item_rows.dtype == np.float32:
            return self.item_rows
        return self.item_rows.astype(np.float32) * self.units[:, None]

    @property
    def download(self) -> int:
        """Bytes that a client downloads before it can rank."""
        scales = self.units.nbytes if self.item_rows.dtype == np.int8 else 0
        return int(self.item_rows.nbytes + scales)


def quantize_rows(rows: Floats, precision: Precision) -> tuple[np.ndarray, Floats]:
    """Rows as they are sent, and the scale of each."""
    ones = np.ones(len(rows), np.float32)
    if precision != "int8":
        return rows.astype(precision), ones
    units = (np.abs(rows).max(axis=1, initial=0) / INT8_MAX).astype(np.float32)
    units[units == 0] = 1
    return np.rint(rows / units[:, None]).astype(np.int8), units
