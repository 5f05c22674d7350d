"""GMF by SGD or Adam in batches of samples of all users, for centralised training.

The samples of an epoch are every positive and its fresh negatives, or every rating, in one random
order, which is cut into batches. The loss of a batch is that of `gmf_batches`: the mean over its
samples, each with reg / 2 (|p|^2 + |q|^2). Adam's moments persist over the run. A row outside the
batch is not updated and its moments do not decay, as in PyTorch's SparseAdam.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, float32, int32, int64, types, uint64

from coterie.kernels.common import (
    Integer,
    Real,
    draw_unseen,
    helper,
    kernel,
    random_word,
    readonly,
    sigmoid,
)
from coterie.kernels.gmf_rows import predict
from coterie.kernels.optimisers import adam, adam_rows, bias_corrections, sgd, sgd_rows
from coterie.types import Floats, Ints, Longs


@helper
def draw_batch(
    order: Longs,
    users: Ints,
    items: Ints,
    ratings: Floats,
    seen_offsets: Longs,
    seen: Ints,
    n_items: Integer,
    negatives: Integer,
    key: np.uint64,
    drawn_users: Ints,
    drawn_items: Ints,
    targets: Floats,
) -> Integer:
    """Write the samples of a batch. Returns how many there are.

    Sample s is positive s // (1 + negatives) where that leaves no remainder, and otherwise one of
    its negatives. A user who has seen every item has none.
    """
    n = 0
    for s in order:
        at = s // (1 + negatives)
        which = s % (1 + negatives)
        item: Integer = np.int64(items[at])
        target = np.float32(0.0)
        if len(ratings):
            target = ratings[at]
        elif which == 0:
            target = np.float32(1.0)
        else:
            word = random_word(key, at * negatives + which - 1)
            item = draw_unseen(users[at], seen_offsets, seen, n_items, word)
            if item < 0:
                continue
        drawn_users[n] = users[at]
        drawn_items[n] = item
        targets[n] = target
        n += 1
    return n


@helper
def gather_gradients(
    P: Floats,
    Q: Floats,
    h: Floats,
    users: Ints,
    items: Ints,
    targets: Floats,
    squared: bool,
    reg: Real,
    P_gradients: Floats,
    Q_gradients: Floats,
    h_gradients: Floats,
    batch_of_user: Longs,
    batch_of_item: Longs,
    batch: Integer,
) -> None:
    """The gradient of a batch's loss. batch_of_user[u] is the batch of P_gradients[u]."""
    d = P.shape[1]
    size = np.float32(len(users))
    shrink = reg / size
    h_gradients[:] = np.float32(0.0)
    for s in range(len(users)):
        u = np.uint64(users[s])
        i = np.uint64(items[s])
        p = P[u]
        q = Q[i]
        p_gradients = P_gradients[u]
        q_gradients = Q_gradients[i]
        if batch_of_user[u] != batch:
            batch_of_user[u] = batch
            p_gradients[:] = np.float32(0.0)
        if batch_of_item[i] != batch:
            batch_of_item[i] = batch
            q_gradients[:] = np.float32(0.0)
        y = predict(p, q, h)
        gradient = ((y if squared else sigmoid(y)) - targets[s]) / size
        # Three loops, because the compiler does not vectorise one that writes to three arrays.
        for f in range(d):
            p_gradients[f] += gradient * h[f] * q[f] + shrink * p[f]
        for f in range(d):
            q_gradients[f] += gradient * h[f] * p[f] + shrink * q[f]
        for f in range(d):
            h_gradients[f] += gradient * p[f] * q[f]
        h_gradients[d] += gradient


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
        float32[:, :, ::1],
        float32[:, :, ::1],
        float32[:, ::1],
        int64,
        float32,
        float32,
        int64,
        boolean,
        int64,
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
    h: Floats,
    P_moments: Floats,
    Q_moments: Floats,
    h_moments: Floats,
    negatives: int,
    learning_rate: float,
    reg: float,
    batch_size: int,
    by_adam: bool,
    steps_before: int,
    key: np.uint64,
) -> None:
    """Train on the samples in `order`, an epoch. Without ratings the feedback is implicit.

    Writes P (users, d), Q (items, d), h (d + 1: output layer, then bias) and their moments
    (2, ...), which SGD does not read. Adam's t counts on from `steps_before`.
    """
    squared = len(ratings) > 0
    P_gradients = np.empty_like(P)
    Q_gradients = np.empty_like(Q)
    h_gradients = np.empty_like(h)
    batch_of_user = np.zeros(len(P), np.int64)
    batch_of_item = np.zeros(len(Q), np.int64)
    most = min(batch_size, len(order))
    drawn_users = np.empty(most, np.int32)
    drawn_items = np.empty(most, np.int32)
    drawn_targets = np.empty(most, np.float32)
    for batch, begin in enumerate(range(0, len(order), batch_size), 1):
        n = draw_batch(
            order[begin : begin + batch_size],
            users,
            items,
            ratings,
            seen_offsets,
            seen,
            len(Q),
            negatives,
            key,
            drawn_users,
            drawn_items,
            drawn_targets,
        )
        if n == 0:
            continue
        us = drawn_users[:n]
        its = drawn_items[:n]
        gather_gradients(
            P,
            Q,
            h,
            us,
            its,
            drawn_targets[:n],
            squared,
            reg,
            P_gradients,
            Q_gradients,
            h_gradients,
            batch_of_user,
            batch_of_item,
            batch,
        )
        if by_adam:
            corrections = bias_corrections(steps_before + batch)
            adam_rows(
                P,
                P_gradients,
                P_moments[0],
                P_moments[1],
                us,
                batch_of_user,
                batch,
                learning_rate,
                corrections,
            )
            adam_rows(
                Q,
                Q_gradients,
                Q_moments[0],
                Q_moments[1],
                its,
                batch_of_item,
                batch,
                learning_rate,
                corrections,
            )
            adam(h, h_gradients, h_moments[0], h_moments[1], learning_rate, corrections)
        else:
            sgd_rows(P, P_gradients, us, batch_of_user, batch, learning_rate)
            sgd_rows(Q, Q_gradients, its, batch_of_item, batch, learning_rate)
            sgd(h, h_gradients, learning_rate)
