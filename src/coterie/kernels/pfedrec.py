"""PFedRec on the clients of a cohort: a score function of one's own, then one's own item rows.

A client works on a compact copy of the item rows it touches, padded with zeros to whole lanes.
Within a batch the derivative of the loss by an item row is a number times the score function, so
that a batch needs one number per sample and no table of gradients.
"""

from __future__ import annotations

import numpy as np
from numba import float32, int8, int32, int64, types

from coterie.kernels.common import Integer, Real, helper, kernel, readonly, sigmoid
from coterie.kernels.lanes import (
    LANES,
    load,
    minus_product,
    plus_product,
    spread,
    store,
    store_sums,
)
from coterie.kernels.quantise import quantise
from coterie.kernels.sums import worst_entry
from coterie.kernels.tower import whole_lanes
from coterie.types import Floats, Ints, Longs

NOTHING = np.float32(0.0)
TOGETHER = 4
"""Logits that are computed side by side."""


@helper
def gather_padded(
    item_rows: Floats,
    items: Ints,
    low: Integer,
    n_rows: Integer,
    width: Integer,
    q: Floats,
    before: Floats,
) -> None:
    """Copy the rows that a client touches twice, `width` numbers each; padding stays as it is."""
    for r in range(n_rows):
        row = item_rows[np.uint64(items[low + r])]
        one = q[r * width : r * width + len(row)]
        other = before[r * width : r * width + len(row)]
        for f in range(len(row)):
            one[f] = row[f]
            other[f] = row[f]


@helper
def predict(w: Floats, width: Integer, q: Floats, places: Ints, logits: Floats) -> None:
    """logits[s] = w . q[places[s]] + b, where b is w[width]. Writes up to 3 numbers more."""
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
    for s in range(len(places)):
        logits[s] += w[width]


@helper
def find_errors(
    w: Floats, width: Integer, q: Floats, places: Ints, targets: Floats, errors: Floats
) -> None:
    """The derivative of every sample's loss by its logit."""
    predict(w, width, q, places, errors)
    for s in range(len(places)):
        errors[s] = sigmoid(errors[s]) - targets[s]


@helper
def update_score_function(
    w: Floats,
    width: Integer,
    q: Floats,
    places: Ints,
    errors: Floats,
    learning_rate: Real,
    gradient: Floats,
) -> None:
    """One step on the mean loss of a batch. Writes w; `gradient` is scratch of the same length."""
    gradient[:] = NOTHING
    for s in range(len(places)):
        at = np.int64(places[s]) * width
        error = spread(errors[s])
        for f in range(0, width, LANES):
            store(gradient, f, plus_product(load(gradient, f), error, load(q, at + f)))
        gradient[width] += errors[s]
    rate = learning_rate / np.float32(len(places))
    for f in range(width + 1):
        w[f] -= rate * gradient[f]


@helper
def update_item_rows(
    w: Floats, width: Integer, q: Floats, places: Ints, errors: Floats, learning_rate: Real
) -> None:
    """One step on the mean loss of a batch. Writes q."""
    rate = learning_rate / np.float32(len(places))
    for s in range(len(places)):
        at = np.int64(places[s]) * width
        move = spread(rate * errors[s])
        for f in range(0, width, LANES):
            store(q, at + f, minus_product(load(q, at + f), move, load(w, f)))


@helper
def score_all(w: Floats, bias: Real, columns: Floats, scores: Floats) -> None:
    """Logits of all items; `columns` is the item table by columns, so that loops are vectorised.

    Four columns at a time, because a score is then read and written a quarter as often.
    """
    d = len(columns)
    whole = d - d % 4
    for i in range(len(scores)):
        scores[i] = bias
    for f in range(0, whole, 4):
        one = columns[f]
        two = columns[f + 1]
        three = columns[f + 2]
        four = columns[f + 3]
        # Outside the loop: the compiler cannot know that writing a score leaves w as it is.
        a = w[f]
        b = w[f + 1]
        c = w[f + 2]
        e = w[f + 3]
        for i in range(len(scores)):
            scores[i] += (a * one[i] + b * two[i]) + (c * three[i] + e * four[i])
    for f in range(whole, d):
        last = columns[f]
        weight = w[f]
        for i in range(len(scores)):
            scores[i] += weight * last[i]


