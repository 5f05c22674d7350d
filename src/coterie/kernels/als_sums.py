"""FedALS: sums over clients in fixed point, and the item rows that a server solves from them.

Products of two numbers in fixed point are integers below 2^46. Doubles add 128 of them exactly.
"""

from __future__ import annotations

import math

import numpy as np
from numba import float32, float64, int32, int64, types

from coterie.kernels.common import Real, helper, kernel, readonly
from coterie.kernels.tiles import add_outer_products, padded, solve_in_place
from coterie.types import SCALE, TOO_LARGE, Doubles, Floats, Ints, Longs

EXACT = 128
"""Outer products of integers below 2^23 whose sum is below 2^53, so that doubles are exact."""


@helper
def within_range(number: Real) -> Real:
    """The nearest number whose fixed point is in range."""
    return min(max(number, 1.0 - TOO_LARGE), TOO_LARGE - 1.0)


@kernel(
    types.void(
        readonly(int64),
        readonly(int32),
        readonly(int32),
        readonly(float64),
        readonly(int32, 2),
        readonly(float32, 2),
        float64,
        int64,
        int64,
        int64,
        int64,
        int64[:, ::1],
    ),
)
def sum_by_item(
    offsets: Longs,
    users: Ints,
    ratings: Ints,
    biases: Doubles,
    X: Ints,
    Y: Floats,
    share: float,
    begin: int,
    end: int,
    low: int,
    high: int,
    total: Longs,
) -> None:
    """For items low..high, sums over the users of the item, in fixed point:

        x_B x_B^T on and above the diagonal,   e x_B,   1,   the rating

    B are the coordinates begin..end, and e = t - share (x . y without B), rounded. t is the rating
    without the item's bias, or 1 where there are no `ratings`, which are aligned with `users`;
    then there is no sum of ratings.
    """
    d = X.shape[1]
    k = end - begin
    width = padded(k)
    A = np.empty(width * width)
    v = np.empty(k)
    vectors = np.zeros(EXACT * width)
    rated = len(ratings) > 0
    count = k * (k + 1) // 2 + k
    for i in range(low, high):
        total[i] = 0
        total[i, count] = offsets[i + 1] - offsets[i]
        for first in range(offsets[i], offsets[i + 1], EXACT):
            n = min(EXACT, offsets[i + 1] - first)
            A[:] = 0.0
            v[:] = 0.0
            for j in range(n):
                x = X[users[first + j]]
                target = float64(SCALE)
                if rated:
                    target = ratings[first + j] - biases[i]
                    total[i, count + 1] += ratings[first + j]
                product = 0.0
                for a in range(begin):
                    product += float64(x[a]) * Y[i, a]
                for a in range(end, d):
                    product += float64(x[a]) * Y[i, a]
                e = within_range(np.rint(target - share * product))
                for a in range(k):
                    vectors[j * width + a] = x[begin + a]
                    v[a] += e * x[begin + a]
            add_outer_products(vectors, n, width, A)
            at = 0
            for c in range(k):
                for a in range(c, k):
                    total[i, at] += int64(A[c * width + a])
                    at += 1
            for a in range(k):
                total[i, at + a] += int64(v[a])


@kernel(types.void(readonly(int32, 2), int64, int64, int64[::1]))
def sum_over_users(X: Ints, first: int, last: int, total: Longs) -> None:
    """total += x x^T of users first..last, on and above the diagonal, in fixed point."""
    d = X.shape[1]
    width = padded(d)
    A = np.empty(width * width)
    vectors = np.zeros(EXACT * width)
    for start in range(first, last, EXACT):
        n = min(EXACT, last - start)
        A[:] = 0.0
        for j in range(n):
            for a in range(d):
                vectors[j * width + a] = X[start + j, a]
        add_outer_products(vectors, n, width, A)
        at = 0
        for c in range(d):
            for a in range(c, d):
                total[at] += int64(A[c * width + a])
                at += 1


@kernel(
    types.void(
        readonly(float64, 2),
        readonly(float32, 2),
        readonly(float64, 2),
        float64,
        float64,
        float64,
        float64,
        float64,
        float64,
        int64,
        int64,
        int64,
        int64,
        float32[:, ::1],
    ),
)
def solve_sums(
    sums: Doubles,
    before: Floats,
    G: Doubles,
    weight: float,
    right: float,
    reg: float,
    others: float,
    scale: float,
    exponent: float,
    begin: int,
    end: int,
    low: int,
    high: int,
    after: Floats,
) -> None:
    """Solve for coordinates B = begin..end of rows low..high, from the sums of `sum_by_item`:

        y_B = (G_BB + ridge I + weight sum x_B x_B^T)^-1 (right sum e x_B - G_B y without B)
        ridge = reg max(scale count + others, 1)^exponent

    The other coordinates stay. The sums are in units of one.
    """
    d = before.shape[1]
    k = end - begin
    width = padded(k)
    A = np.empty(width * width)
    v = np.empty(width)
    for i in range(low, high):
        after[i] = before[i]
        ridge = reg
        if exponent != 0.0:
            size = max(scale * sums[i, k * (k + 1) // 2 + k] + others, 1.0)
            ridge = reg * math.pow(size, exponent)
        A[:] = 0.0
        at = 0
        for c in range(k):
            for a in range(c, k):
                A[c * width + a] = G[begin + c, begin + a] + weight * sums[i, at]
                at += 1
            A[c * width + c] += ridge
        for a in range(k):
            v[a] = right * sums[i, at + a]
            for c in range(begin):
                v[a] -= G[begin + a, c] * before[i, c]
            for c in range(end, d):
                v[a] -= G[begin + a, c] * before[i, c]
        solve_in_place(A, v, k, width)
        for a in range(k):
            after[i, begin + a] = v[a]
