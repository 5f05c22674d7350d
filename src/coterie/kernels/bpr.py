"""Bayesian personalised ranking by SGD over sampled triples (Rendle et al. 2009)."""

from __future__ import annotations

import numba
import numpy as np
from numba import float32, int32, int64, types, uint64

from coterie.kernels.common import below, draw_unseen, random_word, readonly, sigmoid
from coterie.types import Floats, Ints, Longs

BATCH = 256  # triples drawn before they are used: their memory accesses overlap, 210 ns a triple instead of 340


@numba.njit(
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
    nogil=True,
    cache=True,
    error_model="numpy",
)
def train_triples(
    users: Ints,
    items: Ints,
    seen_offsets: Longs,
    seen: Ints,
    P: Floats,
    Q: Floats,
    b: Floats,
    rate: float,
    reg_user: float,
    reg_positive: float,
    reg_negative: float,
    reg_bias: float,
    key: np.uint64,
    n: int,
) -> None:
    """n triples: a training pair (u, i) with replacement, and j uniform among the items outside seen[u]. Writes P, Q, b."""
    n_items, d = Q.shape
    whole = d - d % 4
    one = np.float32(1.0)
    keep_user = one - rate * reg_user
    keep_i = one - rate * reg_positive
    keep_j = one - rate * reg_negative
    shrink = rate * reg_bias
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
            if drawn[t, 2] < 0:
                continue  # the user has everything: there is nothing to rank below
            u = np.uint64(drawn[t, 0])
            i = np.uint64(drawn[t, 1])
            j = np.uint64(drawn[t, 2])
            # four lanes in a fixed order: as fast as reassociated sums, and the same bits everywhere
            x0 = x1 = x2 = x3 = np.float32(0.0)
            for f in range(0, whole, 4):
                x0 += P[u, f] * (Q[i, f] - Q[j, f])
                x1 += P[u, f + 1] * (Q[i, f + 1] - Q[j, f + 1])
                x2 += P[u, f + 2] * (Q[i, f + 2] - Q[j, f + 2])
                x3 += P[u, f + 3] * (Q[i, f + 3] - Q[j, f + 3])
            for f in range(whole, d):
                x0 += P[u, f] * (Q[i, f] - Q[j, f])
            g = rate * (one - sigmoid((x0 + x1) + (x2 + x3) + (b[i] - b[j])))
            for f in range(d):
                pf = P[u, f]
                qi = Q[i, f]
                qj = Q[j, f]
                P[u, f] = keep_user * pf + g * (qi - qj)
                Q[i, f] = keep_i * qi + g * pf
                Q[j, f] = keep_j * qj - g * pf
            b[i] += g - shrink * b[i]
            b[j] -= g + shrink * b[j]
