"""Bayesian personalised ranking by SGD over sampled triples (Rendle et al. 2009)."""

from __future__ import annotations

import numpy as np
from numba import float32, int32, int64, types, uint64

from coterie.kernels.common import below, draw_unseen, kernel, random_word, readonly, sigmoid
from coterie.types import Floats, Ints, Longs

BATCH = 256
"""Triples drawn ahead of training: their memory accesses overlap, 210 ns a triple and not 340."""


@kernel(
    types.void(
        readonly(int32),
        readonly(int32),
        readonly(int64),
        readonly(int32),
        float32[:, ::1],
        float32[:, ::1],
        float32[::1],
        float32,
        float32,
        float32,
        float32,
        float32,
        uint64,
        int64,
    ),
)
def train_triples(
    users: Ints,
    items: Ints,
    seen_offsets: Longs,
    seen: Ints,
    P: Floats,
    Q: Floats,
    b: Floats,
    learning_rate: float,
    reg_user: float,
    reg_positive: float,
    reg_negative: float,
    reg_bias: float,
    key: np.uint64,
    n: int,
) -> None:
    """Train on n triples. Writes P (users, d), Q (items, d) and b (items,).

    A triple is a training pair (u, i), drawn with replacement, and an item j drawn uniformly from
    the items outside seen[u].
    """
    n_items, d = Q.shape
    whole = d - d % 4
    one = np.float32(1.0)
    keep_user = one - learning_rate * reg_user
    keep_i = one - learning_rate * reg_positive
    keep_j = one - learning_rate * reg_negative
    shrink = learning_rate * reg_bias
    drawn = np.empty((BATCH, 3), np.int64)
    for first in range(0, n, BATCH):
        size = min(BATCH, n - first)
        for t in range(size):
            at = below(random_word(key, 2 * (first + t)), len(items))
            drawn[t, 0] = users[at]
            drawn[t, 1] = items[at]
        for t in range(size):
            drawn[t, 2] = draw_unseen(
                drawn[t, 0], seen_offsets, seen, n_items, random_word(key, 2 * (first + t) + 1)
            )
        for t in range(size):
            # The user has seen every item, so there is no negative.
            if drawn[t, 2] < 0:
                continue
            u = np.uint64(drawn[t, 0])
            i = np.uint64(drawn[t, 1])
            j = np.uint64(drawn[t, 2])
            # Four partial sums in a fixed order: as fast as fastmath, which may reorder additions,
            # but with the same bits on every machine.
            x0 = x1 = x2 = x3 = np.float32(0.0)
            for f in range(0, whole, 4):
                x0 += P[u, f] * (Q[i, f] - Q[j, f])
                x1 += P[u, f + 1] * (Q[i, f + 1] - Q[j, f + 1])
                x2 += P[u, f + 2] * (Q[i, f + 2] - Q[j, f + 2])
                x3 += P[u, f + 3] * (Q[i, f + 3] - Q[j, f + 3])
            for f in range(whole, d):
                x0 += P[u, f] * (Q[i, f] - Q[j, f])
            g = learning_rate * (one - sigmoid((x0 + x1) + (x2 + x3) + (b[i] - b[j])))
            for f in range(d):
                pf = P[u, f]
                qi = Q[i, f]
                qj = Q[j, f]
                P[u, f] = keep_user * pf + g * (qi - qj)
                Q[i, f] = keep_i * qi + g * pf
                Q[j, f] = keep_j * qj - g * pf
            b[i] += g - shrink * b[i]
            b[j] -= g + shrink * b[j]
