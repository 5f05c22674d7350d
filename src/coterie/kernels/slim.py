"""SLIM by coordinate descent on co-occurrence counts (Ning and Karypis 2011).

With G = X^T X, where G_ab counts the users that have both a and b, the objective of item j needs
no user: r_c = G_cj - sum_a G_ca w_a is the residual of a candidate c, and

    w_c <- max(0, (r_c + G_cc w_c - reg_l1) / (G_cc + reg_l2))

minimises it along w_c. Descent runs over an active set, which starts empty and gets the candidates
that most reduce the objective, until none is left that would get a weight. A coordinate update
costs the size of the active set. Counts are integers and items are solved independently, so results
do not depend on how the items are divided among threads.
"""

from __future__ import annotations

import numpy as np
from numba import float64, int32, int64, types

from coterie.kernels.common import Integer, kernel, readonly, subroutine
from coterie.types import Bools, Doubles, Ints, Longs

BATCH = 32
"""Candidates that join the active set at a time."""


@subroutine
def add_row(
    item: Integer,
    step: Integer,
    item_offsets: Longs,
    users: Ints,
    offsets: Longs,
    items: Ints,
    row: Ints,
) -> None:
    """Add `step` to row[c] for every user that has both the item and c. Writes row (items,)."""
    for e in range(item_offsets[item], item_offsets[item + 1]):
        user = users[e]
        for f in range(offsets[user], offsets[user + 1]):
            row[items[f]] += step


@kernel(
    types.void(
        readonly(int64),
        readonly(int32),
        readonly(int64),
        readonly(int32),
        readonly(int32),
        int64,
        int64,
        int32[:, ::1],
    ),
)
def count_rows(
    item_offsets: Longs,
    users: Ints,
    offsets: Longs,
    items: Ints,
    chosen: Ints,
    first: int,
    last: int,
    table: Ints,
) -> None:
    """Write the co-occurrence counts of the items chosen[first:last] to their rows of the table."""
    for t in range(first, last):
        for c in range(table.shape[1]):
            table[t, c] = 0
        add_row(chosen[t], 1, item_offsets, users, offsets, items, table[t])


