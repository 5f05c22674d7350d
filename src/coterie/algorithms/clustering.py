"""Clusters of users: k-means over their rows, and random draws of users from clusters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coterie import kernels
from coterie.core import parallel, streams
from coterie.types import Bools, Doubles, Floats, Ints, Longs

BLOCK = 4096
"""Users whose rows are summed in one block. It does not depend on the number of threads."""
FEW_LOTS = 1 << 14
"""As many lots one thread draws faster than it wakes another."""
LARGEST_WORD = (1 << 64) - 1


# k-means


def first_clusters(
    rows: Floats, members: Bools, n_clusters: int, seed: int, iterations: int = 50
) -> Ints:
    """k-means without earlier clusters: k-means++ (Arthur and Vassilvitskii 2007), then Lloyd."""
    users = np.flatnonzero(members)
    n_clusters = min(n_clusters, len(users))
    centres = _kmeans_plus_plus(rows[users], n_clusters, seed)
    labels = np.where(members, 0, -1).astype(np.int32)
    assign(rows, centres, labels)
    return kmeans(rows, labels, n_clusters, iterations)


def kmeans(rows: Floats, labels: Ints, n_clusters: int, iterations: int) -> Ints:
    """Lloyd's k-means from given clusters: centres from labels, labels from centres.

    It stops when at most one user in a thousand changes cluster, or after `iterations`.
    """
    labels = labels.copy()
    for _ in range(iterations):
        if assign(rows, centres_of(rows, labels, n_clusters), labels) <= len(rows) // 1000:
            break
    return labels


def centres_of(rows: Floats, labels: Ints, n_clusters: int) -> Floats:
    """Means of clusters (clusters, d).

    The centre of an empty cluster becomes the row of the user who is farthest from the centre of
    the user's own cluster.
    """
    sums, counts = totals(rows, labels, n_clusters)
    centres = (sums / np.maximum(counts, 1)[:, None]).astype(np.float32)
    empty = np.flatnonzero(counts == 0)
    if len(empty):
        distances = np.where(labels >= 0, ((rows - centres[labels]) ** 2).sum(axis=1), -1)
        farthest = np.argsort(-distances, kind="stable")[: len(empty)]
        centres[empty[: len(farthest)]] = rows[farthest]
    return centres


def totals(rows: Floats, labels: Ints, n_clusters: int) -> tuple[Doubles, Longs]:
    """The sum of rows (clusters, d) and the number of users of every cluster.

    Users with a negative label belong to no cluster.
    """
    n_blocks = -(-len(rows) // BLOCK)
    sums = np.empty((n_blocks, n_clusters, rows.shape[1]))
    counts = np.empty((n_blocks, n_clusters), np.int64)
    add_up = kernels.load("clusters").add_up
    parallel.over(
        lambda first, last: add_up(rows, labels, BLOCK, first, last, sums, counts), n_blocks
    )
    # Add the blocks in sequence: the rounding of a pairwise sum would depend on their number.
    whole: Doubles = sums.cumsum(axis=0)[-1]
    return whole, counts.sum(axis=0)


def assign(rows: Floats, centres: Floats, labels: Ints) -> int:
    """Assign every user with a label to the nearest centre; writes labels.

    Returns how many labels changed.
    """
    changed: list[int] = []
    nearest = kernels.load("clusters").assign
    transposed = np.ascontiguousarray(centres.T)
    half_norms = (centres * centres).sum(axis=1) / np.float32(2)
    parallel.over(
        lambda first, last: changed.append(
            nearest(rows, transposed, half_norms, first, last, labels)
        ),
        len(rows),
        BLOCK,
    )
    return sum(changed)


def move_along(rows: Floats, labels: Ints, unmoved: Bools, moves: Floats) -> None:
    """Add every cluster's move to its users, except to those `unmoved`; writes rows."""
    kernel = kernels.load("clusters").move_along
    parallel.over(
        lambda first, last: kernel(rows, labels, unmoved, moves, first, last), len(rows), BLOCK
    )


def _kmeans_plus_plus(rows: Floats, n: int, seed: int) -> Floats:
    """n rows, drawn in proportion to the squared distance to the nearest row drawn before."""
    rng = streams.at(seed, "k-means++")
    chosen = [int(rng.integers(len(rows)))]
    nearest = np.full(len(rows), np.inf)
    for _ in range(n - 1):
        squares = (rows.astype(np.float64) - rows[chosen[-1]]) ** 2
        nearest = np.minimum(nearest, np.add.reduce(squares, axis=1))
        total = np.cumsum(nearest)
        drawn = np.searchsorted(total, rng.random() * total[-1], side="right")
        chosen.append(int(min(drawn, len(rows) - 1)))
    return rows[chosen]


