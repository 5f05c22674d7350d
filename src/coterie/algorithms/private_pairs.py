"""FedEASE under a privacy budget: what a client adds to the noisy sums, and what is left of them.

Noise hides the tail of the spectrum, and most of it where users are few. So a client sends two
things in one vector, the pairs of its items and the items themselves:

    h h^T / n^(2 p)    on and above the diagonal, the diagonal divided by sqrt 2
    h / sqrt n

Both have a norm that no history exceeds: 1 / sqrt 2 for p = 1/2 (less for a larger p; a smaller p
is refused) and 1. A share a of the squared sensitivity belongs to the items, the rest to the pairs.
With the diagonal multiplied by sqrt 2 again, the noise of the pairs is a matrix of the Gaussian
orthogonal ensemble: with s the deviation of its entries and m items, its largest eigenvalue is
about 2 s sqrt(m), and a larger one is signal.

What is left of the sums (post-processing: it depends on released sums and on sigma alone) are the
eigenvalues of G above what noise reaches, each as the one that would appear there under noise,
y -> (y + sqrt(y^2 - 4 s^2 m)) / 2. The first eigenvector is close to popularity. Where noise hides
it, noisy popularity takes its place:

    v       the noisy popularity, negative counts set to zero, as a unit vector
    G v     apart from its part along v, each entry shrunk as noise and popularity suggest
            (empirical Bayes)
    G       on the rest of the space, by its eigenvalues

Eigenvalues that noise hides are not zero, but their mean is known: the trace of G is the number of
users. With r that mean, EASE's closed form is that of V diag(l) V^T + r (I - V V^T). Where no
eigenvalue is above the noise, it recommends by noisy popularity.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coterie.algorithms.local.cooccurrence import sum_pairs, upper_to_matrix
from coterie.federated.federation import Sums
from coterie.federated.privacy.plan import NoisePlan
from coterie.types import Doubles, Floats, Longs, Rows

LEAST_SHARE = 0.1
MOST_SHARE = 0.95
SHARE_SLOPE = 3.0
"""The share of the items is so many times the noise multiplier times sqrt(items) over users: the
more noise there is on the pairs, the more is left to popularity. Chosen on MovieLens-100K."""
MOST_NOISE = 0.05
"""The largest share of noise in the first eigenvector with which it is used. Chosen on
MovieLens-100K, where it has 0.02 at epsilon 5 and 0.13 at epsilon 2."""
FIRST_EIGENVALUES = 32
TRACY_WIDOM = 2.02
"""The largest eigenvalue of noise is below s (2 sqrt(m) + 2.02 m^(-1/6)) with a probability of 0.99
(Tracy and Widom 1996; Bejan 2005 has tables)."""


class Scales(NamedTuple):
    """The integers that stand for one."""

    pairs: int
    items: int


def scales(plan: NoisePlan, n_users: int, n_items: int) -> Scales:
    share = popularity_share(plan, n_users, n_items)
    return Scales(
        pairs=math.floor(plan.sensitivity * math.sqrt(2 * (1 - share))),
        items=math.floor(plan.sensitivity * math.sqrt(share)),
    )


def popularity_share(plan: NoisePlan, n_users: int, n_items: int) -> float:
    """a, the share of the squared sensitivity that belongs to the items."""
    noise = plan.multiplier * math.sqrt(n_items) / n_users
    return min(max(SHARE_SLOPE * noise, LEAST_SHARE), MOST_SHARE)


# What clients send


def private_sums(histories: Rows, n_items: int, exponent: float, scale: Scales) -> Sums:
    """The sums over some users. Integers are rounded down, so that norms stay within bounds."""
    n = np.maximum(histories.counts, 1)
    pair_weight = np.minimum(
        scale.pairs // n, np.floor(scale.pairs / n ** (2.0 * exponent)).astype(np.int64)
    )
    pairs = sum_pairs(histories, n_items, pair_weight)
    pairs[diagonal_places(n_items)] = weighted_counts(histories, n_items, _over_sqrt2(pair_weight))
    item_weight = item_weights_of_users(histories.counts, scale.items)
    return {"pairs": pairs, "items": weighted_counts(histories, n_items, item_weight)}


def diagonal_places(n_items: int) -> Longs:
    """Where the diagonal is among the pairs on and above it, row by row."""
    rows = np.arange(n_items, dtype=np.int64)
    return rows * n_items - rows * (rows - 1) // 2


def _over_sqrt2(weight: Longs) -> Longs:
    """weight / sqrt 2, rounded down."""
    divided = np.floor(weight / math.sqrt(2)).astype(np.int64)
    return divided - (2 * divided**2 > weight**2)


def item_weights_of_users(counts: Longs, scale: int) -> Longs:
    """scale / sqrt(n) of histories of n items, rounded down."""
    n = np.maximum(counts, 1)
    weight = np.floor(scale / np.sqrt(n)).astype(np.int64)
    return weight - (weight**2 * n > scale**2)


def weighted_counts(histories: Rows, n_items: int, weight: Longs) -> Longs:
    """(items,) the weights of the users of each item, added up. Sums are exact below 2^53."""
    by_row = np.repeat(weight, histories.counts)
    return np.bincount(histories.items, by_row, n_items).astype(np.int64)


# What is left of the sums


class NoisySums(NamedTuple):
    """Released sums in units of one, with the standard deviation of their noise."""

    G: Doubles  # (items, items) symmetric
    pair_noise: float
    popularity: Doubles  # (items,)


def noisy_sums(pairs: Longs, items: Longs, scale: Scales, sigma: float) -> NoisySums:
    """`sigma` is that of the noise in the sums, in grid units."""
    G = upper_to_matrix(pairs, len(items), scale.pairs)
    G += np.tril(G, -1).T
    G[np.diag_indices(len(items))] *= math.sqrt(2)
    return NoisySums(G, sigma / scale.pairs, items / scale.items)


class LowRank(NamedTuple):
    """A symmetric matrix by some of its eigenvectors (items, rank) and eigenvalues (rank,)."""

    vectors: Doubles
    values: Doubles
    rest: float = 0.0
    """All its other eigenvalues."""


def denoised(noisy: NoisySums) -> LowRank:
    """G without what noise alone explains."""
    found = above_noise(noisy.G, noisy.pair_noise)
    if not len(found.values) or noise_in_direction(found, noisy) > MOST_NOISE:
        found = along_popularity(noisy)
    return found._replace(rest=mean_of_rest(float(np.trace(noisy.G)), found))


def mean_of_rest(trace: float, found: LowRank) -> float:
    """The mean of the eigenvalues that noise hides: their sum is what the trace leaves.

    The trace of G has hardly any noise: a history adds 1 to it for p = 1/2. An eigenvalue that was
    found is larger than those hidden, so that their mean is not above half of any.
    """
    m, rank = found.vectors.shape
    mean: float = max(trace - float(found.values.sum()), 0.0) / max(m - rank, 1)
    smallest = float(found.values.min(initial=np.inf))
    return min(mean, smallest / 2)


def above_noise(G: Doubles, noise: float) -> LowRank:
    """Eigenvalues above those of noise, as they are without it."""
    m = len(G)
    edge = 2 * noise * math.sqrt(m)
    above, vectors = eigenvalues_above(G, edge + noise * TRACY_WIDOM * m ** (-1 / 6))
    return LowRank(vectors, (above + np.sqrt(above**2 - edge**2)) / 2)


def noise_in_direction(found: LowRank, noisy: NoisySums) -> float:
    """The share of noise in the first eigenvector: s^2 m / l^2 for an eigenvalue l."""
    return len(noisy.G) * (noisy.pair_noise / float(found.values.max())) ** 2


def along_popularity(noisy: NoisySums) -> LowRank:
    """G with popularity in place of its first eigenvector, which noise hides."""
    G = noisy.G
    v = popularity_direction(noisy.popularity)
    Gv = G @ v
    along = float(v @ Gv)
    across = shrunk(Gv - along * v, v, noisy.pair_noise)
    rest = G - np.outer(v, Gv) - np.outer(Gv, v) + along * np.outer(v, v)
    vectors, signal, _ = above_noise(rest, noisy.pair_noise)
    # All of it within the space of v, G v and the vectors, where it is a small matrix.
    basis, _ = np.linalg.qr(np.column_stack([v, across, vectors]))
    small_v = basis.T @ v
    small_across = basis.T @ across
    small_vectors = basis.T @ vectors
    small = max(along, noisy.pair_noise) * np.outer(small_v, small_v)
    small += np.outer(small_v, small_across) + np.outer(small_across, small_v)
    small += (small_vectors * signal) @ small_vectors.T
    values, turned = np.linalg.eigh(small)
    positive = values > 0
    return LowRank(basis @ turned[:, positive], values[positive])


def popularity_direction(popularity: Doubles) -> Doubles:
    """Noisy popularity as a unit vector; that of equal counts if noise left nothing."""
    counts = np.maximum(popularity, 0)
    if not counts.any():
        counts = np.ones(len(popularity))
    direction: Doubles = counts / np.linalg.norm(counts)
    return direction


def shrunk(vector: Doubles, scale: Doubles, noise: float) -> Doubles:
    """A vector with noise on each entry, each entry as close to the one without as is expected.

    Without noise, entries are taken to have deviations in proportion to `scale`, a unit vector:
    popular items differ more. 0 where noise alone is as large in one of 100 cases.
    """
    squared = scale**2
    excess = float(squared @ vector**2) / noise**2 - 1
    fourth = float(squared @ squared)
    if excess <= 2.33 * math.sqrt(2 * fourth):
        return np.zeros_like(vector)
    signal = excess / fourth * squared  # variance of each entry, in units of noise^2
    return vector * signal / (signal + 1)


def eigenvalues_above(matrix: Doubles, least: float) -> tuple[Doubles, Doubles]:
    """Eigenvalues above a bound, and their vectors."""
    from scipy.linalg import eigh
    from scipy.sparse.linalg import eigsh

    m = len(matrix)
    k = FIRST_EIGENVALUES
    start = np.ones(m)
    while k < m // 4:
        values, vectors = eigsh(matrix, k, which="LA", v0=start)
        if values[0] <= least:
            kept = values > least
            return values[kept], vectors[:, kept]
        k *= 2
    values, vectors = eigh(matrix, subset_by_value=(least, np.inf))
    return values, vectors


def item_weights(G: LowRank, reg: float) -> Floats:
    """(items, items) EASE's weights B, from eigenvalues instead of an inverse.

    With r the other eigenvalues, P = (G + reg I)^-1 = (I - A) / (r + reg), where
    A = V diag((l - r) / (l + reg)) V^T, so that B = -P / diag(P) = A / (1 - diag(A)) beside the
    diagonal.
    """
    A = (G.vectors * ((G.values - G.rest) / (G.values + reg))) @ G.vectors.T
    A /= 1 - np.diag(A)
    B = A.astype(np.float32)
    B[np.diag_indices(len(B))] = 0
    return B
