"""Slow twins of the kernels: one sample at a time, in plain Python and double precision."""

from __future__ import annotations

from fractions import Fraction
from math import exp

import numpy as np

WORD = (1 << 64) - 1


def splitmix64(key: int, n: int) -> int:
    """Output n of SplitMix64 started at `key`, computed by stepping through the stream."""
    state = key
    for _ in range(n + 1):
        state = (state + 0x9E3779B97F4A7C15) & WORD
    z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
    return z ^ (z >> 31)


def number_below(word: int, n: int) -> int:
    """The upper half of the word, as a fraction of 2^32, times n."""
    return (word // 2**32) * n // 2**32


def unseen(seen: set[int], n_items: int) -> list[int]:
    return [item for item in range(n_items) if item not in seen]


def sigmoid(x: float) -> float:
    return 1 / (1 + exp(-x))


def bpr(pairs, seen, P, Q, b, rate, reg_user, reg_positive, reg_negative, reg_bias, key, n):
    """Rendle et al. 2009 with an item bias; every update uses the values before the step."""
    P, Q, b = (a.astype(float) for a in (P, Q, b))
    for t in range(n):
        u, i = pairs[number_below(splitmix64(key, 2 * t), len(pairs))]
        free = unseen(seen[u], len(Q))
        if not free:
            continue
        j = free[number_below(splitmix64(key, 2 * t + 1), len(free))]
        g = 1 - sigmoid(P[u] @ (Q[i] - Q[j]) + b[i] - b[j])
        p = P[u].copy()
        qi = Q[i].copy()
        qj = Q[j].copy()
        bi = b[i]
        bj = b[j]
        P[u] = p + rate * (g * (qi - qj) - reg_user * p)
        Q[i] = qi + rate * (g * p - reg_positive * qi)
        Q[j] = qj + rate * (-g * p - reg_negative * qj)
        b[i] = bi + rate * (g - reg_bias * bi)
        b[j] = bj + rate * (-g - reg_bias * bj)
    return P, Q, b


def gmf_step(P, Q, h, b, u, i, gradient, rate, reg):
    p = P[u].copy()
    q = Q[i].copy()
    w = h.copy()
    P[u] = p - rate * (gradient * w * q + reg * p)
    Q[i] = q - rate * (gradient * w * p + reg * q)
    h[:] = w - rate * gradient * p * q
    b[0] -= rate * gradient


def gmf_score(P, Q, h, b, u, i) -> float:
    return float((h * P[u] * Q[i]).sum() + b[0])


def gmf_implicit(order, pairs, seen, P, Q, h, b, negatives, rate, reg, key):
    P, Q, h, b = (a.astype(float) for a in (P, Q, h, b))
    for t, which in enumerate(order):
        u, i = pairs[which]
        gmf_step(P, Q, h, b, u, i, sigmoid(gmf_score(P, Q, h, b, u, i)) - 1, rate, reg)
        free = unseen(seen[u], len(Q))
        for s in range(negatives if free else 0):
            j = free[number_below(splitmix64(key, t * negatives + s), len(free))]
            gmf_step(P, Q, h, b, u, j, sigmoid(gmf_score(P, Q, h, b, u, j)), rate, reg)
    return P, Q, h, b


def gmf_explicit(order, pairs, ratings, P, Q, h, b, rate, reg):
    P, Q, h, b = (a.astype(float) for a in (P, Q, h, b))
    for which in order:
        u, i = pairs[which]
        gmf_step(P, Q, h, b, u, i, gmf_score(P, Q, h, b, u, i) - ratings[which], rate, reg)
    return P, Q, h, b


def als_rows(histories, Y, alpha, reg):
    """The ridge system of every row over all items: confidence 1 + alpha on positives, else 1."""
    Y = Y.astype(float)
    solved = []
    for history in histories:
        c = np.ones(len(Y))
        r = np.zeros(len(Y))
        c[history] = 1 + alpha
        r[history] = 1
        system = Y.T @ (c[:, None] * Y) + reg * np.eye(Y.shape[1])
        solved.append(np.linalg.solve(system, Y.T @ (c * r)))
    return np.array(solved)


def als_blocks(X, histories, Y, alpha, ridges, size):
    """iALS++: the best value of each block of coordinates, one block after the other."""
    X = X.astype(float)
    Y = Y.astype(float)
    d = Y.shape[1]
    for u, history in enumerate(histories):
        r = np.zeros(len(Y))
        r[history] = 1
        c = 1 + alpha * r
        for begin in range(0, d, size):
            block = slice(begin, min(begin + size, d))
            others = X[u].copy()
            others[block] = 0
            left = r - Y @ others
            B = Y[:, block]
            system = B.T @ (c[:, None] * B) + ridges[u] * np.eye(B.shape[1])
            X[u, block] = np.linalg.solve(system, B.T @ (c * left))
    return X


def sums_of_item(X, ratings, bias, y, share, begin, end, scale, limit):
    """Sums over the users X of an item as Python integers; e is an exact fraction, rounded."""
    k = end - begin
    outer = [0] * (k * (k + 1) // 2)
    right = [0] * k
    for x, rating in zip(X.tolist(), ratings or [None] * len(X), strict=True):
        others = [a for a in range(len(x)) if not begin <= a < end]
        product = sum(x[a] * Fraction(float(y[a])) for a in others)
        target = scale if rating is None else rating - Fraction(bias)
        e = round(target - Fraction(share) * product)
        e = max(min(e, limit - 1), 1 - limit)
        block = x[begin:end]
        pairs = [(c, a) for c in range(k) for a in range(c, k)]
        outer = [total + block[c] * block[a] for total, (c, a) in zip(outer, pairs, strict=True)]
        right = [total + e * q for total, q in zip(right, block, strict=True)]
    return [*outer, *right, len(X), *([sum(ratings)] if ratings else [])]


def pair_sums(histories, weights, n_items):
    """The weights of the users who have items i and j, for i <= j, as Python integers."""
    return [
        sum(w for h, w in zip(histories, weights, strict=True) if i in h and j in h)
        for i in range(n_items)
        for j in range(i, n_items)
    ]