# Draws


def labels_of_present(present: Bools, labels: Ints) -> Ints:
    """The labels of users who are available in a round; -1 for all others."""
    return labels if present.all() else np.where(present, labels, -1).astype(np.int32)


def sizes_of(labels: Ints, n_clusters: int = 1) -> Longs:
    """The number of users of each cluster, of `n_clusters` at least."""
    return np.bincount(labels[labels >= 0], minlength=n_clusters)


def draw(labels: Ints, quotas: Longs, seed: int, t: int) -> Ints:
    """quotas[c] random users of every cluster c, or all it has, ascending.

    Every user draws a lot, and the lowest lots of a cluster win.
    """
    sizes = sizes_of(labels, len(quotas))
    quotas = np.minimum(quotas, sizes)
    key = streams.key(seed, "sampling", t)
    drawn = _lowest(labels, key, _share(quotas, sizes), quotas)
    if len(drawn) == quotas.sum():
        return drawn
    return _lowest(labels, key, np.ones(len(sizes)), quotas)


def draw_users(present: Bools, n: int, seed: int, t: int) -> Ints:
    """n random users of those present, or all of them, ascending.

    They are those that `draw` has for one cluster. No label is needed for every user.
    """
    n_present = int(np.count_nonzero(present))
    if n >= n_present:
        return np.flatnonzero(present).astype(np.int32)
    key = streams.key(seed, "sampling", t)
    drawn = _lowest_of_all(present, key, float(_share(n, n_present)), n)
    return drawn if len(drawn) == n else _lowest_of_all(present, key, 1.0, n)


def round_robin(sizes: Longs, m: int, seed: int, t: int) -> Longs:
    """Quotas of clusters that provide one user each in turn until there are m.

    The clusters of the last, incomplete turn are random.
    """
    m = min(m, int(sizes.sum()))
    # Bisection for the largest number of complete turns that m users are enough for.
    complete = 0
    most = int(sizes.max())
    while complete < most:
        middle = (complete + most + 1) // 2
        if np.minimum(sizes, middle).sum() <= m:
            complete = middle
        else:
            most = middle - 1
    quotas = np.minimum(sizes, complete)
    lots = streams.keys(seed, "turns", t, last=np.arange(len(sizes)))
    waiting = np.flatnonzero(sizes > complete)
    extra = waiting[np.argsort(lots[waiting], kind="stable")][: m - int(quotas.sum())]
    quotas[extra] += 1
    return quotas


def _lowest(labels: Ints, key: int, share: Doubles, quotas: Longs) -> Ints:
    """The users with the lowest lots of each cluster, at most its quota.

    Only lots in the lowest `share` of all values are considered.
    """
    thresholds = np.array([_threshold(s) for s in share], np.uint64)
    drawn = np.empty(len(labels), bool)
    kernel = kernels.load("clusters").draw_lots
    parallel.over(
        lambda first, last: kernel(labels, np.uint64(key), thresholds, first, last, drawn),
        len(labels),
        BLOCK,
        alone=len(labels) <= FEW_LOTS,
    )
    users = np.flatnonzero(drawn)
    users = users[np.lexsort((_lots(key, users), labels[users]))]
    groups = labels[users]
    rank = np.arange(len(users)) - np.searchsorted(groups, groups)
    return np.sort(users[rank < quotas[groups]]).astype(np.int32)


def _lowest_of_all(present: Bools, key: int, share: float, n: int) -> Ints:
    """The n users with the lowest lots; only those in the lowest `share` are considered."""
    threshold = np.uint64(_threshold(share))
    drawn = np.empty(len(present), bool)
    kernel = kernels.load("clusters").draw_lots_of_present
    parallel.over(
        lambda first, last: kernel(present, np.uint64(key), threshold, first, last, drawn),
        len(present),
        BLOCK,
        alone=len(present) <= FEW_LOTS,
    )
    users = np.flatnonzero(drawn)
    users = users[np.argsort(_lots(key, users), kind="stable")[:n]]
    return np.sort(users).astype(np.int32)


def _share(quotas: Longs | int, sizes: Longs | int) -> Doubles:
    """Lots are uniform: a threshold a little above the quota's share leaves few lots to sort."""
    share: Doubles = (quotas + 6 * np.sqrt(quotas) + 8) / np.maximum(sizes, 1)
    return share


def _threshold(share: float) -> int:
    """The largest lot of the lowest `share` of all values."""
    return LARGEST_WORD if share >= 1 else int(share * LARGEST_WORD)


def _lots(key: int, users: Longs) -> NDArray[np.uint64]:
    return streams.mix_array(np.uint64(key) ^ (users.astype(np.uint64) + np.uint64(streams.GOLDEN)))
