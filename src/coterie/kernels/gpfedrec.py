"""GPFedRec on the clients of a cohort: a user row and a network of one's own, and item rows.

The network is a ReLU tower over [p, q] with one output. A client's parameters are one flat vector:
p, then of every layer the weights (in, out) and biases, then the output layer and its bias. Weights
are stored by inputs, so that loops over outputs are vectorised. The part of the first layer that
belongs to p is the same for all samples of a batch, and so is its gradient but for a factor.
"""

from __future__ import annotations

import numpy as np
from numba import float32, int32, int64, types

from coterie.kernels.common import Integer, Real, helper, kernel, readonly, sigmoid, subroutine
from coterie.kernels.quantise import quantise
from coterie.types import Floats, Ints, Longs

NOTHING = np.float32(0.0)
ONE = np.float32(1.0)
TWO = np.float32(2.0)


@subroutine
def first_layer_of_user(theta: Floats, d: Integer, sizes: Longs, base: Floats) -> None:
    """base = W_p p + b of the first layer."""
    out = sizes[1]
    bias = d + sizes[0] * out
    for o in range(out):
        base[o] = theta[bias + o]
    for f in range(d):
        x = theta[f]
        row = d + f * out
        for o in range(out):
            base[o] += x * theta[row + o]


@subroutine
def forward(
    theta: Floats, d: Integer, sizes: Longs, places: Longs, base: Floats, q: Floats, x: Floats
) -> np.float32:
    """The logit of an item row; x gets the activations of all layers, one after the other."""
    out = sizes[1]
    for o in range(out):
        x[o] = base[o]
    at = d + d * out
    for f in range(d):
        value = q[f]
        row = at + f * out
        for o in range(out):
            x[o] += value * theta[row + o]
    for o in range(out):
        x[o] = max(x[o], NOTHING)
    low = 0
    for level in range(1, len(sizes) - 1):
        n = sizes[level]
        m = sizes[level + 1]
        high = low + n
        bias = places[level] + n * m
        for o in range(m):
            x[high + o] = theta[bias + o]
        for i in range(n):
            value = x[low + i]
            row = places[level] + i * m
            for o in range(m):
                x[high + o] += value * theta[row + o]
        for o in range(m):
            x[high + o] = max(x[high + o], NOTHING)
        low = high
    at = places[len(sizes) - 1]
    n = sizes[-1]
    y: np.float32 = theta[at + n]
    for i in range(n):
        y += theta[at + i] * x[low + i]
    return y


@subroutine
def backward(
    theta: Floats,
    d: Integer,
    sizes: Longs,
    places: Longs,
    q: Floats,
    x: Floats,
    error: Real,
    gradient: Floats,
    q_gradient: Floats,
    of_first: Floats,
    g: Floats,
) -> None:
    """Add a sample's gradient. `of_first` sums that of the first layer; g is scratch like x."""
    top = len(sizes) - 1
    low = 0
    for level in range(1, top):
        low += sizes[level]
    at = places[top]
    for i in range(sizes[top]):
        gradient[at + i] += error * x[low + i]
        g[low + i] = error * theta[at + i] if x[low + i] > NOTHING else NOTHING
    gradient[at + sizes[top]] += error
    for level in range(top - 1, 0, -1):
        n = sizes[level]
        m = sizes[level + 1]
        below = low - n
        bias = places[level] + n * m
        for o in range(m):
            gradient[bias + o] += g[low + o]
        for i in range(n):
            value = x[below + i]
            row = places[level] + i * m
            back = NOTHING
            if value > NOTHING:
                for o in range(m):
                    gradient[row + o] += value * g[low + o]
                for o in range(m):
                    back += theta[row + o] * g[low + o]
            g[below + i] = back
        low = below
    out = sizes[1]
    for o in range(out):
        of_first[o] += g[o]
    at = d + d * out
    for f in range(d):
        value = q[f]
        row = at + f * out
        back = NOTHING
        for o in range(out):
            gradient[row + o] += value * g[o]
        for o in range(out):
            back += theta[row + o] * g[o]
        q_gradient[f] += back


