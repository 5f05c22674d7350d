"""GMF by SGD, one sample at a time.

Implicit feedback: every positive once, each with fresh negatives (BCE). Explicit feedback: every
rating once (MSE).
"""

from __future__ import annotations

import numpy as np
from numba import float32, int32, int64, types, uint64

from coterie.kernels.common import (
    Real,
    draw_unseen,
    helper,
    kernel,
    random_word,
    readonly,
    sigmoid,
)
from coterie.types import Floats, Ints, Longs

BATCH = 64
"""Positives whose negatives are drawn ahead of training, so that memory accesses overlap."""


@helper
def predict(P: Floats, Q: Floats, h: Floats, b: Floats, u: np.uint64, i: np.uint64) -> np.float32:
    """h . (p_u * q_i) + b"""
    whole = len(h) - len(h) % 4
    # Four partial sums in a fixed order, as in BPR.
    x0 = x1 = x2 = x3 = np.float32(0.0)
    for f in range(0, whole, 4):
        x0 += h[f] * P[u, f] * Q[i, f]
        x1 += h[f + 1] * P[u, f + 1] * Q[i, f + 1]
        x2 += h[f + 2] * P[u, f + 2] * Q[i, f + 2]
        x3 += h[f + 3] * P[u, f + 3] * Q[i, f + 3]
    for f in range(whole, len(h)):
        x0 += h[f] * P[u, f] * Q[i, f]
    prediction: np.float32 = (x0 + x1) + (x2 + x3) + b[0]
    return prediction


@helper
def step(
    P: Floats, Q: Floats, h: Floats, b: Floats, u: np.uint64, i: np.uint64, move: Real, keep: Real
) -> None:
    """One SGD step on h . (p * q) + b.

    `move` is the learning rate times the derivative of the loss by the prediction, and `keep` is
    1 - learning rate * reg.
    """
    for f in range(len(h)):
        p = P[u, f]
        q = Q[i, f]
        w = h[f]
        P[u, f] = keep * p - move * w * q
        Q[i, f] = keep * q - move * w * p
        h[f] = w - move * p * q
    b[0] -= move


@kernel(
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
    learning_rate: float,
    reg: float,
    key: np.uint64,
) -> None:
    """Binary cross-entropy: label 1 for a positive, 0 for `negatives` items outside seen[u].

    Writes P (users, d), Q (items, d), h (d,) and b (1,).
    """
    n_items = len(Q)
    one = np.float32(1.0)
    keep = one - learning_rate * reg
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
            step(P, Q, h, b, u, i, learning_rate * (sigmoid(predict(P, Q, h, b, u, i)) - one), keep)
            for s in range(negatives):
                # The user has seen every item, so there is no negative.
                if drawn[t, s] < 0:
                    continue
                j = np.uint64(drawn[t, s])
                step(P, Q, h, b, u, j, learning_rate * sigmoid(predict(P, Q, h, b, u, j)), keep)


@kernel(
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
    learning_rate: float,
    reg: float,
) -> None:
    """Squared error on ratings. Writes P, Q, h, b."""
    keep = np.float32(1.0) - learning_rate * reg
    for t in range(len(order)):
        u = np.uint64(users[order[t]])
        i = np.uint64(items[order[t]])
        step(
            P, Q, h, b, u, i, learning_rate * (predict(P, Q, h, b, u, i) - ratings[order[t]]), keep
        )
