"""Clusters of users: k-means over their rows, and fair draws of users from clusters."""

from __future__ import annotations

import numpy as np

from coterie import kernels
from coterie.core import parallel, streams
from coterie.types import Bools, Doubles, Floats, Ints, Longs

BLOCK = 4096  # users whose rows are summed in one go, whatever the number of threads
WORD = (1 << 64) - 1


def first_clusters(
    rows: Floats, members: Bools, n_clusters: int, seed: int, iterations: int = 50
) -> Ints:
    """k-means from nothing: centres far from each other (k-means++, Arthur and Vassilvitskii 2007), then Lloyd."""
    people = np.flatnonzero(members)
    n_clusters = min(n_clusters, len(people))
    centres = _spread_out(rows[people], n_clusters, seed)
    labels = np.where(members, 0, -1).astype(np.int32)
    assign(rows, centres, labels)
    return kmeans(rows, labels, n_clusters, iterations)


def kmeans(rows: Floats, labels: Ints, n_clusters: int, iterations: int) -> Ints:
    """Lloyd's k-means from given clusters on: centres from labels, labels from centres.

    It ends when at most one user in a thousand changed its cluster, or after so many iterations.
    """
    labels = labels.copy()
    for _ in range(iterations):
        if assign(rows, centres_of(rows, labels, n_clusters), labels) <= len(rows) // 1000:
            break
    return labels


def centres_of(rows: Floats, labels: Ints, n_clusters: int) -> Floats:
    """Means of clusters (clusters, d). An empty cluster moves to the user farthest from the centre of its own."""
    sums, counts = totals(rows, labels, n_clusters)
    centres = (sums / np.maximum(counts, 1)[:, None]).astype(np.float32)
    empty = np.flatnonzero(counts == 0)
    if len(empty):
        away = np.where(labels >= 0, ((rows - centres[labels]) ** 2).sum(axis=1), -1)
        farthest = np.argsort(-away, kind="stable")[: len(empty)]
        centres[empty[: len(farthest)]] = rows[farthest]
    return centres


def totals(rows: Floats, labels: Ints, n_clusters: int) -> tuple[Doubles, Longs]:
    """Sum of the rows of every cluster (clusters, d), and how many there are; labels below zero are left out."""
    n_blocks = -(-len(rows) // BLOCK)
    sums = np.empty((n_blocks, n_clusters, rows.shape[1]))
    counts = np.empty((n_blocks, n_clusters), np.int64)
    add_up = kernels.load("clusters").add_up
    parallel.over(
        lambda first, last: add_up(rows, labels, BLOCK, first, last, sums, counts), n_blocks
    )
    whole: Doubles = sums.cumsum(axis=0)[
        -1
    ]  # one block after the other; a pairwise sum would depend on their number
    return whole, counts.sum(axis=0)


def assign(rows: Floats, centres: Floats, labels: Ints) -> int:
    """Give every user with a label its nearest centre; writes labels. Returns how many changed."""
    changed: list[int] = []
    nearest = kernels.load("clusters").assign
    turned = np.ascontiguousarray(centres.T)
    half = (centres * centres).sum(axis=1) / np.float32(2)
    parallel.over(
        lambda a, b: changed.append(nearest(rows, turned, half, a, b, labels)), len(rows), BLOCK
    )
    return sum(changed)


def move_along(rows: Floats, labels: Ints, still: Bools, moves: Floats) -> None:
    """Add every cluster's move to its users that are not `still`; writes rows."""
    kernel = kernels.load("clusters").move_along
    parallel.over(
        lambda first, last: kernel(rows, labels, still, moves, first, last), len(rows), BLOCK
    )


def of_those(present: Bools, labels: Ints) -> Ints:
    """The clusters of those who are there; -1 for others."""
    return labels if present.all() else np.where(present, labels, -1).astype(np.int32)


def sizes_of(labels: Ints) -> Longs:
    """How many users each cluster has."""
    return np.bincount(labels[labels >= 0], minlength=1)


def draw(labels: Ints, quotas: Longs, seed: int, t: int) -> Ints:
    """So many users of each cluster, or all it has; who it is within a cluster is chance.

    Everybody draws a lot, and the lowest lots of a cluster are in. One cluster is plain sampling without replacement.
    """
    sizes = sizes_of(labels)
    quotas = np.minimum(quotas, sizes)
    key = streams.key(seed, "sampling", t)
    # lots are uniform: a threshold a little above the quota's share finds nearly only those that are needed
    share = (quotas + 6 * np.sqrt(quotas) + 8) / np.maximum(sizes, 1)
    found = _lowest(labels, key, share, quotas)
    return (
        found if len(found) == quotas.sum() else _lowest(labels, key, np.ones(len(sizes)), quotas)
    )


def turns(sizes: Longs, m: int, seed: int, t: int) -> Longs:
    """How many users each cluster sends when clusters take turns until there are m; who is first is chance."""
    m = min(m, int(sizes.sum()))
    whole = 0
    most = int(sizes.max())
    while whole < most:  # the most full turns that m users are enough for
        middle = (whole + most + 1) // 2
        whole, most = (
            (middle, most) if np.minimum(sizes, middle).sum() <= m else (whole, middle - 1)
        )
    quotas = np.minimum(sizes, whole)
    lots = streams.keys(seed, "turns", t, last=np.arange(len(sizes)))
    waiting = np.flatnonzero(sizes > whole)
    extra = waiting[np.argsort(lots[waiting], kind="stable")][: m - int(quotas.sum())]
    quotas[extra] += 1
    return quotas


def _lowest(labels: Ints, key: int, share: Doubles, quotas: Longs) -> Ints:
    """The users with their cluster's lowest lots, as many as its quota, looking only at lots below a share of all."""
    thresholds = np.array([WORD if s >= 1 else int(s * WORD) for s in share], np.uint64)
    drawn = np.empty(len(labels), bool)
    kernel = kernels.load("clusters").draw_lots
    parallel.over(
        lambda a, b: kernel(labels, np.uint64(key), thresholds, a, b, drawn), len(labels), BLOCK
    )
    people = np.flatnonzero(drawn)
    lots = streams.mix_array(
        np.uint64(key) ^ (people.astype(np.uint64) + np.uint64(streams.GOLDEN))
    )
    people = people[np.lexsort((lots, labels[people]))]
    groups = labels[people]
    rank = np.arange(len(people)) - np.searchsorted(groups, groups)
    return np.sort(people[rank < quotas[groups]]).astype(np.int32)


def _spread_out(rows: Floats, n: int, seed: int) -> Floats:
    """n rows, each drawn with a probability that grows with the squared distance to those drawn before."""
    rng = streams.at(seed, "k-means++")
    chosen = [int(rng.integers(len(rows)))]
    near = np.full(len(rows), np.inf)
    for _ in range(n - 1):
        away = (rows.astype(np.float64) - rows[chosen[-1]]) ** 2
        near = np.minimum(near, np.add.reduce(away, axis=1))
        total = np.cumsum(near)
        chosen.append(
            int(min(np.searchsorted(total, rng.random() * total[-1], side="right"), len(rows) - 1))
        )
    return rows[chosen]
