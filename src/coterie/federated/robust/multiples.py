"""How far a client's update may exceed those of the other clients of its round."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Multiples:
    """Bounds as multiples of medians over the clients of a round: see `robust.bounds`.

    An algorithm declares its own where honest clients differ more from each other, or attackers do
    more with the same length. The bound on rows is about the 99 % quantile of honest rows, by
    `benchmarks/honest_norms.py`, unless its algorithm says why not.
    """

    rows: float = 4.0
    """The norm of an item row, of the median client's root mean square."""
    updates: float = 3.0
    """The norms of all item rows together, and of the dense part."""
    own_row: float = 3.0
    """The norm of the client's own row."""
    samples: float = 4.0
    agreeing: float = 0.0
    """The share of the round's clients who have to agree on how far an item moves: no row of an
    item is longer than the n-th longest, where n clients send any."""
    fewest_agreeing: int = 1
    """The least such n. With 1, and a share of 0, there is no such bound."""

    def number_agreeing(self, n_clients: int) -> int:
        """How many clients of a round have to agree."""
        return max(math.ceil(self.agreeing * n_clients), self.fewest_agreeing)
