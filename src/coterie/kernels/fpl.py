"""FPL on the devices: triples of a user, the coin for each liked item, and the updates of Eqs. 3 to 6, in fixed point.

A round is drawn and then trained, in two calls, because what users send stands one after the other. Rounds of one user each go
through `in_turn` instead, which applies every update at once and gives the same bits.
"""

from __future__ import annotations

import numba
import numpy as np
from numba import boolean, float32, float64, int32, int64, types, uint64

from coterie.kernels.common import Scalar, below, helper, nth_unseen, random_word, readonly, sigmoid
from coterie.kernels.quantise import quantise
from coterie.kernels.samples import renumber
from coterie.kernels.sums import FINE, worst_entry
from coterie.types import SCALE, Floats, Ints, Longs

UNIT = 2.0**-53
ELEVEN = np.uint64(11)
NOBODY = np.int32(-1)


@helper
def draw_triples(
    key: Scalar,
    positives: Ints,
    hidden: np.ndarray,
    seen: Ints,
    n_items: Scalar,
    pi: Scalar,
    liked: Ints,
    others: Ints,
    shown: Ints,
) -> Scalar:
    """T triples (u, i, j) with replacement, and for each i whether it is shown. Returns how many items are sent, with repeats."""
    sent = 0
    for s in range(len(liked)):
        at = below(random_word(key, 3 * s), len(positives))
        coin = np.float64(random_word(key, 3 * s + 1) >> ELEVEN) * UNIT
        liked[s] = positives[at]
        others[s] = nth_unseen(
            seen, 0, len(seen), below(random_word(key, 3 * s + 2), n_items - len(seen))
        )
        shown[s] = 1 if coin < pi and not hidden[at] else 0
        sent += 1 + shown[s]
    return sent


@helper
def list_items(liked: Ints, others: Ints, shown: Ints, places: Ints) -> Scalar:
    """What is sent, in any order: every j, and every i that is shown."""
    n = len(liked)
    places[:n] = others
    for s in range(len(liked)):
        if shown[s]:
            places[n] = liked[s]
            n += 1
    return n


@helper
def margin(p: Floats, q_i: Floats, q_j: Floats) -> Scalar:
    """p . (q_i - q_j), in four lanes of a fixed order."""
    whole = len(p) - len(p) % 4
    x0 = x1 = x2 = x3 = np.float32(0.0)
    for f in range(0, whole, 4):
        x0 += p[f] * (q_i[f] - q_j[f])
        x1 += p[f + 1] * (q_i[f + 1] - q_j[f + 1])
        x2 += p[f + 2] * (q_i[f + 2] - q_j[f + 2])
        x3 += p[f + 3] * (q_i[f + 3] - q_j[f + 3])
    for f in range(whole, len(p)):
        x0 += p[f] * (q_i[f] - q_j[f])
    return (x0 + x1) + (x2 + x3)


@helper
def learn(
    p: Floats,
    Q: Floats,
    b: Floats,
    liked: Ints,
    others: Ints,
    shown: Ints,
    places: Ints,
    rate: Scalar,
    reg_user: Scalar,
    reg_positive: Scalar,
    reg_negative: Scalar,
    frozen: Scalar,
    gradients: Floats,
    own: Floats,
) -> None:
    """Eqs. 3 to 6 for the triples of one user; writes p and the slopes of what is sent (rows, then the bias last).

    Item rows stay what they were; p moves from triple to triple, or, `frozen`, once at the end.
    """
    d = len(p)
    at = len(liked)
    own[:] = np.float32(0.0)
    for s in range(len(liked)):
        q_i = Q[np.uint64(liked[s])]
        q_j = Q[np.uint64(others[s])]
        x = margin(p, q_i, q_j) + (b[np.uint64(liked[s])] - b[np.uint64(others[s])])
        e = np.float32(1.0) - sigmoid(x)
        out = gradients[np.uint64(places[s])]
        for f in range(d):
            out[f] -= e * p[f] + reg_negative * q_j[f]
        out[d] -= e
        if shown[s]:
            out = gradients[np.uint64(places[at])]
            at += 1
            for f in range(d):
                out[f] += e * p[f] - reg_positive * q_i[f]
            out[d] += e
        for f in range(d):
            move = e * (q_i[f] - q_j[f]) - reg_user * p[f]
            if frozen:
                own[f] += move
            else:
                p[f] += rate * move
    if frozen:
        for f in range(d):
            p[f] += rate * own[f]


