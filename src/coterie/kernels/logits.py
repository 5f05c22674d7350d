"""The samples of a batch whose logits are the products of their rows with one vector.

A client works on a compact copy of the rows it touches, flat, each padded with zeros to whole lanes
(`width`). The vector w has the bias behind it, in w[width]. Within a batch the derivative of the
loss by a row is a number times w, so that a batch needs one number per sample and no table of
gradients.
"""

from __future__ import annotations

import numpy as np

from coterie.kernels.common import Integer, Real, helper
from coterie.kernels.lanes import (
    LANES,
    add_integers,
    difference,
    fixed_point,
    load,
    mark_beyond,
    plus_product,
    product,
    sigmoids,
    spread,
    store,
    store_integers,
    store_sums,
    where_positive,
)
from coterie.kernels.quantise import LIMIT, SCALE32, quantise
from coterie.kernels.sums import FINE, OUT_OF_RANGE
from coterie.types import TOO_LARGE, Floats, Ints, Longs

NOTHING = np.float32(0.0)
ONE = np.float32(1.0)
TOGETHER = 4
"""Samples that are computed side by side."""


@helper
def gather_padded(table: Floats, items: Ints, width: Integer, q: Floats) -> None:
    """Copy the rows that a client touches, and the zeros behind each.

    The padding is written again for every client: one that diverges leaves NaN there.
    """
    d = table.shape[1]
    whole = d - d % LANES
    flat = table.reshape(-1)
    # The last lanes of a row are followed by those of the next one, which this mask leaves out.
    own_lanes = np.zeros(LANES, np.float32)
    own_lanes[: d - whole] = ONE
    mask = load(own_lanes, 0)
    for r in range(len(items)):
        row = np.int64(items[r]) * d
        for f in range(0, whole, LANES):
            store(q, r * width + f, load(flat, row + f))
        if whole == d:
            continue
        if row + whole + LANES <= len(flat):
            store(q, r * width + whole, where_positive(mask, load(flat, row + whole)))
            continue
        for f in range(whole, d):
            q[r * width + f] = flat[row + f]
        for f in range(d, width):
            q[r * width + f] = NOTHING


@helper
def predict(w: Floats, width: Integer, q: Floats, places: Ints, logits: Floats) -> None:
    """logits[s] = w . q[places[s]] + b, where b is w[width]. Writes up to 7 numbers more."""
    last = len(places) - 1
    for s in range(0, len(places), TOGETHER):
        a = b = c = d = spread(NOTHING)
        one = np.int64(places[s]) * width
        two = np.int64(places[min(s + 1, last)]) * width
        three = np.int64(places[min(s + 2, last)]) * width
        four = np.int64(places[min(s + 3, last)]) * width
        for f in range(0, width, LANES):
            weights = load(w, f)
            a = plus_product(a, weights, load(q, one + f))
            b = plus_product(b, weights, load(q, two + f))
            c = plus_product(c, weights, load(q, three + f))
            d = plus_product(d, weights, load(q, four + f))
        store_sums(logits, s, a, b, c, d)
    bias = spread(w[width])
    for s in range(0, len(places), LANES):
        store(logits, s, plus_product(bias, spread(ONE), load(logits, s)))


@helper
def find_errors(
    w: Floats,
    width: Integer,
    q: Floats,
    places: Ints,
    targets: Floats,
    squared: bool,
    errors: Floats,
) -> None:
    """The derivative of every sample's loss by its logit. Writes up to 7 numbers more.

    The loss is the cross-entropy, or half the squared error.
    """
    predict(w, width, q, places, errors)
    if not squared:
        for s in range(0, len(places), LANES):
            store(errors, s, sigmoids(load(errors, s)))
    for s in range(len(places)):
        errors[np.uint64(s)] -= targets[np.uint64(s)]


@helper
def sum_gradients(
    width: Integer, q: Floats, places: Ints, errors: Floats, gradient: Floats
) -> None:
    """The gradient by w of the sum of a batch's losses: sum of e_s q_s, and of e_s behind it."""
    gradient[:] = NOTHING
    whole = len(places) // TOGETHER * TOGETHER
    for s in range(0, whole, TOGETHER):
        # Several samples for every load and store of the gradient.
        one = np.int64(places[s]) * width
        two = np.int64(places[s + 1]) * width
        three = np.int64(places[s + 2]) * width
        four = np.int64(places[s + 3]) * width
        a = spread(errors[s])
        b = spread(errors[s + 1])
        c = spread(errors[s + 2])
        d = spread(errors[s + 3])
        for f in range(0, width, LANES):
            g = plus_product(load(gradient, f), a, load(q, one + f))
            g = plus_product(g, b, load(q, two + f))
            g = plus_product(g, c, load(q, three + f))
            store(gradient, f, plus_product(g, d, load(q, four + f)))
    for s in range(whole, len(places)):
        at = np.int64(places[s]) * width
        error = spread(errors[s])
        for f in range(0, width, LANES):
            store(gradient, f, plus_product(load(gradient, f), error, load(q, at + f)))
    for s in range(len(places)):
        gradient[width] += errors[s]


@helper
def quantise_rows(
    q: Floats, width: Integer, table: Floats, items: Ints, per_unit: Real, deltas: Ints
) -> None:
    """The change of every row in fixed point, in units of 1 / `per_unit`, without the padding."""
    d = table.shape[1]
    whole = d - d % LANES
    flat = table.reshape(-1)
    out = deltas.reshape(-1)
    scale = spread(per_unit * SCALE32)
    for r in range(len(items)):
        row = np.int64(items[r]) * d
        for f in range(0, whole, LANES):
            change = difference(load(q, r * width + f), load(flat, row + f))
            store_integers(out, r * d + f, fixed_point(product(change, scale)))
        at = row + whole
        into = r * d + whole
        if whole < d and max(at - len(flat), into - len(out)) + LANES <= 0:
            # The last of these lanes are noise, which the next rows overwrite.
            change = difference(load(q, r * width + whole), load(flat, at))
            store_integers(out, into, fixed_point(product(change, scale)))
            continue
        for f in range(whole, d):
            out[r * d + f] = quantise((q[r * width + f] - flat[row + f]) * per_unit)


@helper
def add_changes(
    q: Floats, width: Integer, table: Floats, items: Ints, per_unit: Real, n: np.int32, total: Longs
) -> int:
    """total += n times the change of every row in fixed point. Returns what validation would find.

    It is what `quantise_rows`, the server's sum and its validation do, in one pass.
    """
    d = table.shape[1]
    whole = d - d % LANES
    flat = table.reshape(-1)
    sums = total.reshape(-1)
    scale = spread(per_unit * SCALE32)
    limit = spread(LIMIT)
    marks = spread(NOTHING)
    refused = False
    for r in range(len(items)):
        row = np.int64(items[r]) * d
        for f in range(0, whole, LANES):
            change = difference(load(q, r * width + f), load(flat, row + f))
            change = fixed_point(product(change, scale))
            marks = mark_beyond(marks, change, limit)
            add_integers(sums, row + f, change, n)
        for f in range(whole, d):
            entry = quantise((q[r * width + f] - flat[row + f]) * per_unit)
            refused = refused or bool(abs(np.int64(entry)) >= TOO_LARGE)
            sums[row + f] += np.int64(n) * entry
    store(q, 0, marks)
    for f in range(LANES):
        refused = refused or bool(q[f] > NOTHING)
    return OUT_OF_RANGE if refused else FINE
