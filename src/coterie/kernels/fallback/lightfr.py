"""LightFR on a client: its own code bit by bit, then what the server needs for bits of items."""

from __future__ import annotations

import numpy as np

from coterie.types import Ints, Longs, Signs


def train(
    offsets: Longs,
    items: Ints,
    targets: Ints,
    user_codes: Signs,
    item_codes: Signs,
    chosen: Longs,
    inertia: float,
    most_sweeps: int,
    first: int,
    last: int,
    after: Signs,
    pulls: Ints,
) -> None:
    """Users first..last: write their codes to `after`, and (t - b . d) b of the chosen bits.

    User k has the items items[offsets[k]:offsets[k + 1]], each once, with their targets.
    """
    for k in range(first, last):
        own = slice(offsets[k], offsets[k + 1])
        D = item_codes[items[own]].astype(np.int64)
        b = user_codes[k].astype(np.int64)
        errors = targets[own] - (D * b).sum(axis=1)
        stay = np.float32(inertia) * np.float32(2 * len(D))
        for _ in range(most_sweeps):
            before = b.copy()
            for j in range(len(b)):
                total = np.float32((errors * D[:, j]).sum()) + stay * np.float32(b[j])
                if total * b[j] < 0:
                    errors += 2 * b[j] * D[:, j]
                    b[j] = -b[j]
            if (b == before).all():
                break
        after[k] = b
        pulls[own] = errors[:, None] * b[chosen]
