"""Both towers as one state, for algorithms that train the two together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coterie.algorithms.two_tower.optimiser import TowerState, fedadam_together
from coterie.algorithms.two_tower.settings import TwoTowers
from coterie.algorithms.two_tower.training import TowerOps
from coterie.core.records import Record
from coterie.types import Floats, Longs

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class BothTowers(Record):
    """Flat parameters of both towers, with Adam's moments."""

    user_tower: Floats  # Theta_u
    user_mean: Floats
    user_square: Floats
    item_tower: Floats  # Theta_v
    item_mean: Floats
    item_square: Floats

    @classmethod
    def start(cls, settings: TwoTowers, seed: int) -> BothTowers:
        towers = TowerOps(settings)
        user = towers.start(seed, "user tower")
        item = towers.start(seed, "item tower")
        zeros = np.zeros_like(user)
        return cls(user, zeros, zeros, item, zeros, zeros)

    def stepped(
        self,
        by_user: Longs | Tensor,
        by_item: Longs | Tensor,
        n: int,
        settings: TwoTowers,
        learning_rate: float,
    ) -> BothTowers:
        """One step of each tower by the summed gradients of n users, in fixed point."""
        user_before = TowerState(self.user_tower, self.user_mean, self.user_square)
        item_before = TowerState(self.item_tower, self.item_mean, self.item_square)
        user, item = fedadam_together(
            [(user_before, by_user), (item_before, by_item)], n, settings, learning_rate
        )
        return BothTowers(
            user.parameters, user.mean, user.square, item.parameters, item.mean, item.square
        )
