"""Communication costs of training, exchange by exchange and round by round."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from coterie.types import Ints

NO_USERS: Ints = np.empty(0, np.int32)


@dataclass(frozen=True, slots=True)
class Costs:
    """What a step cost. Centralised training costs nothing."""

    users: Ints = field(default_factory=lambda: NO_USERS)
    """The clients selected; over several rounds, once for every selection."""
    accepted: int = 0
    dropped: int = 0
    """Number of selected clients that never replied."""
    refused: Counter[str] = field(default_factory=Counter)
    """Number of updates refused, by reason."""
    bytes_up: int = 0
    bytes_down: int = 0

    def and_exchange(self, later: Costs) -> Costs:
        """With the next exchange of the same round; a client counts by its last exchange."""
        return Costs(
            users=later.users,
            accepted=later.accepted,
            dropped=max(self.dropped, later.dropped),
            refused=self.refused + later.refused,
            bytes_up=self.bytes_up + later.bytes_up,
            bytes_down=self.bytes_down + later.bytes_down,
        )

    def and_round(self, later: Costs) -> Costs:
        """With the costs of the next round."""
        return Costs(
            users=np.concatenate([self.users, later.users]),
            accepted=self.accepted + later.accepted,
            dropped=self.dropped + later.dropped,
            refused=self.refused + later.refused,
            bytes_up=self.bytes_up + later.bytes_up,
            bytes_down=self.bytes_down + later.bytes_down,
        )
