"""How a device's copy moves after a batch, by SGD or Adam: pieces for kernels that train user by user.

Adam (Kingma and Ba 2015) begins anew on every device in every round: its moments start at zero, never travel and are not
kept, and t counts the device's own steps of this round; `gmf_moments` is for moments that survive. An item row that is not in a batch does not move and keeps its
moments (as PyTorch's SparseAdam does), while t goes on counting.
"""

from __future__ import annotations

import math

import numpy as np

from coterie.kernels.common import Scalar, helper
from coterie.types import Floats, Ints, Longs

DECAY1 = 0.9
DECAY2 = 0.999
KEEP1 = np.float32(DECAY1)
KEEP2 = np.float32(DECAY2)
TAKE1 = np.float32(1 - DECAY1)
TAKE2 = np.float32(1 - DECAY2)
EPSILON = np.float32(1e-8)


@helper
def sgd(values: Floats, gradients: Floats, rate: Scalar) -> None:
    for i in range(len(values)):
        values[i] -= rate * gradients[i]


@helper
def sgd_rows(
    rows: Floats, gradients: Floats, places: Ints, batch_of: Longs, batch: Scalar, rate: Scalar
) -> None:
    """Rows of a batch; batch_of[r] is the batch that row r waits for, and an item that is twice in it moves once."""
    for place in places:
        r = np.uint64(place)
        if batch_of[r] == batch:
            batch_of[r] = 0
            for f in range(rows.shape[1]):
                rows[r, f] -= rate * gradients[r, f]


@helper
def lacking(t: Scalar) -> Scalar:
    """What moments that began at zero lack after t steps; in double precision, for 1 - 0.999 has few digits in single."""
    return np.float32(1.0 - math.pow(DECAY1, t)), np.float32(1.0 - math.pow(DECAY2, t))


@helper
def adam(
    values: Floats, gradients: Floats, first: Floats, second: Floats, rate: Scalar, lack: Scalar
) -> None:
    """Writes the values and both moments; `lack` is what `lacking` says."""
    lack1, lack2 = lack
    for i in range(len(values)):
        g = gradients[i]
        m = KEEP1 * first[i] + TAKE1 * g
        v = KEEP2 * second[i] + TAKE2 * g * g
        first[i] = m
        second[i] = v
        values[i] -= rate * (m / lack1) / (np.sqrt(v / lack2) + EPSILON)


@helper
def adam_rows(
    rows: Floats,
    gradients: Floats,
    first: Floats,
    second: Floats,
    places: Ints,
    batch_of: Longs,
    batch: Scalar,
    rate: Scalar,
    lack: Scalar,
) -> None:
    for place in places:
        r = np.uint64(place)
        if batch_of[r] == batch:
            batch_of[r] = 0
            adam(rows[r], gradients[r], first[r], second[r], rate, lack)
