"""Bayesian personalised ranking by SGD over sampled triples (Rendle et al. 2009)."""

from __future__ import annotations

import numba
import numpy as np
from numba import float32, int32, int64, types, uint64

from coterie.kernels.common import below, nth_unseen, random_word, readonly, sigmoid
from coterie.types import Floats, Ints, Longs


@numba.njit(
    types.void(
        readonly(int32), readonly(int64), readonly(int32), readonly(int64), readonly(int32),
        float32[:, ::1], float32[:, ::1], float32[::1],
        float32, float32, float32, float32, float32, uint64, int64,
    ),
    nogil=True, cache=True, error_model="numpy",
)  # fmt: skip
def train_triples(
    users: Ints, offsets: Longs, items: Ints, seen_offsets: Longs, seen: Ints, P: Floats, Q: Floats, b: Floats,
    rate: float, reg_user: float, reg_positive: float, reg_negative: float, reg_bias: float, key: np.uint64, n: int,
) -> None:  # fmt: skip
    """n triples: a training pair (u, i) with replacement, and j uniform among the items outside seen[u]. Writes P, Q, b."""
    n_items, d = Q.shape
    whole = d - d % 4
    one = np.float32(1.0)
    for t in range(n):
        at = below(random_word(key, 2 * t), len(items))
        u, i = users[at], items[at]
        start, end = seen_offsets[u], seen_offsets[u + 1]
        free = n_items - (end - start)
        if free == 0:
            continue  # has everything: nothing to rank below
        j = nth_unseen(seen, start, end, below(random_word(key, 2 * t + 1), free))
        p, qi, qj = P[u], Q[i], Q[j]
        # four lanes in a fixed order: as fast as reassociated sums, and the same bits everywhere
        x0 = x1 = x2 = x3 = np.float32(0.0)
        for f in range(0, whole, 4):
            x0 += p[f] * (qi[f] - qj[f])
            x1 += p[f + 1] * (qi[f + 1] - qj[f + 1])
            x2 += p[f + 2] * (qi[f + 2] - qj[f + 2])
            x3 += p[f + 3] * (qi[f + 3] - qj[f + 3])
        for f in range(whole, d):
            x0 += p[f] * (qi[f] - qj[f])
        x = (x0 + x1) + (x2 + x3) + (b[i] - b[j])
        g = rate * (one - sigmoid(x))
        keep_user, keep_i, keep_j = one - rate * reg_user, one - rate * reg_positive, one - rate * reg_negative
        for f in range(d):
            pf, qif, qjf = p[f], qi[f], qj[f]
            p[f] = keep_user * pf + g * (qif - qjf)
            qi[f] = keep_i * qif + g * pf
            qj[f] = keep_j * qjf - g * pf
        b[i] += g - rate * reg_bias * b[i]
        b[j] -= g + rate * reg_bias * b[j]
