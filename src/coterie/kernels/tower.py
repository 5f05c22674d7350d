"""NeuMF, one sample: y = h . [relu tower of [p_mlp, q_mlp], p_gmf * q_gmf] + b, and one SGD step on all of it.

A row is the GMF part, then the MLP part. `w` is a working copy of the dense parameters in which every matrix is filled
up with zeros to whole lanes: weights (out, in) and biases of layer after layer, then the output layer (tower, GMF, bias).
What fills up is never seen: its activations are zero, so nothing ever moves it.

Rows of a weight matrix whose neuron is off take no part in the way back: about half of them.
"""

from __future__ import annotations

import numpy as np

from coterie.kernels.common import Scalar, helper, sigmoid
from coterie.kernels.lanes import (
    LANES,
    load,
    minus_product,
    plus_product,
    spread,
    store,
    store_sums,
    where_positive,
)
from coterie.types import Floats, Longs

NOTHING = np.float32(0.0)
ONE = np.float32(1.0)
place = (
    np.uint64
)  # unsigned, so no index counts from the end and none is checked for it: 9 % of the time


@helper
def whole_lanes(n: Scalar) -> Scalar:
    return (n + LANES - 1) // LANES * LANES


@helper
def make_room(sizes: Longs, rooms: Longs, places: Longs) -> Scalar:
    """Fill in the sizes in whole lanes, and where in `w` each dense parameter stands; returns the length of `w`."""
    for level in range(len(sizes)):
        rooms[level] = whole_lanes(sizes[level])
    at = j = 0
    for level in range(len(sizes) - 1):
        n = sizes[level]
        m = sizes[level + 1]
        for o in range(m):
            for i in range(n):
                places[j] = at + o * rooms[level] + i
                j += 1
        at += rooms[level] * rooms[level + 1]
        for o in range(m):
            places[j] = at + o
            j += 1
        at += rooms[level + 1]
    for o in range(sizes[-1]):
        places[j + o] = at + o
    j = j + sizes[-1]
    at = at + rooms[-1]
    for f in range(j, len(places)):  # the GMF part and the bias
        places[f] = at + f - j
    return at + len(places) - j


@helper
def forward(
    w: Floats, at: Scalar, n: Scalar, m: Scalar, x: Floats, here: Scalar, above: Scalar
) -> None:
    """x[above : above + m] = W x[here : here + n], four rows of W at a time."""
    for o in range(0, m, 4):
        row = at + o * n
        a = b = c = d = spread(NOTHING)
        for i in range(0, n, LANES):
            xi = load(x, here + i)
            a = plus_product(a, load(w, row + i), xi)
            b = plus_product(b, load(w, row + n + i), xi)
            c = plus_product(c, load(w, row + 2 * n + i), xi)
            d = plus_product(d, load(w, row + 3 * n + i), xi)
        store_sums(x, above + o, a, b, c, d)


@helper
def relu(w: Floats, bias: Scalar, m: Scalar, x: Floats, above: Scalar) -> None:
    """x = max(x + b, 0)"""
    for o in range(0, m, LANES):
        y = plus_product(load(x, above + o), spread(ONE), load(w, bias + o))
        store(x, above + o, where_positive(y, y))


@helper
def list_on(x: Floats, above: Scalar, m: Scalar, on: Longs) -> Scalar:
    """Which neurons are on, and how many. Every number is written and the next one overwrites those that are off: a
    branch would be guessed wrong half of the time."""
    count = 0
    for o in range(m):
        on[place(above + count)] = o
        count += x[place(above + o)] > NOTHING
    return count


@helper
def back_through_relu(
    w: Floats, bias: Scalar, m: Scalar, x: Floats, g: Floats, above: Scalar
) -> None:
    """Neurons that are off pass nothing on; the biases move by what is left."""
    for o in range(0, m, LANES):
        left = where_positive(load(x, above + o), load(g, above + o))
        store(g, above + o, left)
        store(w, bias + o, minus_product(load(w, bias + o), spread(ONE), left))


@helper
def backward(
    w: Floats,
    at: Scalar,
    n: Scalar,
    x: Floats,
    g: Floats,
    here: Scalar,
    above: Scalar,
    on: Longs,
    count: Scalar,
) -> None:
    """g[here : here + n] = W^T g[above:], and W moves by g x^T."""
    for i in range(0, n, LANES):
        xi = load(x, here + i)
        gi = spread(NOTHING)
        for a in range(above, above + count):
            o = on[place(a)]
            row = at + o * n + i
            gradient = spread(g[place(above + o)])
            weights = load(w, row)
            gi = plus_product(gi, gradient, weights)
            store(w, row, minus_product(weights, gradient, xi))
        store(g, here + i, gi)


@helper
def step_output(
    p: Floats,
    u: Scalar,
    q: Floats,
    i: Scalar,
    d: Scalar,
    w: Floats,
    at: Scalar,
    m: Scalar,
    x: Floats,
    g: Floats,
    top: Scalar,
    target: Scalar,
    squared: Scalar,
    rate: Scalar,
    keep: Scalar,
) -> None:
    """Predict, and move the output layer and the GMF parts; g[top:] becomes the rate times the loss's slope by the tower."""
    gmf = at + m
    y = w[place(gmf + d)]
    for f in range(d):
        y += w[place(gmf + f)] * p[place(u + f)] * q[place(i + f)]
    for o in range(m):
        y += w[place(at + o)] * x[place(top + o)]
    move = rate * ((y if squared else sigmoid(y)) - target)
    for o in range(m):
        h = w[place(at + o)]
        g[place(top + o)] = move * h
        w[place(at + o)] = h - move * x[place(top + o)]
    for f in range(d):
        pf = p[place(u + f)]
        qf = q[place(i + f)]
        h = w[place(gmf + f)]
        p[place(u + f)] = keep * pf - move * h * qf
        q[place(i + f)] = keep * qf - move * h * pf
        w[place(gmf + f)] = h - move * pf * qf
    w[place(gmf + d)] -= move


@helper
def step(
    p: Floats,
    u: Scalar,
    q: Floats,
    i: Scalar,
    d: Scalar,
    w: Floats,
    rooms: Longs,
    x: Floats,
    g: Floats,
    on: Longs,
    counts: Longs,
    target: Scalar,
    squared: Scalar,
    rate: Scalar,
    keep: Scalar,
) -> None:
    """One SGD step of the user row p[u : u + 2d] and the item row q[i : i + 2d], both in flat arrays, and of `w`.

    Scratch: x are the activations of all levels one after the other, g the slopes by them, on and counts who is on.
    """
    for f in range(d):
        x[f] = p[place(u + d + f)]
        x[place(d + f)] = q[place(i + d + f)]
    at = here = 0
    for level in range(len(rooms) - 1):
        n = rooms[level]
        m = rooms[level + 1]
        forward(w, at, n, m, x, here, here + n)
        relu(w, at + n * m, m, x, here + n)
        counts[level] = list_on(x, here + n, m, on)
        at = at + n * m + m
        here = here + n
    step_output(p, u, q, i, d, w, at, rooms[-1], x, g, here, target, squared, rate, keep)
    for level in range(len(rooms) - 2, -1, -1):
        n = rooms[level]
        m = rooms[level + 1]
        at = at - n * m - m
        above = here
        here = here - n
        back_through_relu(w, at + n * m, m, x, g, above)
        backward(w, at, n, x, g, here, above, on, counts[level])
    for f in range(d):
        p[place(u + d + f)] = keep * p[place(u + d + f)] - g[f]
        q[place(i + d + f)] = keep * q[place(i + d + f)] - g[place(d + f)]
