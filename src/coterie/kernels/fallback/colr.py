"""CoLR on a client: the user row moves freely, item rows only within the span of a matrix."""

from __future__ import annotations

import numpy as np

from coterie.kernels.fallback.quantise import quantised_change
from coterie.types import Floats, Ints, Longs


def train(
    offsets: Longs,
    items: Ints,
    starts: Longs,
    samples: Ints,
    targets: Floats,
    user_rows: Floats,
    item_rows: Floats,
    basis: Floats,
    user_rate: float,
    item_rate: float,
    reg: float,
    batch_size: int,
    first: int,
    last: int,
    after: Floats,
    factors: Ints,
) -> None:
    """Users first..last: write their rows to `after`, and A of their items in fixed point.

    User k trains on samples[starts[k]:starts[k + 1]], which are positions in items[offsets[k]:].
    """
    for k in range(first, last):
        touched = slice(offsets[k], offsets[k + 1])
        Q = item_rows[items[touched]]
        A = np.zeros((len(Q), len(basis)), np.float32)
        p = user_rows[k].copy()
        for begin in range(starts[k], starts[k + 1], batch_size):
            batch = slice(begin, min(begin + batch_size, starts[k + 1]))
            p = step(p, Q, A, samples[batch], targets[batch], basis, user_rate, item_rate, reg)
        after[k] = p
        factors[touched] = quantised_change(A, np.zeros_like(A))


def step(
    p: Floats,
    Q: Floats,
    A: Floats,
    places: Ints,
    targets: Floats,
    basis: Floats,
    user_rate: float,
    item_rate: float,
    reg: float,
) -> Floats:
    """One step on a batch. Writes Q and A, and returns the user row after it."""
    rows, which, occurs = np.unique(places, return_inverse=True, return_counts=True)
    # The update of a user who diverges is rejected by the server.
    with np.errstate(over="ignore", invalid="ignore"):
        # Without BLAS, whose bits change with the number of threads.
        y = (Q[places] * p).sum(axis=1)
        errors = (1 / (1 + np.exp(-y)) - targets)[:, None]
        own = (errors * Q[places]).mean(axis=0) + np.float32(reg) * p
        gradients = np.zeros((len(rows), len(p)), np.float32)
        np.add.at(gradients, which, errors * p)
        gradients = gradients / occurs[:, None].astype(np.float32) + np.float32(reg) * Q[rows]
        moved = np.float32(item_rate) * np.einsum("if,jf->ij", gradients, basis)
        A[rows] -= moved
        Q[rows] -= np.einsum("ij,jf->if", moved, basis)
        after: Floats = p - np.float32(user_rate) * own
    return after