@helper
def spread_first(
    theta: Floats, d: Integer, sizes: Longs, of_first: Floats, gradient: Floats
) -> None:
    """The gradient of p, of its part of the first layer and of that layer's bias."""
    out = sizes[1]
    bias = d + sizes[0] * out
    for o in range(out):
        gradient[bias + o] += of_first[o]
    for f in range(d):
        row = d + f * out
        back = NOTHING
        for o in range(out):
            gradient[row + o] += theta[f] * of_first[o]
            back += theta[row + o] * of_first[o]
        gradient[f] += back


@kernel(
    types.void(
        readonly(int64),
        readonly(int32),
        readonly(int64),
        readonly(int32),
        readonly(float32),
        readonly(float32, 2),
        readonly(float32, 2),
        readonly(float32, 3),
        readonly(int64),
        readonly(int64),
        float32,
        float32,
        float32,
        float32,
        int64,
        float32,
        int64,
        int64,
        float32[:, ::1],
        float32[:, ::1],
        int32[:, ::1],
    ),
)
def train(
    offsets: Longs,
    items: Ints,
    starts: Longs,
    samples: Ints,
    targets: Floats,
    networks: Floats,
    item_rows: Floats,
    guides: Floats,
    sizes: Longs,
    places: Longs,
    learning_rate: float,
    user_rate: float,
    item_rate: float,
    pull: float,
    batch_size: int,
    unit: float,
    first: int,
    last: int,
    after: Floats,
    scores: Floats,
    item_deltas: Ints,
) -> None:
    """Train clients first..last of a cohort.

    Every step moves all rows of a client's table by `pull` of the way to its guide, also those
    outside the samples: after n steps they have (1 - pull)^n of the way left. Writes the networks
    `after` training, the `scores` of all items by the client's own rows, and the changes of the
    rows of its samples in fixed point, in units of `unit`.
    """
    n_items, d = item_rows.shape
    most = 0
    for k in range(first, last):
        most = max(most, offsets[k + 1] - offsets[k])
    width = 0
    for level in range(1, len(sizes)):
        width += sizes[level]
    rows = np.empty((most, d), np.float32)
    gradients = np.empty((most, d), np.float32)
    x = np.empty(width, np.float32)
    g = np.empty(width, np.float32)
    base = np.empty(sizes[1], np.float32)
    of_first = np.empty(sizes[1], np.float32)
    gradient = np.empty(networks.shape[1], np.float32)
    row = np.empty(d, np.float32)
    per_unit = ONE / unit
    for k in range(first, last):
        low = offsets[k]
        n_rows = offsets[k + 1] - low
        for r in range(n_rows):
            rows[r] = item_rows[items[low + r]]
        theta = after[k]
        theta[:] = networks[k]
        end: Integer = starts[k + 1]
        left = ONE
        for begin in range(starts[k], end, batch_size):
            stop = min(begin + batch_size, end)
            size = np.float32(stop - begin)
            gradient[:] = NOTHING
            of_first[:] = NOTHING
            gradients[:n_rows] = NOTHING
            first_layer_of_user(theta, d, sizes, base)
            for s in range(begin, stop):
                r = samples[s]
                y = forward(theta, d, sizes, places, base, rows[r], x)
                error = (sigmoid(y) - targets[s]) / size
                backward(
                    theta, d, sizes, places, rows[r], x, error, gradient, gradients[r], of_first, g
                )
            spread_first(theta, d, sizes, of_first, gradient)
            for f in range(d):
                theta[f] -= user_rate * gradient[f]
            for f in range(d, len(theta)):
                theta[f] -= learning_rate * gradient[f]
            for r in range(n_rows):
                guide = guides[k, items[low + r]]
                for f in range(d):
                    rows[r, f] -= item_rate * gradients[r, f] + pull * (rows[r, f] - guide[f])
            left *= ONE - pull
        first_layer_of_user(theta, d, sizes, base)
        for i in range(n_items):
            for f in range(d):
                row[f] = guides[k, i, f] + left * (item_rows[i, f] - guides[k, i, f])
            scores[k, i] = forward(theta, d, sizes, places, base, row, x)
        for r in range(n_rows):
            item = items[low + r]
            scores[k, item] = forward(theta, d, sizes, places, base, rows[r], x)
            for f in range(d):
                item_deltas[low + r, f] = quantise((rows[r, f] - item_rows[item, f]) * per_unit)
