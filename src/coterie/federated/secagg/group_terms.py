"""The terms of a `secagg` group, as the server and each node derive them from what they know."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np

from coterie.federated.federation import AnyExchange, AnyWorld
from coterie.federated.secagg.group_member import GroupTerms
from coterie.federated.secagg.session import GroupId
from coterie.federated.secagg.stages import StageArrays
from coterie.federated.secagg.words import Word
from coterie.types import Sizes

PHASES = ("rows", "values")
"""What a group sums: first, with group_rows=union, which rows of item tables its clients touched;
then the values. A place here is a number on the wire."""
ROWS = 0
VALUES = 1
ROW_WORD: Word = 64
"""Bits of the words by which clients tell their rows: two cancel with probability 2^-64."""
MAX_SIZE = 1 << 31
"""Sizes in a group's header are smaller."""


class GroupHeader(NamedTuple):
    """What a server sends about a group at every stage, as one row of integers."""

    number: int
    phase: int
    items: int
    item_width: int
    user_width: int
    dense: int

    @classmethod
    def read(cls, row: np.ndarray | None) -> GroupHeader | None:
        """The header in an array from the network; None if the array is not a valid one."""
        if row is None or row.dtype != np.int64 or row.shape != (len(cls._fields),):
            return None
        header = cls(*row.tolist())
        valid = min(header) >= 0 and max(header) < MAX_SIZE and header.phase < len(PHASES)
        return header if valid else None

    @property
    def sizes(self) -> Sizes:
        return Sizes(*self[2:])


def sums_union(world: AnyWorld, exchange: AnyExchange, sizes: Sizes) -> bool:
    """Whether a group finds out first which rows its clients touched."""
    secure = exchange.secure_sum
    assert secure is not None
    return world.settings.group_rows == "union" and bool(sizes.items) and secure.rows is None


def group_terms(
    world: AnyWorld,
    group: GroupId,
    phase: int,
    users: tuple[int, ...],
    length: int,
    word: Word,
    broadcast: bytes,
    fewest_survivors: int = 0,
) -> GroupTerms:
    """Everything but the users and what was broadcast follows from what each side knows itself."""
    settings = world.settings
    run = f"run {world.run} " if world.run else ""
    where = f"{run}round {group.round} exchange {group.exchange} group {group.number}"
    return GroupTerms(
        purpose=f"seed {world.seed} {where} {PHASES[phase]}",
        users=users,
        holders=min(settings.holders, len(users) - 1),
        colluders=settings.colluders,
        length=length,
        word=word,
        broadcast=broadcast,
        smallest=settings.fewest_clients,
        fewest_survivors=fewest_survivors,
    )


def digest_of_broadcast(common: StageArrays, before: bytes = b"") -> bytes:
    """A digest of everything that all clients of a group are sent at its first stage.

    `before` is the context of the phase that was before.
    """
    digest = hashlib.sha256(before)
    for name, array in sorted(common.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.digest()
