"""FCF: item gradients in fixed point, as rows of a user or as sums over users; Adam on the server.

The gradient row that a user sends for an item is a scalar times the user's vector, so the sums can
be computed without storing rows. Every thread owns a range of items. For an item, it computes the
scalars of a block of users, multiplies their vectors by them, rounds and adds. A block is small
enough for its sum to fit into 32 bits. Widths are padded with zeros to whole lanes, and users and
items to multiples of four.
"""

from __future__ import annotations

import math

import numpy as np
from numba import boolean, float32, float64, int32, int64, types

from coterie.kernels.common import Integer, Real, helper, kernel, readonly
from coterie.kernels.lanes import LANES, load, plus_product, spread, store_sums
from coterie.kernels.quantise import quantise
from coterie.types import SCALE, TOO_LARGE, Floats, Ints, Longs

FOUR = 4
BLOCK = 252
"""Users whose gradients are added in 32 bits: a multiple of four, below 2^31 / TOO_LARGE."""
assert BLOCK % FOUR == 0
assert BLOCK * TOO_LARGE < 1 << 31
SAFE = np.float32(7.5)
"""Gradients below this are well within the range of fixed point, which ends at 8."""
ONE = np.float32(1.0)
ZERO = np.float32(0.0)
SCALE32 = np.float32(SCALE)


@helper
def four_products(
    one: Floats,
    at: Integer,
    four: Floats,
    first: Integer,
    width: Integer,
    out: Floats,
    place: Integer,
) -> None:
    """out[place + j] = a . b_j for j = 0 .. 3.

    a is one[at : at + width], and the four vectors b_j follow each other from four[first] on.
    Products commute, so `changes` and `add_up` get the same bits with a user's vector as a or b_j.
    """
    s0 = s1 = s2 = s3 = spread(ZERO)
    for f in range(0, width, LANES):
        a = load(one, at + f)
        s0 = plus_product(s0, a, load(four, first + f))
        s1 = plus_product(s1, a, load(four, first + width + f))
        s2 = plus_product(s2, a, load(four, first + 2 * width + f))
        s3 = plus_product(s3, a, load(four, first + 3 * width + f))
    store_sums(out, place, s0, s1, s2, s3)


@helper
def turn_into_gradients(
    products: Floats, liked: Ints, before: Integer, unit: Real, aside: Floats
) -> None:
    """Replace x . y by c (p - x . y), in units of the largest confidence.

    `unit` is the lowest confidence, 1 / (1 + alpha). Pairs with p = 1 are at liked - before; they
    are saved in `aside` first, so that the loop over all others needs no branch.
    """
    for j in range(len(liked)):
        aside[j] = ONE - products[liked[j] - before]
    for i in range(len(products)):
        products[i] *= -unit
    for j in range(len(liked)):
        products[liked[j] - before] = aside[j]


@helper
def add_four(X: Floats, k: Integer, gradients: Floats, sums: Ints) -> None:
    """sums += rint(gradient x) of users k .. k + 3, with one load and store of each sum."""
    e0 = gradients[0]
    e1 = gradients[1]
    e2 = gradients[2]
    e3 = gradients[3]
    x0 = X[k]
    x1 = X[k + 1]
    x2 = X[k + 2]
    x3 = X[k + 3]
    for f in range(len(sums)):
        q0 = np.int32(np.rint(e0 * x0[f]))
        q1 = np.int32(np.rint(e1 * x1[f]))
        q2 = np.int32(np.rint(e2 * x2[f]))
        q3 = np.int32(np.rint(e3 * x3[f]))
        sums[f] += (q0 + q1) + (q2 + q3)


