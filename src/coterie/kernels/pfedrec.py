"""PFedRec on the clients of a cohort: a score function of one's own, then one's own item rows."""

from __future__ import annotations

import numpy as np
from numba import float32, int8, int32, int64, types

from coterie.kernels.common import Integer, Real, helper, kernel, readonly
from coterie.kernels.lanes import (
    LANES,
    load,
    minus_product,
    plus_product,
    spread,
    store,
)
from coterie.kernels.logits import (
    NOTHING,
    ONE,
    add_changes,
    find_errors,
    gather_padded,
    predict,
    quantise_rows,
    sum_gradients,
)
from coterie.kernels.tower import whole_lanes
from coterie.types import Floats, Ints, Longs

ONE_EACH = np.int32(1)
BLOCK = 4 * LANES
"""Items that are scored side by side: their sums stay in registers."""


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
def score_all(
    w: Floats, bias: Real, d: Integer, blocks: Floats, last: Floats, scores: Floats
) -> None:
    """Logits of all items. `blocks` are the item rows as (items / BLOCK, d, BLOCK), flat.

    `last` is scratch for the last block, which may be longer than the scores that are left.
    """
    n = len(scores)
    for i in range(0, n, BLOCK):
        whole = i + BLOCK <= n
        out = scores[i : i + BLOCK] if whole else last
        one = two = three = four = spread(bias)
        at = i * d
        for f in range(d):
            weight = spread(w[f])
            one = plus_product(one, weight, load(blocks, at))
            two = plus_product(two, weight, load(blocks, at + LANES))
            three = plus_product(three, weight, load(blocks, at + 2 * LANES))
            four = plus_product(four, weight, load(blocks, at + 3 * LANES))
            at += BLOCK
        store(out, 0, one)
        store(out, LANES, two)
        store(out, 2 * LANES, three)
        store(out, 3 * LANES, four)
        if not whole:
            scores[i:] = last[: n - i]


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
    blocks: Floats,
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

    `blocks` are the item rows once more, as `score_all` needs them. Writes the score functions
    `after` training, the `scores` of all items by the client's own item rows, and the changes of
    item rows in fixed point, in units of `unit`, a power of two. Where `total` has rows, changes
    are added to it instead, and faults[k] says what validation would find in them.
    """
    d = item_rows.shape[1]
    width = whole_lanes(d)
    most = 0
    for k in range(first, last):
        most = max(most, offsets[k + 1] - offsets[k])
    q = np.empty((most + 1) * width, np.float32)
    all_places = np.arange(most).astype(np.int32)
    errors = np.empty(max(batch_size, most) + LANES, np.float32)
    w = np.empty(width + 1, np.float32)
    gradient = np.empty_like(w)
    last_block = np.empty(BLOCK, np.float32)
    per_unit = ONE / unit
    for k in range(first, last):
        own = items[offsets[k] : offsets[k + 1]]
        gather_padded(item_rows, own, width, q)
        w[:] = NOTHING
        w[:d] = score_functions[k, :d]
        w[width] = score_functions[k, d]
        end: Integer = starts[k + 1]
        for begin in range(starts[k], end, batch_size):
            places = samples[begin : min(begin + batch_size, end)]
            wanted = targets[begin : min(begin + batch_size, end)]
            find_errors(w, width, q, places, wanted, False, errors)
            sum_gradients(width, q, places, errors, gradient)
            rate = learning_rate / np.float32(len(places))
            for f in range(width + 1):
                w[f] -= rate * gradient[f]
            find_errors(w, width, q, places, wanted, False, errors)
            update_item_rows(w, width, q, places, errors, item_learning_rate)
        after[k, :d] = w[:d]
        after[k, d] = w[width]
        score_all(w, w[width], d, blocks, last_block, scores[k])
        predict(w, width, q, all_places[: len(own)], errors)
        for r in range(len(own)):
            scores[k, own[r]] = errors[r]
        if len(total):
            faults[k] = add_changes(q, width, item_rows, own, per_unit, ONE_EACH, total)
        else:
            deltas = item_deltas[offsets[k] : offsets[k + 1]]
            quantise_rows(q, width, item_rows, own, per_unit, deltas)
