"""Vectors of people and items whose cosine is the score: what two towers come to in the end.

Items' vectors travel to devices as they are (float32), in half the bytes (float16), or in a quarter: int8, each row in units of its
own. People's vectors stay on their devices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coterie.models.factors import score_rows
from coterie.models.recommender import Recommender
from coterie.types import Floats, Ints

Precision: TypeAlias = Literal["float32", "float16", "int8"]
MOST = 127


@dataclass(frozen=True, slots=True)
class Directions(Recommender):
    kind: ClassVar[str] = "directions"
    of_users: ClassVar[tuple[str, ...]] = ("user_rows",)
    private: ClassVar[tuple[str, ...]] = ("user_rows",)
    user_rows: Floats  # (users, k), each of length one
    item_rows: NDArray[Any]  # (items, k) as they travel
    units: Floats  # (items,) what one is in a row of item_rows

    def score(self, users: Ints, items: Ints | None = None) -> Floats:
        nothing = np.zeros(len(self.units), np.float32)
        return score_rows(self.user_rows[users], self.unpacked(), nothing, items)

    def unpacked(self) -> Floats:
        """Items' vectors as a device computes with them."""
        if self.item_rows.dtype == np.float32:
            return self.item_rows
        return self.item_rows.astype(np.float32) * self.units[:, None]

    @property
    def download(self) -> int:
        """Bytes that a device gets before it can rank."""
        return int(
            self.item_rows.nbytes + (self.units.nbytes if self.item_rows.dtype == np.int8 else 0)
        )


def packed(rows: Floats, precision: Precision) -> tuple[NDArray[Any], Floats]:
    """Rows as they travel, and the unit of each."""
    ones = np.ones(len(rows), np.float32)
    if precision != "int8":
        return rows.astype(precision), ones
    units = (np.abs(rows).max(axis=1, initial=0) / MOST).astype(np.float32)
    units[units == 0] = 1
    return np.rint(rows / units[:, None]).astype(np.int8), units
