"""One SGD step of NeuMF on one sample: y = h . [tower([p_mlp, q_mlp]), p_gmf * q_gmf] + b.

The tower is a ReLU network. A user or item row holds the GMF part (d,), then the MLP part (d,).
`w` is a flat working copy of the dense parameters: weights (out, in) and biases of each layer from
below, then the output layer (tower, GMF, bias). Its layers are padded with zeros to whole lanes,
so that no loop needs a remainder. The padding has zero activations and zero gradients, so it
stays zero.

Back-propagation skips the weight rows of inactive neurons, which are about half of them.
"""

from __future__ import annotations

import numpy as np

from coterie.kernels.common import Integer, Real, helper, sigmoid
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
# Numba tests whether a signed index is negative; an unsigned one saves 9 % of the time.
unsigned = np.uint64


@helper
def whole_lanes(n: Integer) -> Integer:
    """n rounded up to a multiple of LANES."""
    return (n + LANES - 1) // LANES * LANES


@helper
def lay_out(sizes: Longs, padded: Longs, places: Longs) -> Integer:
    """Compute the layout of `w` for a tower of these layer sizes. Returns the length of `w`.

    Writes the padded layer sizes, and the position in `w` of every dense parameter.
    """
    for level in range(len(sizes)):
        padded[level] = whole_lanes(sizes[level])
    at = j = 0
    for level in range(len(sizes) - 1):
        n = sizes[level]
        m = sizes[level + 1]
        for o in range(m):
            for i in range(n):
                places[j] = at + o * padded[level] + i
                j += 1
        at += padded[level] * padded[level + 1]
        for o in range(m):
            places[j] = at + o
            j += 1
        at += padded[level + 1]
    for o in range(sizes[-1]):
        places[j + o] = at + o
    j = j + sizes[-1]
    at = at + padded[-1]
    # The GMF part of the output layer and the bias.
    for f in range(j, len(places)):
        places[f] = at + f - j
    length: Integer = at + len(places) - j
    return length


@helper
def forward(
    w: Floats, at: Integer, n: Integer, m: Integer, x: Floats, below: Integer, above: Integer
) -> None:
    """x[above : above + m] = W x[below : below + n], where W is (m, n) and starts at w[at].

    Four rows of W at a time share each load of x, and their sums are reduced together.
    """
    for o in range(0, m, 4):
        row = at + o * n
        a = b = c = d = spread(NOTHING)
        for i in range(0, n, LANES):
            xi = load(x, below + i)
            a = plus_product(a, load(w, row + i), xi)
            b = plus_product(b, load(w, row + n + i), xi)
            c = plus_product(c, load(w, row + 2 * n + i), xi)
            d = plus_product(d, load(w, row + 3 * n + i), xi)
        store_sums(x, above + o, a, b, c, d)


@helper
def relu(w: Floats, bias: Integer, m: Integer, x: Floats, above: Integer) -> None:
    """x = max(x + b, 0) for x[above : above + m] and b = w[bias : bias + m]."""
    for o in range(0, m, LANES):
        y = plus_product(load(x, above + o), spread(ONE), load(w, bias + o))
        store(x, above + o, where_positive(y, y))


@helper
def list_active(x: Floats, above: Integer, m: Integer, active: Longs) -> Integer:
    """List the active neurons of a layer. Returns their number.

    Every index is written, and the next one overwrites it if the neuron is inactive: the processor
    would mispredict a branch half of the time.
    """
    count = 0
    for o in range(m):
        active[unsigned(above + count)] = o
        count += x[unsigned(above + o)] > NOTHING
    return count


@helper
def back_through_relu(
    w: Floats, bias: Integer, m: Integer, x: Floats, g: Floats, above: Integer
) -> None:
    """Zero the gradients of inactive neurons, then update the biases."""
    for o in range(0, m, LANES):
        left = where_positive(load(x, above + o), load(g, above + o))
        store(g, above + o, left)
        store(w, bias + o, minus_product(load(w, bias + o), spread(ONE), left))


