"""FCF: what users make of items in fixed point, of one user as rows or of everybody as sums, and Adam on the server.

Every row that a user sends is a number of its own times the user's vector, so sums need no rows: threads own ranges of items, and
for an item the numbers of a block of users come first, then their vectors times those, rounded and added. A block is so small
that 32 bits hold its sum. Widths are padded with zeros to whole lanes, and users and items to fours.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from numba import boolean, float32, float64, int32, int64, types

from coterie.kernels.common import Scalar, helper, readonly
from coterie.kernels.lanes import LANES, load, plus_product, spread, store_sums
from coterie.kernels.quantise import quantise
from coterie.types import SCALE, TOO_LARGE, Floats, Ints, Longs

FOUR = 4
BLOCK = 252
"""Users whose changes are added in 32 bits: fours, and fewer than 2^31 / TOO_LARGE."""
assert BLOCK % FOUR == 0
assert BLOCK * TOO_LARGE < 1 << 31
SAFE = np.float32(7.5)
"""Changes below this are well within the range of fixed point; the limit itself is 8."""
ONE = np.float32(1.0)
ZERO = np.float32(0.0)
SCALE32 = np.float32(SCALE)


@helper
def four_products(
    one: Floats, at: Scalar, four: Floats, first: Scalar, width: Scalar, out: Floats, place: Scalar
) -> None:
    """out[place + j] = a . b_j for j = 0 .. 3, with a = one[at:at + width] and b_j the j-th `width` numbers from four[first] on.

    The bits are the same whichever side a user's vector is on.
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
    products: Floats, liked: Ints, before: Scalar, unit: Scalar, aside: Floats
) -> None:
    """x . y becomes c (p - x . y), in units of the largest confidence; `unit` is the lowest, 1 / (1 + alpha).

    Liked ones stand at places liked - before. They are put aside, so that the rest is one loop without a question in it.
    """
    for j in range(len(liked)):
        aside[j] = ONE - products[liked[j] - before]
    for i in range(len(products)):
        products[i] *= -unit
    for j in range(len(liked)):
        products[liked[j] - before] = aside[j]


@helper
def add_four(X: Floats, k: Scalar, gradients: Floats, sums: Ints) -> None:
    """sums += rint(slope x) of users k .. k + 3: four at a time, so that a sum is read and written once for them all."""
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


@numba.njit(
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
    nogil=True,
    cache=True,
    error_model="numpy",
)
def changes(
    X: Floats, Y: Floats, offsets: Longs, liked: Ints, unit: float, first: int, last: int, out: Ints
) -> None:
    """out[k, i] = c_ki (p_ki - x_k . y_i) x_k for users first..last and all items, in fixed point."""
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


@numba.njit(
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
    nogil=True,
    cache=True,
    error_model="numpy",
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
    """For items low..high: total += the changes of all users, as `changes` has them; likers[offsets[i]:offsets[i + 1]] like item i.

    Returns whether all of them are well within range; if not, the total is worth nothing. largest[k] is the largest of |x_k|.
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
                gradients[k] *= (
                    SCALE32  # exact, and so the products below are what `changes` rounds
                )
            sums[:] = 0
            for k in range(begin, end, FOUR):
                add_four(X, k, gradients[k - begin :], sums)
            for f in range(d):
                total[i, f] += sums[f]
    return fine


@numba.njit(
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
    nogil=True,
    cache=True,
    error_model="numpy",
)
def adam(
    before: Floats,
    first: Floats,
    second: Floats,
    total: Longs,
    unit: float,
    reg: float,
    rate: float,
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
    """Rows low..high after a step of Adam down the gradient 2 (reg y - unit total); writes rows and both moments."""
    lack1 = 1.0 - math.pow(beta1, step)
    lack2 = 1.0 - math.pow(beta2, step)
    for i in range(low, high):
        for f in range(before.shape[1]):
            y = float64(before[i, f])
            g = 2.0 * (reg * y - unit * total[i, f])
            m = beta1 * first[i, f] + (1.0 - beta1) * g
            v = beta2 * second[i, f] + (1.0 - beta2) * g * g
            first_after[i, f] = m
            second_after[i, f] = v
            after[i, f] = y - rate * (m / lack1) / (math.sqrt(v / lack2) + epsilon)
