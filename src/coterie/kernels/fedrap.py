"""FedRAP on the clients of a cohort: a score function, a personal and a global item table.

A client works on compact copies of the rows it touches. The logit of a sample depends on its item
alone, so that a batch is a number of samples and of positives for every row: one step costs as much
as the rows, not the samples.
"""

from __future__ import annotations

import math

import numpy as np
from numba import float32, int32, int64, types

from coterie.kernels.common import Integer, Real, helper, kernel, readonly
from coterie.kernels.quantise import quantise
from coterie.types import Floats, Ints, Longs

NOTHING = np.float32(0.0)
ONE = np.float32(1.0)
TWO = np.float32(2.0)


@helper
def count_samples(
    places: Ints, targets: Floats, n_rows: Integer, counts: Floats, positives: Floats
) -> None:
    """How many samples of a batch are of every row, and how many of those are positives."""
    counts[:n_rows] = NOTHING
    positives[:n_rows] = NOTHING
    for s in range(len(places)):
        counts[places[s]] += ONE
        positives[places[s]] += targets[s]


@helper
def measure(w: Floats, D: Floats, C: Floats) -> tuple[np.float32, np.float32, np.float32]:
    """Of one row: its logit without bias, |D - C|^2 and |C|_1.

    Two sums of each, because one sum would wait for every addition before the next.
    """
    d = len(D)
    even = d - d % 2
    x = NOTHING
    square = NOTHING
    length = NOTHING
    x_odd = NOTHING
    square_odd = NOTHING
    length_odd = NOTHING
    for i in range(0, even, 2):
        f = np.uint64(i)
        g = np.uint64(i + 1)
        apart = D[f] - C[f]
        apart_odd = D[g] - C[g]
        x += w[f] * (D[f] + C[f])
        x_odd += w[g] * (D[g] + C[g])
        square += apart * apart
        square_odd += apart_odd * apart_odd
        length += abs(C[f])
        length_odd += abs(C[g])
    for i in range(even, d):
        apart = D[i] - C[i]
        x += w[i] * (D[i] + C[i])
        square += apart * apart
        length += abs(C[i])
    return x + x_odd, square + square_odd, length + length_odd


@helper
def step(
    w: Floats,
    D: Floats,
    C: Floats,
    counts: Floats,
    positives: Floats,
    size: Real,
    learning_rate: Real,
    item_rate: Real,
    reg: Real,
    apart_weight: Real,
    sparse_weight: Real,
    gradient: Floats,
) -> np.float32:
    """One step on a batch of `size` samples. Writes w, D and C; returns the loss before it.

    The loss is the mean of the cross-entropy, minus `apart_weight` times the mean of (D - C)^2,
    plus `sparse_weight` times the mean of |C|. All means are over samples.
    """
    d = D.shape[1]
    entries = size * np.float32(d)
    keep = ONE - item_rate * reg
    push = TWO * apart_weight / entries
    shrink = sparse_weight / entries
    bias = w[d]
    gradient[:] = NOTHING
    loss: np.float32 = NOTHING
    for r in range(len(D)):
        own = D[r]
        shared = C[r]
        n: np.float32 = counts[r]
        if n == NOTHING:
            for f in range(d):
                own[f] *= keep
                shared[f] *= keep
            continue
        logit, square, length = measure(w, own, shared)
        x: np.float32 = np.float32(logit + bias)
        # With e = exp(-|x|): the cross-entropy is log(1 + e), plus |x| where the sign is wrong.
        e = np.float32(math.exp(-abs(x)))
        wrong = n - positives[r] if x > NOTHING else positives[r]
        loss += n * np.float32(math.log1p(e)) + wrong * abs(x)
        loss += n * (sparse_weight * length - apart_weight * square) / np.float32(d)
        predicted = (ONE if x >= NOTHING else e) / (ONE + e)
        error = (n * predicted - positives[r]) / size
        for f in range(d):
            gradient[f] += error * (own[f] + shared[f])
        gradient[d] += error
        move = item_rate * error
        away = item_rate * n * push
        smaller = item_rate * n * shrink
        for f in range(d):
            c = shared[f]
            apart = away * (own[f] - c)
            sign = ONE if c > NOTHING else (-ONE if c < NOTHING else NOTHING)
            own[f] = keep * own[f] - move * w[f] + apart
            shared[f] = keep * c - move * w[f] - apart - smaller * sign
    for f in range(d + 1):
        w[f] -= learning_rate * (gradient[f] + reg * w[f])
    return loss / size