@subroutine
def kth_largest(values: Doubles, k: Integer) -> float:
    """The k-th largest value, by quickselect. Compiling np.partition takes 8 s."""
    x = values.copy()
    low = 0
    high = len(x) - 1
    while low < high:
        pivot = x[(low + high) // 2]
        i = low
        j = high
        while i <= j:
            while x[i] > pivot:
                i += 1
            while x[j] < pivot:
                j -= 1
            if i <= j:
                x[i], x[j] = x[j], x[i]
                i += 1
                j -= 1
        # x[low..j] >= pivot >= x[i..high]; what lies between equals the pivot.
        if k - 1 <= j:
            high = j
        elif k - 1 >= i:
            low = i
        else:
            break
    return float(x[k - 1])


@subroutine
def largest(values: Doubles, k: Integer) -> Longs:
    """Positions of the k largest values, ascending; of equal values the first are taken."""
    least = kth_largest(values, k)
    ties = k - np.sum(values > least)
    found = np.empty(k, np.int64)
    n = 0
    for i in range(len(values)):
        tied = values[i] == least and ties > 0
        if values[i] > least or tied:
            found[n] = i
            n += 1
            ties -= tied
    return found


@subroutine
def candidates_of(
    item: Integer, counts: Ints, n_users: Longs, reg_l1: float, neighbours: Integer
) -> Longs:
    """The items that may have a weight, ascending: the `neighbours` most similar, or all if 0.

    Weights and counts are not negative, so r_c <= counts[c], and an item that does not co-occur
    more than reg_l1 times has weight 0 in the solution. The others are compared by cosine.
    """
    found = np.empty(len(counts), np.int64)
    n = 0
    for c in range(len(counts)):
        if c != item and counts[c] > reg_l1:
            found[n] = c
            n += 1
    if neighbours == 0 or n <= neighbours:
        return found[:n]
    cosines = np.empty(n)
    for i in range(n):
        c = found[i]
        together = float64(counts[c])
        # The squared cosine times the number of the item's users, rounded once.
        cosines[i] = together * together / n_users[c]
    nearest = largest(cosines, neighbours)
    for i in range(neighbours):
        found[i] = found[nearest[i]]
    return found[:neighbours]


@subroutine
def joining(
    r: Doubles, diagonal: Doubles, active: Bools, reg_l1: float, reg_l2: float, tolerance: float
) -> Longs:
    """Positions of the candidates that join the active set: those with the largest gains.

    The gain is the reduction of the objective by the first update. Candidates that it would change
    by no more than the tolerance do not join.
    """
    gains = np.zeros(len(r))
    n = 0
    for i in range(len(r)):
        above = r[i] - reg_l1
        if not active[i] and above > tolerance * (diagonal[i] + reg_l2):
            gains[i] = above * above / (diagonal[i] + reg_l2)
            n += 1
    return largest(gains, min(n, BATCH)) if n > 0 else np.empty(0, np.int64)


@subroutine
def taller(G: Ints, rows: Integer) -> Ints:
    """The same rows, with memory for twice as many."""
    copy = np.empty((2 * len(G), G.shape[1]), np.int32)
    for a in range(rows):
        for k in range(G.shape[1]):
            copy[a, k] = G[a, k]
    return copy


@subroutine
def descend(
    G: Ints,
    r: Doubles,
    w: Doubles,
    members: Longs,
    reg_l1: float,
    reg_l2: float,
    max_sweeps: Integer,
    tolerance: float,
) -> Doubles:
    """(active,) the weights of the active set, after sweeps over it until they settle.

    The last sweep changes no weight by more than the tolerance.
    """
    m = len(members)
    A = np.empty((m, m))  # the rows and columns of G in the active set
    q = np.empty(m)
    v = np.empty(m)
    for a in range(m):
        q[a] = r[members[a]]
        v[a] = w[members[a]]
        for b in range(m):
            A[a, b] = G[a, members[b]]
    for _ in range(max_sweeps):
        most = 0.0
        for a in range(m):
            change = max((q[a] + A[a, a] * v[a] - reg_l1) / (A[a, a] + reg_l2), 0.0) - v[a]
            if change != 0.0:
                v[a] += change
                for b in range(m):
                    q[b] -= change * A[a, b]
                most = max(most, abs(change))
        if most <= tolerance:
            break
    return v


@kernel(
    float64[:, ::1](
        readonly(int64),
        readonly(int32),
        readonly(int64),
        readonly(int32),
        readonly(int64),
        readonly(int32),
        int32[:, ::1],
        float64,
        float64,
        int64,
        int64,
        float64,
        int64,
        int64,
        int64[::1],
    ),
)
def solve_items(
    item_offsets: Longs,
    users: Ints,
    offsets: Longs,
    items: Ints,
    n_users: Longs,
    places: Ints,
    table: Ints,
    reg_l1: float,
    reg_l2: float,
    neighbours: int,
    max_sweeps: int,
    tolerance: float,
    first: int,
    last: int,
    sizes: Longs,
) -> Doubles:
    """The positive weights of items first..last, as rows of the item that has it and the weight.

    The rows of an item follow those of the item before it; the items in them ascend.

    n_users[c] is the diagonal of G, the number of users of item c. places[c] is the row of item c
    in the table of counts; -1 if it has none, and its counts are computed here from `users` of
    every item and `items` of every user, which are rows with offsets. They are not read where every
    item has a row. Writes the number of weights of every item to sizes[first:last].
    """
    scratch = np.zeros(len(places), np.int32)  # all zeros between uses
    found = np.empty((256, 2))
    total = 0
    for j in range(first, last):
        tabled = places[j] >= 0
        counts = table[places[j]] if tabled else scratch
        if not tabled:
            add_row(j, 1, item_offsets, users, offsets, items, counts)
        candidates = candidates_of(j, counts, n_users, reg_l1, neighbours)
        n = len(candidates)
        r = np.empty(n)
        diagonal = np.empty(n)
        for i in range(n):
            c = candidates[i]
            r[i] = counts[c]
            diagonal[i] = n_users[c]
        if not tabled:
            add_row(j, -1, item_offsets, users, offsets, items, counts)
        w = np.zeros(n)
        active = np.zeros(n, np.bool_)
        members = np.empty(n, np.int64)  # the active set: candidates in order of joining
        m = 0
        G = np.empty((min(n, BATCH), n), np.int32)  # (active, candidates)
        while True:
            new = joining(r, diagonal, active, reg_l1, reg_l2, tolerance)
            if len(new) == 0:
                break
            if m + len(new) > len(G):
                G = taller(G, m)
            for i in new:
                c = candidates[i]
                if places[c] >= 0:
                    for k in range(n):
                        G[m, k] = table[places[c], candidates[k]]
                else:
                    add_row(c, 1, item_offsets, users, offsets, items, scratch)
                    for k in range(n):
                        G[m, k] = scratch[candidates[k]]
                    add_row(c, -1, item_offsets, users, offsets, items, scratch)
                members[m] = i
                active[i] = True
                m += 1
            v = descend(G, r, w, members[:m], reg_l1, reg_l2, max_sweeps, tolerance)
            for a in range(m):
                i = members[a]
                change = v[a] - w[i]
                if change != 0.0:
                    w[i] = v[a]
                    for k in range(n):
                        r[k] -= change * G[a, k]
        if total + m > len(found):
            longer = np.empty((2 * (total + m), 2))
            for k in range(total):
                longer[k, 0] = found[k, 0]
                longer[k, 1] = found[k, 1]
            found = longer
        start = total
        for i in range(n):
            if w[i] > 0.0:
                found[total, 0] = candidates[i]
                found[total, 1] = w[i]
                total += 1
        sizes[j] = total - start
    return found[:total].copy()