@helper
def quantise_rows(q: Floats, before: Floats, width: Integer, per_unit: Real, deltas: Ints) -> None:
    """The change of every row in fixed point, without the padding."""
    d = deltas.shape[1]
    if width == d:
        # Flat: the compiler vectorises long loops, and not those over short rows.
        flat = deltas.reshape(-1)
        for i in range(len(flat)):
            flat[i] = quantise((q[i] - before[i]) * per_unit)
        return
    for r in range(len(deltas)):
        for f in range(d):
            at = r * width + f
            deltas[r, f] = quantise((q[at] - before[at]) * per_unit)


@kernel(
    types.void(
        readonly(int64),
        readonly(int32),
        readonly(int64),
        readonly(int32),
        readonly(float32),
        readonly(float32, 2),
        readonly(float32, 2),
        readonly(float32, 2),
        float32,
        float32,
        int64,
        float32,
        int64,
        int64,
        float32[:, ::1],
        float32[:, ::1],
        int32[:, ::1],
        int64[:, ::1],
        int8[::1],
    ),
)
def train(
    offsets: Longs,
    items: Ints,
    starts: Longs,
    samples: Ints,
    targets: Floats,
    score_functions: Floats,
    item_rows: Floats,
    columns: Floats,
    learning_rate: float,
    item_learning_rate: float,
    batch_size: int,
    unit: float,
    first: int,
    last: int,
    after: Floats,
    scores: Floats,
    item_deltas: Ints,
    total: Longs,
    faults: np.ndarray,
) -> None:
    """Train clients first..last of a cohort.

    Writes the score functions `after` training, the `scores` of all items by the client's own item
    rows, and the changes of item rows in fixed point, in units of `unit`, a power of two. Where
    `item_deltas` has no rows, changes are added to `total` (items, d) instead, and faults[k] says
    what validation would find in them.
    """
    summing = len(item_deltas) == 0
    d = item_rows.shape[1]
    width = whole_lanes(d)
    most = 0
    for k in range(first, last):
        most = max(most, offsets[k + 1] - offsets[k])
    q = np.zeros(most * width, np.float32)
    before = np.zeros_like(q)
    all_places = np.arange(most).astype(np.int32)
    errors = np.empty(whole_lanes(max(batch_size, most)), np.float32)
    w = np.zeros(width + 1, np.float32)
    gradient = np.empty_like(w)
    scratch = np.empty((most if summing else 0, d), np.int32)
    per_unit = np.float32(1.0) / unit
    for k in range(first, last):
        low = offsets[k]
        n_rows = offsets[k + 1] - low
        gather_padded(item_rows, items, low, n_rows, width, q, before)
        w[:d] = score_functions[k, :d]
        w[width] = score_functions[k, d]
        end: Integer = starts[k + 1]
        for begin in range(starts[k], end, batch_size):
            places = samples[begin : min(begin + batch_size, end)]
            wanted = targets[begin : min(begin + batch_size, end)]
            find_errors(w, width, q, places, wanted, errors)
            update_score_function(w, width, q, places, errors, learning_rate, gradient)
            find_errors(w, width, q, places, wanted, errors)
            update_item_rows(w, width, q, places, errors, item_learning_rate)
        after[k, :d] = w[:d]
        after[k, d] = w[width]
        score_all(w, w[width], columns, scores[k])
        predict(w, width, q, all_places[:n_rows], errors)
        for r in range(n_rows):
            scores[k, items[low + r]] = errors[r]
        deltas = scratch[:n_rows] if summing else item_deltas[low : low + n_rows]
        quantise_rows(q, before, width, per_unit, deltas)
        if summing:
            faults[k] = worst_entry(deltas.reshape(-1))
            for r in range(n_rows):
                out = total[np.uint64(items[low + r])]
                row = deltas[np.uint64(r)]
                for f in range(d):
                    out[f] += row[f]
