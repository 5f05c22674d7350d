"""Both towers in one place, as whoever trains the two together has them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie.algorithms.two_tower.learning import Moved, Readers, fedadam
from coterie.algorithms.two_tower.settings import TwoTowers
from coterie.core.records import Record
from coterie.types import Floats, Longs


@dataclass(frozen=True, slots=True)
class Pair(Record):
    user_tower: Floats  # Theta_u
    user_mean: Floats
    user_square: Floats
    item_tower: Floats  # Theta_v
    item_mean: Floats
    item_square: Floats

    @classmethod
    def start(cls, settings: TwoTowers, seed: int) -> Pair:
        user, item = (Readers(settings).start(seed, what) for what in ("user tower", "item tower"))
        zeros = np.zeros_like(user)
        return cls(user, zeros, zeros, item, zeros, zeros)

    def moved(
        self, by_user: Longs, by_item: Longs, n: int, settings: TwoTowers, rate: float
    ) -> Pair:
        """A step each by the slopes of n users together, in units."""
        user = fedadam(
            Moved(self.user_tower, self.user_mean, self.user_square), by_user, n, settings, rate
        )
        item = fedadam(
            Moved(self.item_tower, self.item_mean, self.item_square), by_item, n, settings, rate
        )
        return Pair(
            user.parameters, user.mean, user.square, item.parameters, item.mean, item.square
        )
