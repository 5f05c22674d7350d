"""The vector that clients add up in secret: an exchange's sums over one client, as words."""

from __future__ import annotations

import numpy as np

from coterie.federated.contract import check_sums
from coterie.federated.federation import AnyExchange, AnyWorld
from coterie.federated.secagg.crypto import Rejected
from coterie.federated.secagg.words import Words, fits, to_words
from coterie.federated.validation import Expected, no_updates
from coterie.types import Ints, Message, Sizes, Updates


def summed_rows(
    world: AnyWorld, exchange: AnyExchange, number: int, n_items: int, union: np.ndarray | None
) -> Ints:
    """The rows of item tables that a ring sums."""
    assert exchange.secure_sum is not None
    if union is not None:
        return np.flatnonzero(np.unpackbits(union, count=n_items)).astype(np.int32)
    if exchange.secure_sum.rows is not None:
        return exchange.secure_sum.rows(world, number)
    return np.arange(n_items, dtype=np.int32)


def vector_length(
    world: AnyWorld, exchange: AnyExchange, message: Message, sizes: Sizes, rows: Ints
) -> int:
    """The length of the vector that a ring sums."""
    return sum(part.size for part in zero_sums(world, exchange, message, sizes, rows).values())


def zero_sums(
    world: AnyWorld, exchange: AnyExchange, message: Message, sizes: Sizes, rows: Ints
) -> dict[str, np.ndarray]:
    """The sums of an exchange over no users: their names, shapes and zeros."""
    no_users = message.to(np.empty(0, np.int64))
    updates = no_updates(Expected.of(no_users, sizes))
    return sums_of(world, exchange, no_users, updates, rows)


def flat_vector(
    world: AnyWorld, exchange: AnyExchange, message: Message, updates: Updates, rows: Ints
) -> Words:
    """The sums over one user as a vector modulo 2^word; Rejected if an entry exceeds its bound.

    With such an entry the sum could wrap, and the server could not detect it.
    """
    secure = exchange.secure_sum
    assert secure is not None
    sums = sums_of(world, exchange, message, updates, rows)
    vector = np.concatenate([part.ravel() for part in sums.values()])
    bound = secure.max_entry(world)
    if not fits(vector, bound):
        raise Rejected(f"an entry of the update exceeds {bound}, the bound of its exchange")
    return to_words(vector, secure.word(world))


def sums_of(
    world: AnyWorld, exchange: AnyExchange, message: Message, updates: Updates, rows: Ints
) -> dict[str, np.ndarray]:
    """The sums of an exchange over some users by name, restricted to the summed item rows."""
    ring = exchange.secure_sum
    assert ring is not None
    sums = check_sums(world, exchange, exchange.aggregate(world, message, updates))
    sums = ring.to_table(world, sums)
    return {
        name: part[rows] if name in ring.by_item and len(rows) < len(part) else part
        for name, part in sorted(sums.items())
    }


def touched_items(updates: Updates, n_items: int) -> np.ndarray:
    """(n, bytes) the items in each user's update, one bit per item."""
    touched = np.zeros((len(updates), n_items), bool)
    user_of_row = np.repeat(np.arange(len(updates)), np.diff(updates.offsets))
    touched[user_of_row, updates.items] = True
    return np.packbits(touched, axis=1)
