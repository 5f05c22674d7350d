"""Least squares of implicit ALS: each row solves its own ridge system."""

from __future__ import annotations

import numpy as np
from numba import float32, float64, int32, int64, types

from coterie.kernels.common import Integer, helper, kernel, readonly
from coterie.kernels.tiles import CHUNK, add_outer_products, padded, solve_in_place
from coterie.types import Doubles, Floats, Ints, Longs


@helper
def longest(offsets: Longs, first: Integer, last: Integer) -> Integer:
    """The length of the longest of rows first..last."""
    most = 0
    for r in range(first, last):
        most = max(most, offsets[r + 1] - offsets[r])
    return most


@kernel(types.void(readonly(float32, 2), float64[:, ::1]))
def gram(Y: Floats, G: Doubles) -> None:
    """G = Y^T Y for Y (n, d), adding rows in order and in double precision. Writes G."""
    n, d = Y.shape
    width = padded(d)
    A = np.zeros(width * width)
    vectors = np.zeros(CHUNK * width)
    for first in range(0, n, CHUNK):
        last = min(first + CHUNK, n)
        for r in range(first, last):
            for a in range(d):
                vectors[(r - first) * width + a] = Y[r, a]
        add_outer_products(vectors, last - first, width, A)
    for a in range(d):
        for c in range(a + 1):
            G[a, c] = A[c * width + a]
            G[c, a] = A[c * width + a]


@kernel(
    types.void(
        readonly(int64),
        readonly(int32),
        readonly(float32),
        readonly(float32, 2),
        readonly(float64, 2),
        readonly(float64, 2),
        float64,
        readonly(float64),
        int64,
        int64,
        float32[:, ::1],
    ),
)
def solve_rows(
    offsets: Longs,
    columns: Ints,
    targets: Floats,
    Y: Floats,
    G: Doubles,
    extra: Doubles,
    alpha: float,
    ridges: Doubles,
    first: int,
    last: int,
    X: Floats,
) -> None:
    """Solve rows first..last by Cholesky and write them to X:

        x = (G + ridge I + alpha sum_i y_i y_i^T)^-1 (extra + sum_i t_i y_i)

    The sums run over columns[offsets[r]:offsets[r + 1]]. `targets` has a t for every column, or
    none, which means 1 + alpha. `ridges` has a number for every row of X, and `extra` a row, or no
    rows, which means zeros.
    """
    d = Y.shape[1]
    width = padded(d)
    A = np.empty(width * width)
    v = np.empty(width)
    vectors = np.zeros(CHUNK * width)
    for r in range(first, last):
        A[:] = 0.0
        for a in range(d):
            v[a] = extra[r, a] if len(extra) else 0.0
        for begin in range(offsets[r], offsets[r + 1], CHUNK):
            n = min(CHUNK, offsets[r + 1] - begin)
            for j in range(n):
                y = Y[columns[begin + j]]
                t = float64(targets[begin + j]) if len(targets) else 1.0 + alpha
                for a in range(d):
                    vectors[j * width + a] = y[a]
                    v[a] += t * y[a]
            add_outer_products(vectors, n, width, A)
        for c in range(d):
            for a in range(c, d):
                A[c * width + a] = G[c, a] + alpha * A[c * width + a]
            A[c * width + c] += ridges[r]
        solve_in_place(A, v, d, width)
        for a in range(d):
            X[r, a] = v[a]


@kernel(
    types.void(
        readonly(int64),
        readonly(int32),
        readonly(float32, 2),
        readonly(float64, 2),
        float64,
        readonly(float64),
        int64,
        int64,
        int64,
        float32[:, ::1],
    ),
)
def improve_rows(
    offsets: Longs,
    columns: Ints,
    Y: Floats,
    G: Doubles,
    alpha: float,
    ridges: Doubles,
    size: int,
    first: int,
    last: int,
    X: Floats,
) -> None:
    """Improve rows first..last of X in place, a block of `size` coordinates after the other.

    A block takes the value that is best while the other coordinates stay: with the gradient g of
    `solve_rows`' objective, x_B += (G_BB + ridge I + alpha sum_i y_iB y_iB^T)^-1 g_B.
    """
    d = Y.shape[1]
    width = padded(size)
    A = np.empty(width * width)
    v = np.empty(width)
    vectors = np.zeros(CHUNK * width)
    products = np.empty(longest(offsets, first, last))
    for r in range(first, last):
        at = offsets[r]
        for e in range(at, offsets[r + 1]):
            y = Y[columns[e]]
            product = 0.0
            for a in range(d):
                product += float64(X[r, a]) * y[a]
            products[e - at] = product
        for begin in range(0, d, size):
            k = min(size, d - begin)
            A[:] = 0.0
            for a in range(k):
                v[a] = -ridges[r] * X[r, begin + a]
                for c in range(d):
                    v[a] -= G[begin + a, c] * X[r, c]
            for chunk in range(at, offsets[r + 1], CHUNK):
                n = min(CHUNK, offsets[r + 1] - chunk)
                for j in range(n):
                    y = Y[columns[chunk + j]]
                    weight = 1.0 + alpha - alpha * products[chunk + j - at]
                    for a in range(k):
                        vectors[j * width + a] = y[begin + a]
                        v[a] += weight * y[begin + a]
                    for a in range(k, width):
                        vectors[j * width + a] = 0.0
                add_outer_products(vectors, n, width, A)
            for c in range(k):
                for a in range(c, k):
                    A[c * width + a] = G[begin + c, begin + a] + alpha * A[c * width + a]
                A[c * width + c] += ridges[r]
            solve_in_place(A, v, k, width)
            for a in range(k):
                # The change that single precision keeps
                before = X[r, begin + a]
                X[r, begin + a] = before + v[a]
                v[a] = float64(X[r, begin + a]) - before
            for e in range(at, offsets[r + 1]):
                y = Y[columns[e]]
                for a in range(k):
                    products[e - at] += v[a] * y[begin + a]
