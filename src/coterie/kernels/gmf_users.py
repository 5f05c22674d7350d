"""GMF trained by every user of a cohort on a local copy: SGD per sample, then the quantised change.

A user works on a compact copy of the item rows it touches, flat, each padded with zeros to whole
lanes. Each of its samples needs what the sample before has changed, so that one user alone leaves
the processor waiting. Four users therefore take their samples side by side; where one is done, the
next user of the cohort takes its place. A user's arithmetic does not depend on its neighbours.

A sample at d = 10 takes 19 ns on one core, and 34 ns user by user with plain loops; at d = 32 it
takes 31 and 52 ns (a shared Xeon with AVX-512). The products of a logit are added in their order.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, float32, int32, int64, types

from coterie.kernels.common import Integer, Real, helper, kernel, readonly, sigmoid
from coterie.kernels.lanes import LANES, difference, load, product, spread, store
from coterie.kernels.logits import NOTHING, ONE, gather_padded, quantise_rows
from coterie.kernels.quantise import quantise_change
from coterie.kernels.tower import whole_lanes
from coterie.types import Floats, Ints, Longs

SIDE_BY_SIDE = 4
"""Users that train at the same time, each in a place of its own."""
NOBODY = np.int64(-1)


@helper
def multiply(
    p: Floats, h: Floats, at: Integer, q: Floats, row: Integer, width: Integer, out: Floats
) -> None:
    """out[at:] = h * p * q of the user whose vectors begin at `at`, component by component."""
    for f in range(0, width, LANES):
        of_user = product(load(h, at + f), load(p, at + f))
        store(out, at + f, product(of_user, load(q, row + f)))


@helper
def add_up(products: Floats, at: Integer, d: Integer) -> np.float32:
    """The sum of a user's products, in their order."""
    x = NOTHING
    for f in range(d):
        x += products[np.uint64(at + f)]
    return x


@helper
def add_up_four(products: Floats, width: Integer, d: Integer, sums: Floats) -> None:
    """The same for all four users. One addition waits for another, but not for another user's."""
    x0 = x1 = x2 = x3 = NOTHING
    for f in range(d):
        x0 += products[np.uint64(f)]
        x1 += products[np.uint64(width + f)]
        x2 += products[np.uint64(2 * width + f)]
        x3 += products[np.uint64(3 * width + f)]
    sums[0] = x0
    sums[1] = x1
    sums[2] = x2
    sums[3] = x3


@helper
def step(
    p: Floats,
    h: Floats,
    at: Integer,
    q: Floats,
    row: Integer,
    width: Integer,
    move: Real,
    keep: Real,
) -> None:
    """One SGD step on h . (p * q) + b, except for b.

    `move` is the learning rate times the derivative of the loss by the prediction, and `keep` is
    1 - learning rate * reg.
    """
    by = spread(move)
    kept = spread(keep)
    for f in range(0, width, LANES):
        pf = load(p, at + f)
        qf = load(q, row + f)
        hf = load(h, at + f)
        by_h = product(by, hf)
        store(p, at + f, difference(product(kept, pf), product(by_h, qf)))
        store(q, row + f, difference(product(kept, qf), product(by_h, pf)))
        store(h, at + f, difference(hf, product(product(by, pf), qf)))


@helper
def most_samples_first(starts: Longs, first: Integer, order: Longs) -> None:
    """Put the users from `first` on into order: those with many samples first, up to a factor of 2.

    Compiling a sort would take Numba two seconds.
    """
    below = starts[first + len(order)] - starts[first] + 1
    n = 0
    while below > 0:
        least = below >> 1
        for k in range(first, first + len(order)):
            if least <= starts[k + 1] - starts[k] < below:
                order[n] = k
                n += 1
        below = least


@helper
def copy_in(
    g: Integer,
    user_row: Floats,
    item_rows: Floats,
    touched: Ints,
    dense: Floats,
    width: Integer,
    room: Integer,
    q: Floats,
    p: Floats,
    h: Floats,
    b: Floats,
) -> None:
    """Put what a user starts from into place g."""
    gather_padded(item_rows, touched, width, q[g * room :])
    for f in range(len(user_row)):
        p[g * width + f] = user_row[f]
        h[g * width + f] = dense[f]
    b[g] = dense[len(user_row)]


@helper
def train_side_by_side(
    n: Integer,
    at: Longs,
    samples: Ints,
    targets: Floats,
    squared: bool,
    learning_rate: Real,
    keep: Real,
    d: Integer,
    width: Integer,
    room: Integer,
    q: Floats,
    p: Floats,
    h: Floats,
    b: Floats,
    products: Floats,
) -> None:
    """The next n samples of the users in all four places."""
    sums = np.empty(SIDE_BY_SIDE, np.float32)
    rows = np.empty(SIDE_BY_SIDE, np.int64)
    for s in range(n):
        for g in range(SIDE_BY_SIDE):
            rows[g] = g * room + np.int64(samples[np.uint64(at[g] + s)]) * width
            multiply(p, h, g * width, q, rows[g], width, products)
        add_up_four(products, width, d, sums)
        for g in range(SIDE_BY_SIDE):
            y = sums[g] + b[g]
            error = (y if squared else sigmoid(y)) - targets[np.uint64(at[g] + s)]
            move = learning_rate * error
            step(p, h, g * width, q, rows[g], width, move, keep)
            b[g] -= move
    for g in range(SIDE_BY_SIDE):
        at[g] += n