@helper
def backward(
    w: Floats,
    at: Integer,
    n: Integer,
    x: Floats,
    g: Floats,
    below: Integer,
    above: Integer,
    active: Longs,
    count: Integer,
) -> None:
    """g[below : below + n] = W^T g[above:], then W -= g x^T; only rows of active neurons count.

    `g` already holds the learning rate.
    """
    for i in range(0, n, LANES):
        xi = load(x, below + i)
        gi = spread(NOTHING)
        for a in range(above, above + count):
            o = active[unsigned(a)]
            row = at + o * n + i
            gradient = spread(g[unsigned(above + o)])
            weights = load(w, row)
            gi = plus_product(gi, gradient, weights)
            store(w, row, minus_product(weights, gradient, xi))
        store(g, below + i, gi)


@helper
def step_output(
    p: Floats,
    u: Integer,
    q: Floats,
    i: Integer,
    d: Integer,
    w: Floats,
    at: Integer,
    m: Integer,
    x: Floats,
    g: Floats,
    top: Integer,
    target: Real,
    squared: bool,
    learning_rate: Real,
    keep: Real,
) -> None:
    """Predict, then update the output layer and the GMF parts of both rows.

    Writes g[top:]: the learning rate times the gradient of the loss by the tower's activations.
    """
    gmf = at + m
    y = w[unsigned(gmf + d)]
    for f in range(d):
        y += w[unsigned(gmf + f)] * p[unsigned(u + f)] * q[unsigned(i + f)]
    for o in range(m):
        y += w[unsigned(at + o)] * x[unsigned(top + o)]
    move = learning_rate * ((y if squared else sigmoid(y)) - target)
    for o in range(m):
        h = w[unsigned(at + o)]
        g[unsigned(top + o)] = move * h
        w[unsigned(at + o)] = h - move * x[unsigned(top + o)]
    for f in range(d):
        pf = p[unsigned(u + f)]
        qf = q[unsigned(i + f)]
        h = w[unsigned(gmf + f)]
        p[unsigned(u + f)] = keep * pf - move * h * qf
        q[unsigned(i + f)] = keep * qf - move * h * pf
        w[unsigned(gmf + f)] = h - move * pf * qf
    w[unsigned(gmf + d)] -= move


@helper
def step(
    p: Floats,
    u: Integer,
    q: Floats,
    i: Integer,
    d: Integer,
    w: Floats,
    padded: Longs,
    x: Floats,
    g: Floats,
    active: Longs,
    counts: Longs,
    target: Real,
    squared: bool,
    learning_rate: Real,
    keep: Real,
) -> None:
    """One SGD step on the user row p[u : u + 2d], the item row q[i : i + 2d] and `w`.

    `padded` are the layer sizes in whole lanes. Scratch: `x` are the activations of all layers, one
    after the other, `g` the gradients by them, `active` and `counts` the active neurons per layer.
    `keep` is 1 - learning rate * reg.
    """
    for f in range(d):
        x[f] = p[unsigned(u + d + f)]
        x[unsigned(d + f)] = q[unsigned(i + d + f)]
    at = below = 0
    for level in range(len(padded) - 1):
        n = padded[level]
        m = padded[level + 1]
        forward(w, at, n, m, x, below, below + n)
        relu(w, at + n * m, m, x, below + n)
        counts[level] = list_active(x, below + n, m, active)
        at = at + n * m + m
        below = below + n
    step_output(p, u, q, i, d, w, at, padded[-1], x, g, below, target, squared, learning_rate, keep)
    for level in range(len(padded) - 2, -1, -1):
        n = padded[level]
        m = padded[level + 1]
        at = at - n * m - m
        above = below
        below = below - n
        back_through_relu(w, at + n * m, m, x, g, above)
        backward(w, at, n, x, g, below, above, active, counts[level])
    for f in range(d):
        p[unsigned(u + d + f)] = keep * p[unsigned(u + d + f)] - g[f]
        q[unsigned(i + d + f)] = keep * q[unsigned(i + d + f)] - g[unsigned(d + f)]
