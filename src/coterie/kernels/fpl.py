"""FPL on the clients: a user's triples, the coin per positive item, the updates of Eqs. 3 to 6.

A round takes two calls: `draw` finds how many rows each user sends, which gives the offsets that
`train` writes its fixed-point updates to. Rounds of one user each use `sequential`, which applies
every update immediately and gives the same bits.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, float32, float64, int32, int64, types, uint64

from coterie.kernels.common import (
    Integer,
    Real,
    Words64,
    below,
    helper,
    kernel,
    nth_unseen,
    random_word,
    readonly,
    sigmoid,
)
from coterie.kernels.quantise import quantise
from coterie.kernels.samples import renumber
from coterie.kernels.sums import FINE, worst_entry
from coterie.types import SCALE, Bools, Floats, Ints, Longs

UNIT = 2.0**-53
ELEVEN = np.uint64(11)
NO_TRIPLES = np.int32(-1)


@helper
def draw_triples(
    key: np.uint64,
    positives: Ints,
    hidden: Bools,
    seen: Ints,
    n_items: Integer,
    pi: Real,
    liked: Ints,
    others: Ints,
    shown: Ints,
) -> Integer:
    """Draw T triples (u, i, j) with replacement, and for each i whether it is shown.

    An item i is shown with probability pi, and never if the user marked it as hidden; `hidden` is
    empty where nobody marked any. Returns how many items are sent, with repeats.
    """
    sent = 0
    for s in range(len(liked)):
        at = below(random_word(key, 3 * s), len(positives))
        coin = np.float64(random_word(key, 3 * s + 1) >> ELEVEN) * UNIT
        liked[s] = positives[at]
        others[s] = nth_unseen(
            seen, 0, len(seen), below(random_word(key, 3 * s + 2), n_items - len(seen))
        )
        is_hidden = len(hidden) > 0 and hidden[at]
        shown[s] = 1 if coin < pi and not is_hidden else 0
        sent += 1 + shown[s]
    return sent


@helper
def list_items(liked: Ints, others: Ints, shown: Ints, places: Ints) -> Integer:
    """List the items whose rows are sent, with repeats: every j, and every i that is shown."""
    n = len(liked)
    places[:n] = others
    for s in range(len(liked)):
        if shown[s]:
            places[n] = liked[s]
            n += 1
    return n


@helper
def margin(p: Floats, q_i: Floats, q_j: Floats) -> np.float32:
    """p . (q_i - q_j), in four partial sums of a fixed order."""
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
def gather(rows: Floats, items: Ints, out: Floats) -> None:
    """Copy the rows of some items.

    Most rows of a large table are in no cache. Copies one after the other wait for several of them
    at once; training, in which every triple depends on the one before, would wait for each.
    """
    for s in range(len(items)):
        row = rows[np.uint64(items[s])]
        to = out[np.uint64(s)]
        for f in range(rows.shape[1]):
            to[f] = row[f]


@helper
def learn(
    p: Floats,
    Q: Floats,
    b: Floats,
    liked: Ints,
    others: Ints,
    shown: Ints,
    places: Ints,
    learning_rate: Real,
    reg_user: Real,
    reg_positive: Real,
    reg_negative: Real,
    reg_bias: Real,
    frozen: bool,
    gradients: Floats,
    own: Floats,
    chosen_rows: Floats,
    other_rows: Floats,
) -> None:
    """Eqs. 3 to 6 for the triples of one user. Writes p and the gradients that are sent.

    `gradients` is (rows, d + 1): the item row, then its bias. Item rows do not change during the
    round. p is updated after every triple or, if `frozen`, once at the end.
    """
    d = len(p)
    at = len(liked)
    own[:] = np.float32(0.0)
    gather(Q, liked, chosen_rows)
    gather(Q, others, other_rows)
    for s in range(len(liked)):
        q_i = chosen_rows[np.uint64(s)]
        q_j = other_rows[np.uint64(s)]
        x = margin(p, q_i, q_j) + (b[np.uint64(liked[s])] - b[np.uint64(others[s])])
        e = np.float32(1.0) - sigmoid(x)
        out = gradients[np.uint64(places[s])]
        for f in range(d):
            out[f] -= e * p[f] + reg_negative * q_j[f]
        out[d] -= e + reg_bias * b[np.uint64(others[s])]
        if shown[s]:
            out = gradients[np.uint64(places[at])]
            at += 1
            for f in range(d):
                out[f] += e * p[f] - reg_positive * q_i[f]
            out[d] += e - reg_bias * b[np.uint64(liked[s])]
        for f in range(d):
            move = e * (q_i[f] - q_j[f]) - reg_user * p[f]
            if frozen:
                own[f] += move
            else:
                p[f] += learning_rate * move
    if frozen:
        for f in range(d):
            p[f] += learning_rate * own[f]


@kernel(
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
)
def draw(
    users: Longs,
    offsets: Longs,
    positives: Ints,
    hidden: Bools,
    seen_offsets: Longs,
    seen: Ints,
    n_items: int,
    disclosure: Floats,
    keys: Words64,
    first: int,
    last: int,
    n_rows: Longs,
    rows: Ints,
    places: Ints,
    liked: Ints,
    others: Ints,
    shown: Ints,
) -> None:
    """Draw the triples (users, T) of users first..last, and list the items that they send.

    The items of user k are rows[k, :n_rows[k]], ascending, of at most 2 T. A user with no items,
    or with every item, has no triples: n_rows is 0 and liked[k, 0] is -1.
    """
    touched = np.zeros((n_items + 63) // 64, np.uint64)
    parts = np.zeros((len(touched) + 63) // 64, np.uint64)
    place = np.empty(n_items, np.int32)
    for k in range(first, last):
        u = users[k]
        history = slice(offsets[u], offsets[u + 1])
        known = seen[seen_offsets[u] : seen_offsets[u + 1]]
        n_rows[k] = 0
        liked[k, 0] = NO_TRIPLES
        if offsets[u + 1] > offsets[u] and len(known) < n_items:
            draw_triples(
                keys[k],
                positives[history],
                hidden[history],
                known,
                n_items,
                disclosure[k],
                liked[k],
                others[k],
                shown[k],
            )
            n = list_items(liked[k], others[k], shown[k], places[k])
            n_rows[k] = renumber(places[k, :n], touched, parts, place, rows[k])


@kernel(
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
        float32,
        boolean,
        int64,
        int64,
        float32[:, ::1],
        int32[:, ::1],
    ),
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
    learning_rate: float,
    reg_user: float,
    reg_positive: float,
    reg_negative: float,
    reg_bias: float,
    frozen: bool,
    first: int,
    last: int,
    user_rows_after: Floats,
    item_deltas: Ints,
) -> None:
    """Train users first..last on their triples.

    Writes their own rows after the round, and the updates (rows, d + 1) that they send: the item
    row, then its bias.
    """
    d = item_rows.shape[1]
    gradients = np.empty((places.shape[1], d + 1), np.float32)
    own = np.empty(d, np.float32)
    chosen_rows = np.empty((liked.shape[1], d), np.float32)
    other_rows = np.empty((liked.shape[1], d), np.float32)
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
            learning_rate,
            reg_user,
            reg_positive,
            reg_negative,
            reg_bias,
            frozen,
            gradients,
            own,
            chosen_rows,
            other_rows,
        )
        for r in range(n):
            for f in range(d + 1):
                item_deltas[low + r, f] = quantise(gradients[r, f])


@kernel(
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
        float32,
        boolean,
        float32[:, ::1],
        float32[:, ::1],
        float32[::1],
        int64[::1],
        int64[::1],
    ),
)
def sequential(
    users: Longs,
    keys: Words64,
    offsets: Longs,
    positives: Ints,
    hidden: Bools,
    seen_offsets: Longs,
    seen: Ints,
    disclosure: Floats,
    triples: int,
    learning_rate: float,
    reg_user: float,
    reg_positive: float,
    reg_negative: float,
    reg_bias: float,
    frozen: bool,
    user_rows: Floats,
    item_rows: Floats,
    item_bias: Floats,
    n_rows: Longs,
    faults: Longs,
) -> None:
    """Run rounds of one user each, one after the other.

    Writes all rows and biases and, for every round, how many item rows were sent and the worst
    fault of the update. An update with a fault is not applied.
    """
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
    chosen_rows = np.empty((triples, d), np.float32)
    other_rows = np.empty((triples, d), np.float32)
    p = np.empty(d, np.float32)
    fixed = np.empty(d + 1, np.int32)
    step = np.float32(learning_rate)
    for r in range(len(users)):
        u = users[r]
        history = slice(offsets[u], offsets[u + 1])
        known = seen[seen_offsets[u] : seen_offsets[u + 1]]
        n_rows[r] = 0
        faults[r] = FINE
        if len(known) >= n_items:
            continue
        draw_triples(
            keys[r],
            positives[history],
            hidden[history],
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
            reg_bias,
            frozen,
            gradients,
            own,
            chosen_rows,
            other_rows,
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
                item_rows[row, f] = item_rows[row, f] + learning_rate * (
                    np.int64(quantise(gradients[i, f])) / SCALE
                )
            item_bias[row] = item_bias[row] + learning_rate * (
                np.int64(quantise(gradients[i, d])) / SCALE
            )


@kernel(
    types.void(
        readonly(int64), readonly(int64, 2), float64, int64, int64, float32[:, ::1], float32[::1]
    ),
)
def apply(
    sent: Longs,
    total: Longs,
    learning_rate: float,
    low: int,
    high: int,
    item_rows: Floats,
    item_bias: Floats,
) -> None:
    """Eq. 7 for the items sent[low:high]. Writes rows and biases."""
    d = item_rows.shape[1]
    for k in range(low, high):
        row = np.uint64(sent[k])
        for f in range(d):
            item_rows[row, f] = item_rows[row, f] + learning_rate * (total[k, f] / SCALE)
        item_bias[row] = item_bias[row] + learning_rate * (total[k, d] / SCALE)