@numba.njit(
    types.void(
        readonly(int64),
        readonly(int64),
        readonly(int32),
        readonly(boolean),
        readonly(int64),
        readonly(int32),
        int64,
        readonly(float32),
        readonly(uint64),
        int64,
        int64,
        int64[::1],
        int32[:, ::1],
        int32[:, ::1],
        int32[:, ::1],
        int32[:, ::1],
        int32[:, ::1],
    ),
    nogil=True,
    cache=True,
    error_model="numpy",
)
def draw(
    people: Longs,
    offsets: Longs,
    positives: Ints,
    hidden: np.ndarray,
    seen_offsets: Longs,
    seen: Ints,
    n_items: int,
    disclosure: Floats,
    keys: np.ndarray,
    first: int,
    last: int,
    n_rows: Longs,
    rows: Ints,
    places: Ints,
    liked: Ints,
    others: Ints,
    shown: Ints,
) -> None:
    """People first..last: their triples (people, T), and the items they send (people, 2 T), ascending, in the first n_rows places.

    Who has nothing, or everything, has no triples: n_rows is zero, and liked says so with -1.
    """
    touched = np.zeros((n_items + 63) // 64, np.uint64)
    parts = np.zeros((len(touched) + 63) // 64, np.uint64)
    place = np.empty(n_items, np.int32)
    for k in range(first, last):
        u = people[k]
        mine = slice(offsets[u], offsets[u + 1])
        known = seen[seen_offsets[u] : seen_offsets[u + 1]]
        n_rows[k] = 0
        liked[k, 0] = NOBODY
        if offsets[u + 1] > offsets[u] and len(known) < n_items:
            draw_triples(
                keys[k],
                positives[mine],
                hidden[mine],
                known,
                n_items,
                disclosure[k],
                liked[k],
                others[k],
                shown[k],
            )
            n = list_items(liked[k], others[k], shown[k], places[k])
            n_rows[k] = renumber(places[k, :n], touched, parts, place, rows[k])


@numba.njit(
    types.void(
        readonly(int64),
        readonly(int32, 2),
        readonly(int32, 2),
        readonly(int32, 2),
        readonly(int32, 2),
        readonly(float32, 2),
        readonly(float32, 2),
        readonly(float32),
        float32,
        float32,
        float32,
        float32,
        boolean,
        int64,
        int64,
        float32[:, ::1],
        int32[:, ::1],
    ),
    nogil=True,
    cache=True,
    error_model="numpy",
)
def train(
    offsets: Longs,
    places: Ints,
    liked: Ints,
    others: Ints,
    shown: Ints,
    user_rows: Floats,
    item_rows: Floats,
    item_bias: Floats,
    rate: float,
    reg_user: float,
    reg_positive: float,
    reg_negative: float,
    frozen: bool,
    first: int,
    last: int,
    user_rows_after: Floats,
    item_deltas: Ints,
) -> None:
    """People first..last: their own rows after the round, and what they send (rows, then the bias last)."""
    d = item_rows.shape[1]
    gradients = np.empty((places.shape[1], d + 1), np.float32)
    own = np.empty(d, np.float32)
    for k in range(first, last):
        p = user_rows_after[k]
        p[:] = user_rows[k]
        if liked[k, 0] < 0:
            continue
        low = offsets[k]
        n = offsets[k + 1] - offsets[k]
        gradients[:n] = np.float32(0.0)
        learn(
            p,
            item_rows,
            item_bias,
            liked[k],
            others[k],
            shown[k],
            places[k],
            rate,
            reg_user,
            reg_positive,
            reg_negative,
            frozen,
            gradients,
            own,
        )
        for r in range(n):
            for f in range(d + 1):
                item_deltas[low + r, f] = quantise(gradients[r, f])


@numba.njit(
    types.void(
        readonly(int64),
        readonly(uint64),
        readonly(int64),
        readonly(int32),
        readonly(boolean),
        readonly(int64),
        readonly(int32),
        readonly(float32),
        int64,
        float64,
        float32,
        float32,
        float32,
        boolean,
        float32[:, ::1],
        float32[:, ::1],
        float32[::1],
        int64[::1],
        int64[::1],
    ),
    nogil=True,
    cache=True,
    error_model="numpy",
)
def sequential(
    people: Longs,
    keys: np.ndarray,
    offsets: Longs,
    positives: Ints,
    hidden: np.ndarray,
    seen_offsets: Longs,
    seen: Ints,
    disclosure: Floats,
    triples: int,
    rate: float,
    reg_user: float,
    reg_positive: float,
    reg_negative: float,
    frozen: bool,
    user_rows: Floats,
    item_rows: Floats,
    item_bias: Floats,
    n_rows: Longs,
    faults: Longs,
) -> None:
    """Rounds of one user each, one after the other; writes rows and biases, and per round what was sent and what was wrong with it."""
    n_items, d = item_rows.shape
    touched = np.zeros((n_items + 63) // 64, np.uint64)
    parts = np.zeros((len(touched) + 63) // 64, np.uint64)
    place = np.empty(n_items, np.int32)
    liked = np.empty(triples, np.int32)
    others = np.empty(triples, np.int32)
    shown = np.empty(triples, np.int32)
    places = np.empty(2 * triples, np.int32)
    rows = np.empty(2 * triples, np.int32)
    gradients = np.empty((2 * triples, d + 1), np.float32)
    own = np.empty(d, np.float32)
    p = np.empty(d, np.float32)
    fixed = np.empty(d + 1, np.int32)
    step = np.float32(rate)
    for r in range(len(people)):
        u = people[r]
        mine = slice(offsets[u], offsets[u + 1])
        known = seen[seen_offsets[u] : seen_offsets[u + 1]]
        n_rows[r] = 0
        faults[r] = FINE
        if len(known) >= n_items:
            continue
        draw_triples(
            keys[r],
            positives[mine],
            hidden[mine],
            known,
            n_items,
            disclosure[r],
            liked,
            others,
            shown,
        )
        n = renumber(
            places[: list_items(liked, others, shown, places)], touched, parts, place, rows
        )
        p[:] = user_rows[u]
        gradients[:n] = np.float32(0.0)
        learn(
            p,
            item_rows,
            item_bias,
            liked,
            others,
            shown,
            places,
            step,
            reg_user,
            reg_positive,
            reg_negative,
            frozen,
            gradients,
            own,
        )
        for i in range(n):
            for f in range(d + 1):
                fixed[f] = quantise(gradients[i, f])
            faults[r] = max(faults[r], worst_entry(fixed))
        if faults[r] != FINE:
            continue
        n_rows[r] = n
        user_rows[u] = p
        for i in range(n):
            row = np.uint64(rows[i])
            for f in range(d):
                item_rows[row, f] = item_rows[row, f] + rate * (
                    np.int64(quantise(gradients[i, f])) / SCALE
                )
            item_bias[row] = item_bias[row] + rate * (np.int64(quantise(gradients[i, d])) / SCALE)


@numba.njit(
    types.void(
        readonly(int64), readonly(int64, 2), float64, int64, int64, float32[:, ::1], float32[::1]
    ),
    nogil=True,
    cache=True,
    error_model="numpy",
)
def apply(
    sent: Longs,
    total: Longs,
    rate: float,
    low: int,
    high: int,
    item_rows: Floats,
    item_bias: Floats,
) -> None:
    """Eq. 7 for the items sent[low:high], in place."""
    d = item_rows.shape[1]
    for k in range(low, high):
        row = np.uint64(sent[k])
        for f in range(d):
            item_rows[row, f] = item_rows[row, f] + rate * (total[k, f] / SCALE)
        item_bias[row] = item_bias[row] + rate * (total[k, d] / SCALE)