@kernel(
    types.void(
        readonly(int64),
        readonly(int32),
        readonly(int64),
        readonly(int32),
        readonly(float32),
        readonly(float32, 2),
        readonly(float32, 3),
        readonly(float32, 2),
        float32,
        float32,
        float32,
        float32,
        float32,
        float32,
        int64,
        int64,
        float32,
        float32,
        int64,
        int64,
        float32[:, ::1],
        float32[:, :, ::1],
        float32[:, ::1],
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
    score_functions: Floats,
    personal: Floats,
    item_rows: Floats,
    learning_rate: float,
    item_learning_rate: float,
    decay: float,
    reg: float,
    apart_weight: float,
    sparse_weight: float,
    epochs: int,
    batch_size: int,
    tolerance: float,
    unit: float,
    first: int,
    last: int,
    functions_after: Floats,
    personal_after: Floats,
    own_scores: Floats,
    item_deltas: Ints,
    dense_deltas: Ints,
) -> None:
    """Train clients first..last of a cohort, for `epochs` passes or until the loss settles.

    Regularisation shrinks rows outside the samples, too: all by the same factor, which a client
    sends as one number (`dense_deltas`, minus one). Changes of item rows are those beyond it, in
    units of `unit`. `own_scores` are the personal table's part of all logits, bias included.
    """
    n_items, d = item_rows.shape
    most = 0
    for k in range(first, last):
        most = max(most, offsets[k + 1] - offsets[k])
    all_D = np.empty((most, d), np.float32)
    all_C = np.empty((most, d), np.float32)
    counts = np.empty(most, np.float32)
    positives = np.empty(most, np.float32)
    gradient = np.empty(d + 1, np.float32)
    per_unit = ONE / unit
    for k in range(first, last):
        low = offsets[k]
        n_rows = offsets[k + 1] - low
        D = all_D[:n_rows]
        C = all_C[:n_rows]
        for r in range(n_rows):
            D[r] = personal[k, items[low + r]]
            C[r] = item_rows[items[low + r]]
        w = functions_after[k]
        w[:] = score_functions[k]
        end: Integer = starts[k + 1]
        total = np.float32(end - starts[k])
        rate = learning_rate
        item_rate = item_learning_rate
        kept = ONE
        before = np.float32(np.inf)
        for _ in range(epochs):
            loss = NOTHING
            for begin in range(starts[k], end, batch_size):
                stop = min(begin + batch_size, end)
                size = np.float32(stop - begin)
                count_samples(samples[begin:stop], targets[begin:stop], n_rows, counts, positives)
                loss += size * step(
                    w,
                    D,
                    C,
                    counts,
                    positives,
                    size,
                    rate,
                    item_rate,
                    reg,
                    apart_weight,
                    sparse_weight,
                    gradient,
                )
                kept *= ONE - item_rate * reg
                rate *= decay
                item_rate *= decay
            loss /= total
            if abs(loss - before) < tolerance * abs(before):
                break
            before = loss
        for r in range(n_rows):
            shared = item_rows[items[low + r]]
            for f in range(d):
                item_deltas[low + r, f] = quantise((C[r, f] - kept * shared[f]) * per_unit)
        dense_deltas[k, 0] = quantise(kept - ONE)
        table = personal_after[k]
        for i in range(n_items):
            for f in range(d):
                table[i, f] = kept * personal[k, i, f]
        for r in range(n_rows):
            table[items[low + r]] = D[r]
        for i in range(n_items):
            x = NOTHING
            for f in range(d):
                x += w[f] * table[i, f]
            own_scores[k, i] = x + w[d]