@kernel(
    types.void(
        readonly(float32, 2),
        readonly(float32, 2),
        readonly(int64),
        readonly(int32),
        float32,
        int64,
        int64,
        int32[:, :, ::1],
    ),
)
def changes(
    X: Floats, Y: Floats, offsets: Longs, liked: Ints, unit: float, first: int, last: int, out: Ints
) -> None:
    """out[k, i] = c_ki (p_ki - x_k . y_i) x_k in fixed point, for users first..last and all items.

    X is (users, width), Y is (items, width) and out is (users, items, d).
    """
    n_items, d = out.shape[1:]
    width = X.shape[1]
    x = X.reshape(-1)
    y = Y.reshape(-1)
    gradients = np.empty(len(Y), np.float32)
    aside = np.empty(len(Y), np.float32)
    for k in range(first, last):
        for i in range(0, len(Y), FOUR):
            four_products(x, k * width, y, i * width, width, gradients, i)
        turn_into_gradients(gradients, liked[offsets[k] : offsets[k + 1]], 0, unit, aside)
        for i in range(n_items):
            for f in range(d):
                out[k, i, f] = quantise(gradients[i] * X[k, f])


@kernel(
    boolean(
        readonly(float32, 2),
        readonly(float32),
        readonly(float32, 2),
        readonly(int64),
        readonly(int32),
        float32,
        int64,
        int64,
        int64[:, ::1],
    ),
)
def add_up(
    X: Floats,
    largest: Floats,
    Y: Floats,
    offsets: Longs,
    likers: Ints,
    unit: float,
    low: int,
    high: int,
    total: Longs,
) -> bool:
    """For items low..high: total += the gradients of all users, as `changes` rounds them.

    likers[offsets[i]:offsets[i + 1]] are the users with item i, and largest[k] is the largest
    entry of |x_k|. Returns whether all gradients are well within range; if not, 32 bits may have
    overflowed and `total` is not valid.
    """
    n, width = X.shape
    d = total.shape[1]
    x = X.reshape(-1)
    y = Y.reshape(-1)
    gradients = np.empty(BLOCK, np.float32)
    aside = np.empty(BLOCK, np.float32)
    sums = np.empty(width, np.int32)
    at = offsets[low:high].copy()
    fine = True
    for begin in range(0, n, BLOCK):
        end = min(begin + BLOCK, n)
        for i in range(low, high):
            for k in range(begin, end, FOUR):
                four_products(y, i * width, x, k * width, width, gradients, k - begin)
            own = at[i - low]
            while at[i - low] < offsets[i + 1] and likers[at[i - low]] < end:
                at[i - low] += 1
            turn_into_gradients(
                gradients[: end - begin], likers[own : at[i - low]], begin, unit, aside
            )
            for k in range(end - begin):
                fine &= abs(gradients[k]) * largest[begin + k] < SAFE
                # Exact, so the products in add_four have the values that `changes` rounds.
                gradients[k] *= SCALE32
            sums[:] = 0
            for k in range(begin, end, FOUR):
                add_four(X, k, gradients[k - begin :], sums)
            for f in range(d):
                total[i, f] += sums[f]
    return fine


@kernel(
    types.void(
        readonly(float32, 2),
        readonly(float32, 2),
        readonly(float32, 2),
        readonly(int64, 2),
        float64,
        float64,
        float64,
        float64,
        float64,
        float64,
        int64,
        int64,
        int64,
        float32[:, ::1],
        float32[:, ::1],
        float32[:, ::1],
    ),
)
def adam(
    before: Floats,
    first: Floats,
    second: Floats,
    total: Longs,
    unit: float,
    reg: float,
    learning_rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    step: int,
    low: int,
    high: int,
    after: Floats,
    first_after: Floats,
    second_after: Floats,
) -> None:
    """One step of Adam on rows low..high by the gradient 2 (reg y - unit total).

    Writes the rows and both moments. The arithmetic is in double precision.
    """
    correction1 = 1.0 - math.pow(beta1, step)
    correction2 = 1.0 - math.pow(beta2, step)
    for i in range(low, high):
        for f in range(before.shape[1]):
            y = float64(before[i, f])
            g = 2.0 * (reg * y - unit * total[i, f])
            m = beta1 * first[i, f] + (1.0 - beta1) * g
            v = beta2 * second[i, f] + (1.0 - beta2) * g * g
            first_after[i, f] = m
            second_after[i, f] = v
            after[i, f] = y - learning_rate * (m / correction1) / (
                math.sqrt(v / correction2) + epsilon
            )
