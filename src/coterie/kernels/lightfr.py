"""LightFR on a client: its own code bit by bit, then what the server needs for bits of items.

Codes are +1 and -1, and targets are whole numbers, so that all arithmetic is exact.
"""

from __future__ import annotations

import numpy as np
from numba import float32, int8, int32, int64, types

from coterie.kernels.common import helper, kernel, readonly
from coterie.types import Ints, Longs, Signs


@helper
def descend(D: Signs, errors: Longs, inertia: np.float32, most: int, b: Signs) -> None:
    """Set the bits of b one after the other, until none changes. Writes b, and errors t - b . d."""
    stay = inertia * np.float32(2 * len(errors))
    for _ in range(most):
        changed = False
        for j in range(len(b)):
            pull = np.int64(0)
            for i in range(len(errors)):
                pull += errors[i] * D[i, j]
            total = np.float32(pull) + stay * np.float32(b[j])
            if (total > 0 and b[j] < 0) or (total < 0 and b[j] > 0):
                for i in range(len(errors)):
                    errors[i] += 2 * b[j] * D[i, j]
                b[j] = -b[j]
                changed = True
        if not changed:
            break


@kernel(
    types.void(
        readonly(int64),
        readonly(int32),
        readonly(int32),
        readonly(int8, 2),
        readonly(int8, 2),
        readonly(int64),
        float32,
        int64,
        int64,
        int64,
        int8[:, ::1],
        int32[:, ::1],
    ),
)
def train(
    offsets: Longs,
    items: Ints,
    targets: Ints,
    user_codes: Signs,
    item_codes: Signs,
    chosen: Longs,
    inertia: np.float32,
    most_sweeps: int,
    first: int,
    last: int,
    after: Signs,
    pulls: Ints,
) -> None:
    """Users first..last: write their codes to `after`, and (t - b . d) b of the chosen bits.

    User k has the items items[offsets[k]:offsets[k + 1]], each once, with their targets.
    """
    bits = item_codes.shape[1]
    most = 0
    for k in range(first, last):
        most = max(most, offsets[k + 1] - offsets[k])
    D = np.empty((most, bits), np.int8)
    errors = np.empty(most, np.int64)
    for k in range(first, last):
        low = offsets[k]
        n = offsets[k + 1] - low
        b = after[k]
        for j in range(bits):
            b[j] = user_codes[k, j]
        for i in range(n):
            product = np.int64(0)
            for j in range(bits):
                D[i, j] = item_codes[items[low + i], j]
                product += D[i, j] * b[j]
            errors[i] = targets[low + i] - product
        descend(D[:n], errors[:n], inertia, most_sweeps, b)
        for i in range(n):
            for c in range(len(chosen)):
                pulls[low + i, c] = errors[i] * b[chosen[c]]
