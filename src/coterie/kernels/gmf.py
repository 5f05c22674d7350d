"""GMF by SGD, one sample at a time: every positive once an epoch, each with fresh negatives (BCE), or its rating (MSE)."""

from __future__ import annotations

import numba
import numpy as np
from numba import float32, int32, int64, types, uint64

from coterie.kernels.common import Scalar, below, helper, nth_unseen, random_word, readonly, sigmoid
from coterie.types import Floats, Ints, Longs


@helper
def predict(p: Floats, q: Floats, h: Floats, b: Floats) -> Scalar:
    total = b[0]
    for f in range(len(p)):
        total += h[f] * p[f] * q[f]
    return total


@helper
def step(p: Floats, q: Floats, h: Floats, b: Floats, slope: Scalar, rate: Scalar, reg: Scalar) -> None:
    """One SGD step on h . (p * q) + b, where slope is the loss's derivative by the prediction."""
    keep = np.float32(1.0) - rate * reg
    move = rate * slope
    for f in range(len(p)):
        pf, qf, hf = p[f], q[f], h[f]
        p[f] = keep * pf - move * hf * qf
        q[f] = keep * qf - move * hf * pf
        h[f] = hf - move * pf * qf
    b[0] -= move


@numba.njit(
    types.void(
        readonly(int64), readonly(int32), readonly(int32), readonly(int64), readonly(int32),
        float32[:, ::1], float32[:, ::1], float32[::1], float32[::1],
        int64, float32, float32, uint64,
    ),
    nogil=True, cache=True, error_model="numpy",
)  # fmt: skip
def train_implicit(
    order: Longs, users: Ints, items: Ints, seen_offsets: Longs, seen: Ints,
    P: Floats, Q: Floats, h: Floats, b: Floats, negatives: int, rate: float, reg: float, key: np.uint64,
) -> None:  # fmt: skip
    """Binary cross-entropy: label 1 for the positive, 0 for `negatives` items outside seen[u]. Writes P, Q, h, b."""
    n_items = len(Q)
    one = np.float32(1.0)
    for t in range(len(order)):
        u, i = users[order[t]], items[order[t]]
        step(P[u], Q[i], h, b, sigmoid(predict(P[u], Q[i], h, b)) - one, rate, reg)
        start, end = seen_offsets[u], seen_offsets[u + 1]
        free = n_items - (end - start)
        if free == 0:
            continue
        for s in range(negatives):
            j = nth_unseen(seen, start, end, below(random_word(key, t * negatives + s), free))
            step(P[u], Q[j], h, b, sigmoid(predict(P[u], Q[j], h, b)), rate, reg)


@numba.njit(
    types.void(
        readonly(int64), readonly(int32), readonly(int32), readonly(float32),
        float32[:, ::1], float32[:, ::1], float32[::1], float32[::1], float32, float32,
    ),
    nogil=True, cache=True, error_model="numpy",
)  # fmt: skip
def train_explicit(
    order: Longs, users: Ints, items: Ints, ratings: Floats,
    P: Floats, Q: Floats, h: Floats, b: Floats, rate: float, reg: float,
) -> None:  # fmt: skip
    """Squared error on ratings. Writes P, Q, h, b."""
    for t in range(len(order)):
        u, i = users[order[t]], items[order[t]]
        step(P[u], Q[i], h, b, predict(P[u], Q[i], h, b) - ratings[order[t]], rate, reg)
