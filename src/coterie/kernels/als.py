"""Least squares of implicit ALS: outer products are summed, and each row solves its own system.

Sums of outer products and the Cholesky factorisation spend their time in the same loop: a tile of
four rows and eight columns of a matrix gains the products of two columns of vectors, in registers.
Vectors are padded with zeros to whole tiles. Additions run in the order of the rows, in double
precision, so that the bits do not depend on threads.

MovieLens-1M, 64 factors, one core: a sweep over users and items takes a seventh of the time of
plain loops (benchmarks/als_speed.py).
"""

from __future__ import annotations

import math

import numpy as np
from numba import float32, float64, int32, int64, types

from coterie.kernels.common import Integer, Real, helper, kernel, readonly, subroutine
from coterie.kernels.lanes import (
    LANES,
    load_doubles,
    plus_double_product,
    spread_double,
    store_doubles,
)
from coterie.types import SCALE, TOO_LARGE, Doubles, Floats, Ints, Longs

TILE = 4
"""Rows of a tile: with eight columns, its sums fill the registers of AVX2."""
CHUNK = 64
"""Vectors that are gathered at a time: few enough to stay in the first cache."""
EXACT = 128
"""Outer products of integers below 2^23 whose sum is below 2^53, so that doubles are exact."""
ZERO = 0.0


@helper
def padded(d: Integer) -> Integer:
    """The width of d numbers in whole lanes."""
    return (d + LANES - 1) // LANES * LANES


@helper
def add_tile(
    vectors: Doubles, n: Integer, width: Integer, c: Integer, a: Integer, sign: Real, A: Doubles
) -> None:
    """A[c : c + 4, a : a + 8] += sign * sum of v_c v_a^T over n vectors v, in order."""
    s0 = s1 = s2 = s3 = spread_double(ZERO)
    for j in range(n):
        at = j * width
        v = load_doubles(vectors, at + a)
        s0 = plus_double_product(s0, spread_double(vectors[at + c]), v)
        s1 = plus_double_product(s1, spread_double(vectors[at + c + 1]), v)
        s2 = plus_double_product(s2, spread_double(vectors[at + c + 2]), v)
        s3 = plus_double_product(s3, spread_double(vectors[at + c + 3]), v)
    by = spread_double(sign)
    at = c * width + a
    store_doubles(A, at, plus_double_product(load_doubles(A, at), by, s0))
    at += width
    store_doubles(A, at, plus_double_product(load_doubles(A, at), by, s1))
    at += width
    store_doubles(A, at, plus_double_product(load_doubles(A, at), by, s2))
    at += width
    store_doubles(A, at, plus_double_product(load_doubles(A, at), by, s3))


@subroutine
def add_outer_products(vectors: Doubles, n: Integer, width: Integer, A: Doubles) -> None:
    """A += sum of v v^T over n vectors of this width, on and above the diagonal. A is flat."""
    for c in range(0, width, TILE):
        for a in range(c // LANES * LANES, width, LANES):
            add_tile(vectors, n, width, c, a, 1.0, A)


@subroutine
def solve_in_place(A: Doubles, v: Doubles, d: Integer, width: Integer) -> None:
    """v <- A^-1 v by Cholesky, A = U^T U. A is flat and holds its upper triangle; U replaces it.

    Rows and columns from d on are padding.
    """
    for c in range(d, width):
        A[c * width + c] = 1.0
        v[c] = 0.0
    for c in range(0, width, TILE):
        for a in range(c // LANES * LANES, width, LANES):
            add_tile(A, c, width, c, a, -1.0, A)
        for r in range(c, c + TILE):
            row = r * width
            for f in range(c, r):
                by = spread_double(-A[f * width + r])
                for a in range(r // LANES * LANES, width, LANES):
                    left = load_doubles(A, row + a)
                    left = plus_double_product(left, by, load_doubles(A, f * width + a))
                    store_doubles(A, row + a, left)
            root = math.sqrt(A[row + r])
            for a in range(r, width):
                A[row + a] /= root
            # U^T z = v, along the way
            z = v[r] / root
            v[r] = z
            for a in range(r + 1, width):
                v[a] -= z * A[row + a]
    for a in range(width - 1, -1, -1):
        z = v[a]
        for f in range(a + 1, width):
            z -= A[a * width + f] * v[f]
        v[a] = z / A[a * width + a]


@helper
def longest(offsets: Longs, first: Integer, last: Integer) -> Integer:
    """The length of the longest of rows first..last."""
    most = 0
    for r in range(first, last):
        most = max(most, offsets[r + 1] - offsets[r])
    return most


@helper
def within_range(number: Real) -> Real:
    """The nearest number whose fixed point is in range."""
    return min(max(number, 1.0 - TOO_LARGE), TOO_LARGE - 1.0)


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


# Sums over users in fixed point, and the rows that a server solves from them


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
