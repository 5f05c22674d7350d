"""EASE's closed form, from weighted co-occurrences of items.

Steck. Embarrassingly shallow autoencoders for sparse data. WWW 2019.

With h a user's history of n items as zeros and ones, G = sum h h^T / n^(2 p) and c_i = G_ii over
its mean, so that c_i is the popularity of item i:

    P = (G + reg diag(c^nu))^-1
    B = -P / diag(P), zero on the diagonal, column j divided by c_j^q

are the weights, and scores are h B. p = nu = q = 0 is EASE. A larger p makes long histories count
less. A larger nu shrinks the weights of popular items more; nu = 1 is what dropout of the input
amounts to (Steck. Autoencoders that don't overfit towards the identity. NeurIPS 2020). A larger q
recommends popular items less.

1 / n^(2 p) is rounded to fixed point, so that G is a sum of integers, and the same whether one
place has all histories or clients send theirs added up.
"""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from coterie import kernels
from coterie.algorithms.local.batched import find_device
from coterie.core import parallel
from coterie.core.settings import SearchSpace, Settings
from coterie.types import Doubles, Floats, Longs, Rows

FINE_BITS = 40
"""Bits of a weight behind the point, where 32-bit sums have too few."""
LEAST_WEIGHT = 64
"""The smallest weight in fixed point that is still fine enough."""


class ItemPairs(Settings):
    search_space: ClassVar[SearchSpace] = {
        "reg": (1.0, 5000.0),
        "length_exponent": [0.0, 0.25, 0.5],
        "reg_exponent": [0.0, 0.25, 0.5, 0.75, 1.0],
        "popularity_exponent": [0.0, 0.1, 0.2, 0.3, 0.4],
    }

    reg: float = Field(3.0, gt=0)
    """Regularisation of the item-to-item weights."""
    length_exponent: float = Field(0.5, ge=0, le=1)
    """A history of n items is divided by n to this power (p); 0 does not divide it."""
    reg_exponent: float = Field(0.0, ge=0, le=2)
    """Regularisation of an item is multiplied by its popularity to this power (nu)."""
    popularity_exponent: float = Field(0.0, ge=0, le=1)
    """Scores of an item are divided by its popularity to this power (q)."""
    max_memory: float = Field(8.0, gt=0)
    """GiB that the item-by-item matrices may take."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where the matrix is inverted. A GPU pays from some thousand items on; its last digits
    differ."""


class FixedPoint(NamedTuple):
    """How weights of histories become integers."""

    scale: int
    word: int
    """Bits of a word that the sum over all users fits into."""


def fixed_point(n_users: int, n_items: int, exponent: float) -> FixedPoint:
    """Depends on what everybody knows; 32-bit words where weights are then still fine enough."""
    if not exponent:
        return FixedPoint(1, 32)
    bits = 30 - int(n_users).bit_length()
    if bits > 0 and (1 << bits) / n_items ** (2 * exponent) >= LEAST_WEIGHT:
        return FixedPoint(1 << bits, 32)
    return FixedPoint(1 << FINE_BITS, 64)


def weights(counts: Longs, exponent: float, scale: int) -> Longs:
    """1 / n^(2 p) of histories of n items, in fixed point."""
    with np.errstate(divide="ignore"):
        exact = scale / counts.astype(np.float64) ** (2 * exponent)
    return np.where(counts > 0, np.rint(np.where(counts > 0, exact, 0)), 0).astype(np.int64)


def n_pairs(n_items: int) -> int:
    """Pairs of items, on and above the diagonal."""
    return n_items * (n_items + 1) // 2


def sum_pairs(histories: Rows, n_items: int, weight: Longs) -> Longs:
    """(pairs,) sum of weight h h^T over users, on and above the diagonal, row by row."""
    user = np.repeat(np.arange(len(weight), dtype=np.int32), histories.counts)
    by_item = Rows.build(histories.items, user, n_items)
    total = np.zeros(n_pairs(n_items), np.int64)
    kernel = kernels.load("cooccurrence").add_pairs
    # Work of an item: the lengths of its users' histories.
    lengths = np.concatenate([[0], np.cumsum(histories.counts[by_item.items])])
    parallel.over(
        lambda low, high: kernel(
            histories.offsets,
            histories.items,
            by_item.offsets,
            by_item.items,
            weight,
            low,
            high,
            total,
        ),
        lengths[by_item.offsets],
    )
    return total


def item_weights(pairs: Longs, n_items: int, scale: int, settings: ItemPairs) -> Floats:
    """(items, items) the weights B."""
    G = upper_to_matrix(pairs, n_items, scale)
    popularity = popularities(np.diag(G))
    G[np.diag_indices(n_items)] += settings.reg * popularity**settings.reg_exponent
    P = inverse(G) if settings.device == "cpu" else inverse_on_gpu(G)
    divisor = -np.diag(P) * popularity**settings.popularity_exponent
    B = np.empty((n_items, n_items), np.float32)
    for low in range(0, n_items, 1024):
        # Mirror and divide in blocks: a second matrix in double precision is not needed.
        block = slice(low, low + 1024)
        lower = P[block].copy()
        rows = np.arange(low, min(low + 1024, n_items))
        above = np.arange(n_items)[None, :] > rows[:, None]
        lower[above] = P[:, block].T[above]
        B[block] = lower / divisor
    B[np.diag_indices(n_items)] = 0
    return B


def inverse(G: Doubles) -> Doubles:
    """The inverse of a positive definite matrix; of both, the lower triangle counts. Overwrites G.

    LAPACK computes it on one thread, so that bits do not depend on the number of threads.
    """
    from scipy.linalg import lapack
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, "blas"):
        # By columns, the lower triangle that was filled by rows is the upper one.
        factor, failed = lapack.dpotrf(G.T, lower=0, overwrite_a=1, clean=0)
        assert not failed, "G is positive definite: a sum of h h^T plus a ridge"
        P, failed = lapack.dpotri(factor, lower=0, overwrite_c=1)
    assert not failed
    lower: Doubles = P.T
    return lower


def inverse_on_gpu(G: Doubles) -> Doubles:
    """`inverse` by PyTorch, with both triangles."""
    device = find_device("cuda")
    import torch

    factor = torch.linalg.cholesky(torch.from_numpy(G).to(device))
    full: Doubles = torch.cholesky_inverse(factor).cpu().numpy()
    return full


def popularities(diagonal: Doubles) -> Doubles:
    """Popularity of every item, 1 on average. Items that nobody has are like the least popular."""
    mean = float(diagonal.mean())
    if not mean:
        return np.ones(len(diagonal))
    least = diagonal[diagonal > 0].min()
    popularity: Doubles = np.maximum(diagonal, least) / mean
    return popularity


def upper_to_matrix(pairs: Longs, n_items: int, scale: int) -> Doubles:
    """(items, items) the pairs below and on the diagonal, in units of one; zeros above."""
    G = np.zeros((n_items, n_items))
    start = 0
    for i in range(n_items):
        end = start + n_items - i
        G[i:, i] = pairs[start:end]
        start = end
    G /= scale
    return G


def gigabytes(n_items: int) -> float:
    """GiB of the sums, of G and of B at the same time."""
    return (4 * n_items**2 + 8 * n_items**2 + 4 * n_items**2) / 2**30
