"""FedALS under a privacy budget: what a client adds to the noisy sums, and how items are solved.

After Chien, Jain, Krichene, Rendle, Song, Thakurta, Zhang. Private alternating least squares. ICML
2021. A user's vector x stays on the device, which computes it from published items and the user's
own history. So only the sums need noise (joint differential privacy). A client sends in one vector

    1 / sqrt n      for each of the n items of its history, to be added up to c
    x / sqrt n      for each of them, to be added up to B, a row for every item
    x x^T           on and above the diagonal, off-diagonals times sqrt 2, to be added up to G

with x divided by its length. Each part has an L2 norm of at most 1, whatever the history, and a
fixed share of the squared sensitivity.

Deviations. The paper clips x; here x always has length 1, so that every user has the same influence
and there is no clip to choose. The paper also sends x x^T for every item. Noise hides most of these
sums, so that G takes their place:

    sum of x x^T / sqrt n over the users of i  ~  c_i G / clients

On the validation part of MovieLens-100K, a tenth of the squared sensitivity for them lowers NDCG@10
from 0.470 to 0.463 at epsilon 20, and from 0.413 to 0.412 at 5. All items of a user have the same
weight: weights that favour rare items (Krichene et al. Multi-task differential privacy under
distribution skew. ICML 2023) do not raise NDCG@10 there.

How items are solved (post-processing: it depends on released sums and on sigma alone). A row of B
is its popularity times the mean x, and a rest:

    mean    the regression of B on c
    c       its own noisy value and that of B along the mean, weighted by their noise; then shrunk
    rest    as if drawn from a normal distribution of covariance c_i T. T is what noise leaves of
            the covariance of all rests; each rest becomes its mean given noise. Where noise is
            large, it is 0, and the item is recommended by popularity
    y_i     (1 + alpha) ((w + alpha c_i) (G / clients + ridge I))^-1 B_i

w is the sum of 1 / sqrt n over clients, about clients^2 / sum of c.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coterie.algorithms.private_pairs import item_weights_of_users
from coterie.errors import ConfigError
from coterie.federated.federation import Sums
from coterie.federated.privacy.plan import NoisePlan
from coterie.types import SCALE, Doubles, Floats, Ints, Longs, Rows

ROUNDS = 2
EMBEDDING_SIZE = 16
REG = 0.03
"""Defaults under a privacy budget, chosen at epsilon 5 and 20 on the validation part of
MovieLens-100K. The regularisation does not follow from the number of interactions, which is not
public."""
SHARE_OF_COUNTS = 0.05
SHARE_OF_GRAM = 0.02
"""Shares of the squared sensitivity; the rest belongs to B. Chosen on MovieLens-100K."""
ITEM_RIDGE = 1.0
"""Ridge of an item, in mean eigenvalues of G. Chosen on MovieLens-100K."""
JUST_BELOW = 1 - 1e-9
"""Keeps products within their bound, however they are rounded."""
BLOCK = 1024
"""Users whose outer products are in memory at a time."""


def check(block_size: int, rated: bool) -> None:
    """Refuse settings that a privacy budget rules out."""
    if block_size:
        raise ConfigError(
            f"setting 'block_size' is {block_size}; under a privacy budget (epsilon) expected 0: "
            "every round of a block would spend as much of it as a round of all coordinates. "
            "Set block_size=0."
        )
    if rated:
        raise ConfigError(
            "setting 'feedback' is 'explicit'; under a privacy budget (epsilon) expected "
            "'implicit': what ratings add to the sums of fedals has no bound. "
            "Set feedback=implicit, or leave epsilon out."
        )


class VectorScales(NamedTuple):
    """The integers that stand for one."""

    counts: int
    vectors: int
    gram: int


def scales(plan: NoisePlan) -> VectorScales:
    share_of_vectors = 1 - SHARE_OF_COUNTS - SHARE_OF_GRAM
    return VectorScales(
        counts=math.floor(plan.sensitivity * math.sqrt(SHARE_OF_COUNTS)),
        vectors=math.floor(plan.sensitivity * math.sqrt(share_of_vectors)),
        gram=math.floor(plan.sensitivity * math.sqrt(SHARE_OF_GRAM)),
    )


# What clients send


def unit_vectors(X: Floats) -> Ints:
    """x of every client at length 1, in fixed point, rounded towards zero. Zeros stay zeros."""
    # Dividing by the largest entry first keeps squares finite.
    largest = np.abs(X).max(axis=1, keepdims=True, initial=0).astype(np.float64)
    usable = np.isfinite(X).all(axis=1, keepdims=True) & (largest > 0)
    directions = np.where(usable, X, 0.0) / np.where(usable, largest, 1.0)
    lengths = np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), 1.0)
    vectors: Ints = np.trunc(directions / lengths * (SCALE * JUST_BELOW)).astype(np.int32)
    return vectors


def private_sums(history: Rows, vectors: Ints, n_items: int, scale: VectorScales) -> Sums:
    """c and B as columns of `items`, and G as `users`. No client adds more than the plan allows."""
    from scipy.sparse import csr_array

    n, d = vectors.shape
    weight = item_weights_of_users(history.counts, scale.vectors)
    rows = np.empty((n, 1 + d), np.int64)
    rows[:, 0] = item_weights_of_users(history.counts, scale.counts)
    rows[:, 1:] = over(weight[:, None] * vectors, SCALE)
    ones = np.ones(len(history.items), np.int64)
    owned = csr_array((ones, history.items, history.offsets), shape=(n, n_items))
    return {"items": owned.T @ rows, "users": outer_products(vectors, scale.gram)}


def over(product: Longs, divisor: int) -> Longs:
    """A quotient of integers, rounded towards zero."""
    quotient: Longs = np.sign(product) * (np.abs(product) // divisor)
    return quotient


def outer_products(vectors: Ints, scale: int) -> Longs:
    """(d (d + 1) / 2,) the sum of x x^T, off-diagonals times sqrt 2."""
    first, second = np.triu_indices(vectors.shape[1])
    unit = scale * JUST_BELOW * np.where(first == second, 1.0, math.sqrt(2))
    total = np.zeros(len(first), np.int64)
    for begin in range(0, len(vectors), BLOCK):
        x = vectors[begin : begin + BLOCK] / SCALE
        total += np.trunc(x[:, first] * x[:, second] * unit).astype(np.int64).sum(axis=0)
    return total


# How items are solved


class NoisyVectorSums(NamedTuple):
    """Released sums in units of one, with the standard deviations of their noise."""

    c: Doubles  # (items,)
    c_noise: float
    B: Doubles  # (items, d)
    B_noise: float
    G: Doubles  # (d, d) symmetric


def noisy_sums(sums: Sums, scale: VectorScales, sigma: float) -> NoisyVectorSums:
    """`sigma` is that of the noise in the sums, in grid units."""
    d = sums["items"].shape[1] - 1
    upper = np.zeros((d, d))
    upper[np.triu_indices(d)] = sums["users"] / scale.gram
    off_diagonal = np.triu(upper, 1) / math.sqrt(2)
    return NoisyVectorSums(
        c=sums["items"][:, 0] / scale.counts,
        c_noise=sigma / scale.counts,
        B=sums["items"][:, 1:] / scale.vectors,
        B_noise=sigma / scale.vectors,
        G=np.diag(np.diag(upper)) + off_diagonal + off_diagonal.T,
    )


def solve_items(noisy: NoisyVectorSums, n_clients: int, alpha: float) -> Floats:
    """Y"""
    n_items, d = noisy.B.shape
    c, B = denoised(noisy)
    # A client adds sqrt n to the sum of c, which is at least 1 and at most sqrt(items).
    total = min(max(float(noisy.c.sum()), n_clients), n_clients * math.sqrt(n_items))
    w = n_clients**2 / total
    values, V = np.linalg.eigh(noisy.G / n_clients)
    # The trace of G is the number of clients, so that the mean eigenvalue is 1 / d.
    spread = np.maximum(values, 0) + ITEM_RIDGE / d
    Y: Doubles = (1 + alpha) * (B @ V / spread) @ V.T / (w + alpha * c)[:, None]
    return Y.astype(np.float32)


def denoised(noisy: NoisyVectorSums) -> tuple[Doubles, Doubles]:
    """c and B without what noise alone explains."""
    mean = mean_vector(noisy)
    certainty = noisy.c_noise**-2 + mean @ mean * noisy.B_noise**-2
    c = (noisy.c * noisy.c_noise**-2 + noisy.B @ mean * noisy.B_noise**-2) / certainty
    c = np.maximum(c, 0)
    rest = noisy.B - np.outer(c, mean)
    c *= c**2 / (c**2 + 1 / certainty)
    return c, np.outer(c, mean) + shrunk(rest, c, noisy.B_noise)


def mean_vector(noisy: NoisyVectorSums) -> Doubles:
    """The mean x of the users of an item: the regression of B on positive c."""
    c = np.maximum(noisy.c, 0)
    squares = float(c @ c)
    mean: Doubles = c @ noisy.B / squares if squares else np.zeros(noisy.B.shape[1])
    return mean


def shrunk(rest: Doubles, c: Doubles, noise: float) -> Doubles:
    """The mean of every row given its noisy value, if rows have the covariance c_i T.

    T is estimated by moments, with negative eigenvalues set to zero.
    """
    d = rest.shape[1]
    squares = float(c @ c)
    if not squares:
        return np.zeros_like(rest)
    T = (rest.T @ (rest * c[:, None]) - c.sum() * noise**2 * np.eye(d)) / squares
    values, V = np.linalg.eigh(T)
    signal = np.outer(c, np.maximum(values, 0))
    kept: Doubles = (rest @ V * (signal / (signal + noise**2))) @ V.T
    return kept
