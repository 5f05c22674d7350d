"""What training cost, exchange by exchange and round by round."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from coterie.types import Ints

NOBODY: Ints = np.empty(0, np.int32)


@dataclass(frozen=True, slots=True)
class Costs:
    """What a step cost. Nothing travels where training is centralised."""

    users: Ints = field(default_factory=lambda: NOBODY)
    """Who was asked; of several rounds, once for each time."""
    accepted: int = 0
    dropped: int = 0
    """How many of those asked never answered."""
    refused: Counter[str] = field(default_factory=Counter)
    """How many answers were refused, by reason."""
    bytes_up: int = 0
    bytes_down: int = 0

    def and_then(self, later: Costs) -> Costs:
        """With the costs of the next exchange of the same round; a user counts by the last one."""
        return Costs(
            later.users,
            later.accepted,
            max(self.dropped, later.dropped),
            self.refused + later.refused,
            self.bytes_up + later.bytes_up,
            self.bytes_down + later.bytes_down,
        )

    def and_round(self, later: Costs) -> Costs:
        """With the costs of the next round."""
        return Costs(
            np.concatenate([self.users, later.users]),
            self.accepted + later.accepted,
            self.dropped + later.dropped,
            self.refused + later.refused,
            self.bytes_up + later.bytes_up,
            self.bytes_down + later.bytes_down,
        )
