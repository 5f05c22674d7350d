"""GMF by SGD, one sample at a time: every positive once, each with fresh negatives (BCE), or its rating (MSE)."""

from __future__ import annotations

import numba
import numpy as np
from numba import float32, int32, int64, types, uint64

from coterie.kernels.common import Scalar, draw_unseen, helper, random_word, readonly, sigmoid
from coterie.types import Floats, Ints, Longs

BATCH = (
    64  # positives whose negatives are drawn before they are used: their memory accesses overlap
)


@helper
def predict(P: Floats, Q: Floats, h: Floats, b: Floats, u: Scalar, i: Scalar) -> Scalar:
    whole = len(h) - len(h) % 4
    x0 = x1 = x2 = x3 = np.float32(0.0)  # four lanes in a fixed order, as in BPR
    for f in range(0, whole, 4):
        x0 += h[f] * P[u, f] * Q[i, f]
        x1 += h[f + 1] * P[u, f + 1] * Q[i, f + 1]
        x2 += h[f + 2] * P[u, f + 2] * Q[i, f + 2]
        x3 += h[f + 3] * P[u, f + 3] * Q[i, f + 3]
    for f in range(whole, len(h)):
        x0 += h[f] * P[u, f] * Q[i, f]
    return (x0 + x1) + (x2 + x3) + b[0]


@helper
def step(
    P: Floats, Q: Floats, h: Floats, b: Floats, u: Scalar, i: Scalar, move: Scalar, keep: Scalar
) -> None:
    """One SGD step on h . (p * q) + b, where move is the rate times the loss's derivative by the prediction."""
    for f in range(len(h)):
        p = P[u, f]
        q = Q[i, f]
        w = h[f]
        P[u, f] = keep * p - move * w * q
        Q[i, f] = keep * q - move * w * p
        h[f] = w - move * p * q
    b[0] -= move


@numba.njit(
    types.void(
        readonly(int64),
        readonly(int32),
        readonly(int32),
        readonly(int64),
        readonly(int32),
        float32[:, ::1],
        float32[:, ::1],
        float32[::1],
        float32[::1],
        int64,
        float32,
        float32,
        uint64,
    ),
    nogil=True,
    cache=True,
    error_model="numpy",
)
def train_implicit(
    order: Longs,
    users: Ints,
    items: Ints,
    seen_offsets: Longs,
    seen: Ints,
    P: Floats,
    Q: Floats,
    h: Floats,
    b: Floats,
    negatives: int,
    rate: float,
    reg: float,
    key: np.uint64,
) -> None:
    """Binary cross-entropy: label 1 for the positive, 0 for `negatives` items outside seen[u]. Writes P, Q, h, b."""
    n_items = len(Q)
    one = np.float32(1.0)
    keep = one - rate * reg
    drawn = np.empty((BATCH, negatives), np.int64)
    for first in range(0, len(order), BATCH):
        size = min(BATCH, len(order) - first)
        for t in range(size):
            for s in range(negatives):
                word = random_word(key, (first + t) * negatives + s)
                drawn[t, s] = draw_unseen(
                    users[order[first + t]], seen_offsets, seen, n_items, word
                )
        for t in range(size):
            u = np.uint64(users[order[first + t]])
            i = np.uint64(items[order[first + t]])
            step(P, Q, h, b, u, i, rate * (sigmoid(predict(P, Q, h, b, u, i)) - one), keep)
            for s in range(negatives):
                if drawn[t, s] < 0:
                    continue  # the user has everything
                j = np.uint64(drawn[t, s])
                step(P, Q, h, b, u, j, rate * sigmoid(predict(P, Q, h, b, u, j)), keep)


@numba.njit(
    types.void(
        readonly(int64),
        readonly(int32),
        readonly(int32),
        readonly(float32),
        float32[:, ::1],
        float32[:, ::1],
        float32[::1],
        float32[::1],
        float32,
        float32,
    ),
    nogil=True,
    cache=True,
    error_model="numpy",
)
def train_explicit(
    order: Longs,
    users: Ints,
    items: Ints,
    ratings: Floats,
    P: Floats,
    Q: Floats,
    h: Floats,
    b: Floats,
    rate: float,
    reg: float,
) -> None:
    """Squared error on ratings. Writes P, Q, h, b."""
    keep = np.float32(1.0) - rate * reg
    for t in range(len(order)):
        u = np.uint64(users[order[t]])
        i = np.uint64(items[order[t]])
        step(P, Q, h, b, u, i, rate * (predict(P, Q, h, b, u, i) - ratings[order[t]]), keep)
