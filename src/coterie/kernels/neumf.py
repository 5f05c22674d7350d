"""NeuMF by SGD, one sample at a time: every positive once, each with fresh negatives (BCE), or its rating (MSE)."""

from __future__ import annotations

import numba
import numpy as np
from numba import float32, int32, int64, types, uint64

from coterie.kernels.common import Scalar, draw_unseen, random_word, readonly
from coterie.kernels.tower import make_room, step
from coterie.types import Floats, Ints, Longs


@numba.njit(error_model="numpy")
def visit(
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
    rooms: Longs,
    x: Floats,
    g: Floats,
    on: Longs,
    counts: Longs,
    negatives: int,
    rate: Scalar,
    keep: Scalar,
    key: Scalar,
) -> None:
    """A function of its own and without slices: then no reference is counted inside the loop."""
    n_items = len(Q) // width
    rated = len(ratings) > 0
    for t in range(len(order)):
        u = np.int64(users[order[t]])
        for s in range(1 if rated else 1 + negatives):
            i = np.int64(items[order[t]])
            target = ratings[order[t]] if rated else np.float32(1.0)
            if s > 0:
                word = random_word(key, t * negatives + s - 1)
                i = draw_unseen(u, seen_offsets, seen, n_items, word)
                target = np.float32(0.0)
            if i >= 0:  # else the user has everything
                step(
                    P,
                    u * width,
                    Q,
                    i * width,
                    width // 2,
                    w,
                    rooms,
                    x,
                    g,
                    on,
                    counts,
                    target,
                    rated,
                    rate,
                    keep,
                )


@numba.njit(
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
    nogil=True,
    cache=True,
    error_model="numpy",
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
    rate: float,
    reg: float,
    key: np.uint64,
) -> None:
    """With ratings, squared error on them; else cross-entropy: label 1 for the positive, 0 for `negatives` items outside
    seen[u]. `sizes` are those of the tower. Writes P, Q and dense."""
    rooms = np.empty(len(sizes), np.int64)
    places = np.empty(len(dense), np.int64)
    w = np.zeros(make_room(sizes, rooms, places), np.float32)
    x = np.zeros(rooms.sum(), np.float32)
    g = np.zeros(rooms.sum(), np.float32)
    on = np.empty(rooms.sum() + 1, np.int64)
    counts = np.empty(len(sizes), np.int64)
    for j in range(len(dense)):
        w[places[j]] = dense[j]
    visit(
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
        rooms,
        x,
        g,
        on,
        counts,
        negatives,
        rate,
        np.float32(1.0) - rate * reg,
        key,
    )
    for j in range(len(dense)):
        dense[j] = w[places[j]]
