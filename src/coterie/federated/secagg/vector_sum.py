"""What one ring or group adds to an exchange: the sum over its clients, and who counts."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from coterie.federated.federation import Accepted, SecureSum, Sums
from coterie.federated.secagg.stages import ReplySpec, StageArrays
from coterie.types import Ints, Longs, Sizes


@dataclass(frozen=True, slots=True)
class VectorSum:
    vector: Longs
    rows: Ints
    """The rows of item tables that were summed."""
    users: Ints
    """The clients whose upload counts, ascending."""
    clear: StageArrays = field(default_factory=dict)
    """What they uploaded in the clear, a row for each client."""

    def accepted(self, sizes: Sizes) -> Accepted:
        n = len(self.users)
        samples = self.clear.get("samples", np.ones(n, np.int64))
        user_rows = self.clear.get("user_rows", np.empty((n, sizes.user_width), np.int32))
        return Accepted(self.users, samples, user_rows)

    def add_to(self, total: Sums, secure: SecureSum) -> None:
        """Add the named parts of the vector; item tables have the summed rows only."""
        start = 0
        for name, whole in total.items():
            by_item = name in secure.by_item
            shape = (len(self.rows), *whole.shape[1:]) if by_item else whole.shape
            size = int(np.prod(shape))
            part = self.vector[start : start + size].reshape(shape)
            start += size
            if by_item:
                whole[self.rows] += part
            else:
                whole += part


def in_the_clear(sizes: Sizes) -> ReplySpec:
    """What clients upload in the clear in an exchange that shows something of each."""
    return {"samples": (np.int64, ()), "user_rows": (np.int32, (sizes.user_width,))}