@helper
def train_alone(
    g: Integer,
    samples: Ints,
    targets: Floats,
    squared: bool,
    learning_rate: Real,
    keep: Real,
    d: Integer,
    width: Integer,
    room: Integer,
    q: Floats,
    p: Floats,
    h: Floats,
    b: Floats,
    products: Floats,
) -> None:
    """All these samples of the user in place g."""
    for s in range(len(samples)):
        row = g * room + np.int64(samples[s]) * width
        multiply(p, h, g * width, q, row, width, products)
        y = add_up(products, g * width, d) + b[g]
        move = learning_rate * ((y if squared else sigmoid(y)) - targets[s])
        step(p, h, g * width, q, row, width, move, keep)
        b[g] -= move


@kernel(
    types.void(
        readonly(int64),
        readonly(int32),
        readonly(int64),
        readonly(int32),
        readonly(float32),
        readonly(float32, 2),
        readonly(float32, 2),
        readonly(float32),
        boolean,
        float32,
        float32,
        int64,
        int64,
        int32[:, ::1],
        int32[:, ::1],
        int32[:, ::1],
    ),
)
def train(
    offsets: Longs,
    items: Ints,
    starts: Longs,
    samples: Ints,
    targets: Floats,
    user_rows: Floats,
    item_rows: Floats,
    dense: Floats,
    squared: bool,
    learning_rate: float,
    reg: float,
    first: int,
    last: int,
    user_deltas: Ints,
    item_deltas: Ints,
    dense_deltas: Ints,
) -> None:
    """Train users first..last of a cohort. Writes their changes in fixed point.

    Each user starts from the same item rows and `dense` (the output layer, then the bias). User k
    trains on samples[starts[k]:starts[k + 1]], which are positions in items[offsets[k]:].
    """
    most = 0
    for k in range(first, last):
        most = max(most, offsets[k + 1] - offsets[k])
    d = item_rows.shape[1]
    width = whole_lanes(d)
    # The vectors of the user in place g begin at g * width, and its rows at g * room.
    room = most * width
    q = np.empty(SIDE_BY_SIDE * room, np.float32)
    # Zeros, since arithmetic on what else memory holds can be slow. Only d of them count.
    p = np.zeros(SIDE_BY_SIDE * width, np.float32)
    h = np.zeros_like(p)
    b = np.empty(SIDE_BY_SIDE, np.float32)
    products = np.empty_like(p)
    users = np.empty(SIDE_BY_SIDE, np.int64)
    at = np.empty(SIDE_BY_SIDE, np.int64)
    until = np.empty(SIDE_BY_SIDE, np.int64)
    for g in range(SIDE_BY_SIDE):
        users[g] = NOBODY
        at[g] = until[g] = 0
    keep = ONE - learning_rate * reg
    # So the last ones, which train alone, have few samples.
    order = np.empty(last - first, np.int64)
    most_samples_first(starts, first, order)
    n_begun = 0
    while True:
        n = starts[last]
        n_left = np.int64(0)
        for g in range(SIDE_BY_SIDE):
            while at[g] == until[g]:
                k = users[g]
                own = g * width
                if k != NOBODY:
                    touched = items[offsets[k] : offsets[k + 1]]
                    deltas = item_deltas[offsets[k] : offsets[k + 1]]
                    quantise_rows(q[g * room :], width, item_rows, touched, ONE, deltas)
                    quantise_change(p[own : own + d], user_rows[k], user_deltas[k])
                    quantise_change(h[own : own + d], dense[:d], dense_deltas[k, :d])
                    quantise_change(b[g : g + 1], dense[d:], dense_deltas[k, d:])
                    users[g] = NOBODY
                if n_begun == len(order):
                    break
                k = order[n_begun]
                n_begun += 1
                users[g] = k
                at[g] = starts[k]
                until[g] = starts[k + 1]
                touched = items[offsets[k] : offsets[k + 1]]
                copy_in(g, user_rows[k], item_rows, touched, dense, width, room, q, p, h, b)
            n = min(n, until[g] - at[g])
            n_left += until[g] - at[g]
        if n_left == 0:
            break
        if n > 0:
            train_side_by_side(
                n,
                at,
                samples,
                targets,
                squared,
                learning_rate,
                keep,
                d,
                width,
                room,
                q,
                p,
                h,
                b,
                products,
            )
            continue
        # Fewer users are left than there are places: they finish one after the other.
        for g in range(SIDE_BY_SIDE):
            train_alone(
                g,
                samples[at[g] : until[g]],
                targets[at[g] : until[g]],
                squared,
                learning_rate,
                keep,
                d,
                width,
                room,
                q,
                p,
                h,
                b,
                products,
            )
            at[g] = until[g]
