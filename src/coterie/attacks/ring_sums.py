"""What the sums over a ring say about its members (FedALS, FedEASE, FedSLIM).

FedALS sums x x^T, x and a count for every item over its users, and x x^T over the ring.

    a lone item     one member has it: the item's sums are that member's x x^T and x
    few members     no more of them than coordinates: S_i = X^T diag(h_i) X for every item i and
                    G = X^T X are diagonal in one basis. Its vectors are the members' x, and
                    the eigenvalues of S_i, zero or one, say which of them have the item

FedEASE and FedSLIM sum pairs of items. The row of a lone item is its user's history. Without that
user other items are lone.

A ring does not say which of its members a vector or a history belongs to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from coterie.core import streams
from coterie.types import Bools, Doubles, Ints, Longs

RANK = 1e-10
"""Smallest share of the largest eigenvalue that a member's vector has."""
NEAR = 0.2
"""Largest distance of an eigenvalue from zero or one."""
SEED = 0
"""Of the weights in a mixture of items. Any will do."""


class ItemSums(NamedTuple):
    """The sums of FedALS over a ring, for k coordinates, in units of one."""

    counts: Longs  # (items,)
    products: Doubles  # (items, k, k) sum of x x^T over an item's users
    vectors: Doubles  # (items, k) sum of x over an item's users
    gram: Doubles  # (k, k) sum of x x^T over the ring


class Members(NamedTuple):
    """Members of a ring, in no order."""

    vectors: Doubles  # (members, k) x, or -x
    histories: Bools  # (members, items)


def lone_items(counts: Longs) -> Longs:
    """Items that one member has."""
    return np.flatnonzero(counts == 1)


class LoneVector(NamedTuple):
    x: Doubles
    items: Longs
    """The lone items of its user."""


def lone_vectors(sums: ItemSums) -> list[LoneVector]:
    """The vectors of members with a lone item."""
    items = lone_items(sums.counts)
    if not len(items):
        return []
    vectors, member = np.unique(sums.vectors[items], axis=0, return_inverse=True)
    member = member.reshape(-1)
    return [LoneVector(x, items[member == k]) for k, x in enumerate(vectors)]


def up_to_sign(product: Doubles) -> Doubles:
    """x or -x from x x^T alone."""
    values, vectors = np.linalg.eigh(product)
    x: Doubles = vectors[:, -1] * np.sqrt(max(values[-1], 0.0))
    return x


def unmix(sums: ItemSums, n_members: int) -> Members | None:
    """All members' vectors and histories; None where members are more than coordinates."""
    values, basis = np.linalg.eigh(sums.gram)
    kept = values > RANK * values[-1]
    if n_members > len(values) or not kept.any():
        return None
    whiten = basis[:, kept] / np.sqrt(values[kept])  # (k, members)
    products = whiten.T @ sums.products @ whiten  # (items, members, members)
    weights = streams.at(SEED, "mixture").random(len(products))
    rotation = np.linalg.eigh(np.tensordot(weights, products, 1))[1]
    having = np.einsum("am,iab,bm->mi", rotation, products, rotation, optimize=True)
    histories = having > 0.5
    clear = np.abs(having - histories).max(axis=1) < NEAR
    vectors = ((basis[:, kept] * np.sqrt(values[kept])) @ rotation).T
    return Members(vectors[clear], histories[clear])


def pair_histories(pairs: Longs) -> Iterator[tuple[int, Ints]]:
    """(an item, the history of all its users), these users then taken off, until none is left.

    `pairs` (items, items) are sums of h h^T over a ring, each times a positive weight of its user.
    A row of one number and zeros is of an item whose users have the same history: mostly, a lone
    item.
    """
    left = pairs.copy()
    progress = True
    while progress:
        progress = False
        for item in np.flatnonzero(np.diag(left)).tolist():
            weight = left[item, item]
            history = np.flatnonzero(left[item]).astype(np.int32)
            if not weight or (left[item, history] != weight).any():
                continue
            yield item, history
            left[np.ix_(history, history)] -= weight
            progress = True
