"""SGD and Adam steps on a user's local copy, for kernels that train user by user.

Adam (Kingma and Ba 2015) restarts on every client in every round: the moments start at zero and
are neither sent nor stored, and t counts the client's steps in this round. `gmf_moments` has
moments that persist across rounds. An item row outside the batch is not updated and its moments
do not decay, as in PyTorch's SparseAdam, although t increases.
"""

from __future__ import annotations

import math

import numpy as np

from coterie.kernels.common import Integer, Real, helper
from coterie.types import Floats, Ints, Longs

DECAY1 = 0.9
DECAY2 = 0.999
KEEP1 = np.float32(DECAY1)
KEEP2 = np.float32(DECAY2)
TAKE1 = np.float32(1 - DECAY1)
TAKE2 = np.float32(1 - DECAY2)
EPSILON = np.float32(1e-8)


@helper
def sgd(values: Floats, gradients: Floats, learning_rate: Real) -> None:
    """One step on a flat array. Writes `values`."""
    for i in range(len(values)):
        values[i] -= learning_rate * gradients[i]


@helper
def sgd_rows(
    rows: Floats,
    gradients: Floats,
    places: Ints,
    batch_of: Longs,
    batch: Integer,
    learning_rate: Real,
) -> None:
    """One step on the rows of a batch; `places` are their positions, with repeats.

    batch_of[r] equals `batch` until row r was updated, so an item that occurs twice moves once.
    """
    for place in places:
        r = np.uint64(place)
        if batch_of[r] == batch:
            batch_of[r] = 0
            for f in range(rows.shape[1]):
                rows[r, f] -= learning_rate * gradients[r, f]


@helper
def bias_corrections(t: Integer) -> tuple[np.float32, np.float32]:
    """1 - beta1^t and 1 - beta2^t. In double precision: in single, 1 - 0.999 has few digits."""
    return np.float32(1.0 - math.pow(DECAY1, t)), np.float32(1.0 - math.pow(DECAY2, t))


@helper
def adam(
    values: Floats,
    gradients: Floats,
    first: Floats,
    second: Floats,
    learning_rate: Real,
    corrections: tuple[np.float32, np.float32],
) -> None:
    """One step on a flat array. Writes `values` and both moments."""
    correction1, correction2 = corrections
    for i in range(len(values)):
        g = gradients[i]
        m = KEEP1 * first[i] + TAKE1 * g
        v = KEEP2 * second[i] + TAKE2 * g * g
        first[i] = m
        second[i] = v
        values[i] -= learning_rate * (m / correction1) / (np.sqrt(v / correction2) + EPSILON)


@helper
def adam_rows(
    rows: Floats,
    gradients: Floats,
    first: Floats,
    second: Floats,
    places: Ints,
    batch_of: Longs,
    batch: Integer,
    learning_rate: Real,
    corrections: tuple[np.float32, np.float32],
) -> None:
    """One step on the rows of a batch, as in `sgd_rows`."""
    for place in places:
        r = np.uint64(place)
        if batch_of[r] == batch:
            batch_of[r] = 0
            adam(rows[r], gradients[r], first[r], second[r], learning_rate, corrections)
