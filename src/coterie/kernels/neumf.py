"""NeuMF by SGD, one sample at a time.

Implicit feedback: every positive once, each with fresh negatives (BCE). Explicit feedback: every
rating once (MSE).
"""

from __future__ import annotations

import numpy as np
from numba import float32, int32, int64, types, uint64

from coterie.kernels.common import (
    Integer,
    Real,
    draw_unseen,
    kernel,
    random_word,
    readonly,
    subroutine,
)
from coterie.kernels.tower import lay_out, step
from coterie.types import Floats, Ints, Longs


@subroutine
def train_samples(
    order: Longs,
    users: Ints,
    items: Ints,
    ratings: Floats,
    seen_offsets: Longs,
    seen: Ints,
    P: Floats,
    Q: Floats,
    width: int,
    w: Floats,
    padded: Longs,
    x: Floats,
    g: Floats,
    active: Longs,
    counts: Longs,
    negatives: int,
    learning_rate: Real,
    keep: Real,
    key: np.uint64,
) -> None:
    """Visit the samples in this order; P and Q are flat.

    This is a separate function without slices, because slicing in the loop would make Numba count
    references there.
    """
    n_items = len(Q) // width
    rated = len(ratings) > 0
    for t in range(len(order)):
        u = np.int64(users[order[t]])
        for s in range(1 if rated else 1 + negatives):
            i: Integer = np.int64(items[order[t]])
            target = ratings[order[t]] if rated else np.float32(1.0)
            if s > 0:
                word = random_word(key, t * negatives + s - 1)
                i = draw_unseen(u, seen_offsets, seen, n_items, word)
                target = np.float32(0.0)
            # i is -1 if the user has seen every item, so that there is no negative.
            if i >= 0:
                step(
                    P,
                    u * width,
                    Q,
                    i * width,
                    width // 2,
                    w,
                    padded,
                    x,
                    g,
                    active,
                    counts,
                    target,
                    rated,
                    learning_rate,
                    keep,
                )


@kernel(
    types.void(
        readonly(int64),
        readonly(int32),
        readonly(int32),
        readonly(float32),
        readonly(int64),
        readonly(int32),
        float32[:, ::1],
        float32[:, ::1],
        float32[::1],
        readonly(int64),
        int64,
        float32,
        float32,
        uint64,
    ),
)
def train(
    order: Longs,
    users: Ints,
    items: Ints,
    ratings: Floats,
    seen_offsets: Longs,
    seen: Ints,
    P: Floats,
    Q: Floats,
    dense: Floats,
    sizes: Longs,
    negatives: int,
    learning_rate: float,
    reg: float,
    key: np.uint64,
) -> None:
    """One pass over the samples. Writes P (users, 2d), Q (items, 2d) and `dense`.

    With ratings the loss is the squared error. Without, it is the cross-entropy with label 1 for
    a positive and 0 for `negatives` items outside seen[u]. `sizes` are the tower's layer sizes.
    """
    padded = np.empty(len(sizes), np.int64)
    places = np.empty(len(dense), np.int64)
    w = np.zeros(lay_out(sizes, padded, places), np.float32)
    x = np.zeros(padded.sum(), np.float32)
    g = np.zeros(padded.sum(), np.float32)
    active = np.empty(padded.sum() + 1, np.int64)
    counts = np.empty(len(sizes), np.int64)
    for j in range(len(dense)):
        w[places[j]] = dense[j]
    train_samples(
        order,
        users,
        items,
        ratings,
        seen_offsets,
        seen,
        P.reshape(-1),
        Q.reshape(-1),
        P.shape[1],
        w,
        padded,
        x,
        g,
        active,
        counts,
        negatives,
        learning_rate,
        np.float32(1.0) - learning_rate * reg,
        key,
    )
    for j in range(len(dense)):
        dense[j] = w[places[j]]
