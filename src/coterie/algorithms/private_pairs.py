"""FedEASE under a privacy budget: what a client adds to the noisy sums, and what is left of them.

Noise hides the tail of the spectrum, and most of it where users are few. So a client sends two
things in one vector, the pairs of its items and the items themselves:

    h h^T / n^(2 p)    on and above the diagonal, the diagonal divided by sqrt 2
    h / sqrt n

Both have a norm that no history exceeds: 1 / sqrt 2 for p = 1/2 (less for a larger p; a smaller p
is refused) and 1. A share a of the squared sensitivity belongs to the items, the rest to the pairs.
With the diagonal multiplied by sqrt 2 again, the noise of the pairs is a matrix of the Gaussian
orthogonal ensemble, with s the deviation of its entries.

What the server makes of the sums is post-processing: it depends on released sums and on sigma
alone. The first eigenvector of G is close to popularity, which is released with less noise:

    v       the noisy popularity, negative counts set to zero, as a unit vector
    g       G v apart from its part along v, each entry shrunk as noise and popularity suggest
            (empirical Bayes)
    R       G on the rest of the space, with its eigenvectors, and in place of each eigenvalue y
            the best one for that vector, y - 2 s^2 sum_j 1 / (y - y_j) over all of R's eigenvalues
            (Bun, Allez, Bouchaud, Potters. Rotational invariant estimator for general noisy
            matrices. IEEE Transactions on Information Theory 2016)

Noise moves eigenvalues apart, and the sum moves them together again: where there is only noise, all
become their mean. EASE's closed form follows from these three, with a ridge that grows with the
noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from coterie.algorithms.local.batched import find_device
from coterie.algorithms.local.cooccurrence import sum_pairs, upper_to_matrix
from coterie.federated.federation import Sums
from coterie.federated.privacy.plan import NoisePlan
from coterie.types import Doubles, Floats, Longs, Rows

LEAST_SHARE = 0.1
MOST_SHARE = 0.95
SHARE_SLOPE = 3.0
"""The share of the items is so many times the noise multiplier times sqrt(items) over users: the
more noise there is on the pairs, the more is left to popularity. Chosen on MovieLens-100K."""
BANDWIDTH = 0.3
"""Of the sum over eigenvalues, in units of s m^(1/6), with m items. Chosen on MovieLens-100K: wide
enough to leave something to eigenvalues near the edge of the noise's, which have some signal."""
AT_ONCE = 512
"""Eigenvalues whose distances to all others are in memory at a time."""
RIDGE_OF_NOISE = 3.0
"""The ridge is the mean eigenvalue and so many times the deviation of the noise, for `reg` = 3.
Chosen on MovieLens-100K and synthetic data."""


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


def item_weights(noisy: NoisySums, reg: float, device: str = "cpu") -> Floats:
    """(items, items) EASE's weights B of what noise does not explain."""
    P = inverse(noisy, reg / RIDGE_OF_NOISE, device)
    P /= -np.diag(P)
    B = P.astype(np.float32)
    B[np.diag_indices(len(B))] = 0
    return B


def inverse(noisy: NoisySums, factor: float, device: str = "cpu") -> Doubles:
    """(G + ridge I)^-1 of what noise does not explain of G.

    In blocks, along v and across it: with Q the inverse of R + ridge I and c what is left along v,

        P = Q + (v - Q g) (v - Q g)^T / c,    c = v^T G v + ridge - g^T Q g
    """
    v = popularity_direction(noisy.popularity)
    Gv = noisy.G @ v
    along = max(float(v @ Gv), noisy.pair_noise)
    g = shrunk(Gv - float(v @ Gv) * v, v, noisy.pair_noise)
    ridge = factor * ridge_for(noisy, along)
    Q = inverse_across(noisy.G, v, Gv, noisy.pair_noise, ridge, device)
    Qg = Q @ g
    # Noise in g may leave less than the ridge, or nothing: then G has no part of its own along v.
    c = max(along + ridge - float(g @ Qg), ridge)
    Q += np.outer(v - Qg, (v - Qg) / c)
    return Q


def ridge_for(noisy: NoisySums, along: float) -> float:
    """For `reg` = 3: the less of the noise G is above, the larger."""
    m = len(noisy.G)
    mean = max(float(np.trace(noisy.G)) / m, 0.0)
    most_noise = 2 * noisy.pair_noise * math.sqrt(m)  # the largest eigenvalue of noise alone
    return mean + RIDGE_OF_NOISE * noisy.pair_noise * (1 + most_noise / along)


def inverse_across(
    G: Doubles, v: Doubles, Gv: Doubles, noise: float, ridge: float, device: str
) -> Doubles:
    """Q, the inverse of R + ridge I on the space across v; zero along v."""

    def inverted(values: Doubles) -> Doubles:
        cleaned = np.maximum(cleaned_eigenvalues(values, noise), 0)
        return 1 / (cleaned + ridge)

    rest = G - np.outer(v, Gv)
    rest -= np.outer(rest @ v, v)
    with_values = with_eigenvalues if device == "cpu" else with_eigenvalues_on_gpu
    # Single precision halves the time; its errors are far below any noise.
    Q = with_values(rest.astype(np.float32), inverted).astype(np.float64)
    Q -= np.outer(v, v @ Q)
    Q -= np.outer(Q @ v, v)
    return Q


def with_eigenvalues(symmetric: Floats, function: Callable[[Doubles], Doubles]) -> Floats:
    """The matrix with the same eigenvectors, and a function of its eigenvalues."""
    from scipy.linalg import eigh

    values, vectors = eigh(symmetric, overwrite_a=True, check_finite=False)
    other = function(values.astype(np.float64)).astype(np.float32)
    changed = (vectors * other) @ vectors.T
    return changed.astype(np.float32, copy=False)


def with_eigenvalues_on_gpu(symmetric: Floats, function: Callable[[Doubles], Doubles]) -> Floats:
    """`with_eigenvalues` by PyTorch."""
    device = find_device("cuda")
    import torch

    values, vectors = torch.linalg.eigh(torch.from_numpy(symmetric).to(device))
    other = torch.from_numpy(function(values.double().cpu().numpy())).to(vectors)
    changed: Floats = ((vectors * other) @ vectors.T).cpu().numpy()
    return changed


def cleaned_eigenvalues(values: Doubles, noise: float) -> Doubles:
    """Of each eigenvector of a matrix with noise, the best eigenvalue, in the order of `values`.

    The sum has poles at the eigenvalues themselves; BANDWIDTH keeps away from them.
    """
    from scipy.optimize import isotonic_regression

    m = len(values)
    width = BANDWIDTH * noise * m ** (1 / 6)
    moved = np.empty(m)
    for first in range(0, m, AT_ONCE):
        apart = values[first : first + AT_ONCE, None] - values
        moved[first : first + AT_ONCE] = (apart / (apart**2 + width**2)).sum(axis=1)
    # Larger eigenvalues of G stay larger; the sum alone would leave fluctuations.
    cleaned: Doubles = isotonic_regression(values - 2 * noise**2 * moved).x
    return cleaned


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
