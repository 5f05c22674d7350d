"""Data that crosses module borders: plain frozen records of contiguous arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    pass

Ints: TypeAlias = NDArray[np.int32]
Longs: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float32]
Doubles: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
Ids: TypeAlias = NDArray[Any]  # external ids: strings, or integers where the caller gave integers
JsonObject: TypeAlias = dict[str, Any]
"""A JSON object as it is read from a file or will be written to one."""

SCALE = 1 << 20
"""Updates travel in fixed point: one is SCALE."""
TOO_LARGE = 8 * SCALE
"""An entry of an update is below this; then 2^17 users cannot overflow a sum of products of two in 64 bits."""
NOT_FINITE = -(1 << 31)
"""What a device sends in place of a number that is none; like everything out of range it is refused."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Items per user, one user after the other: user u owns `items[offsets[u]:offsets[u + 1]]`, ascending."""

    offsets: Longs  # (users + 1,)
    items: Ints  # (interactions,)

    @classmethod
    def build(cls, users: Ints, items: Ints, n_users: int) -> Rows:
        packed = (
            users.astype(np.int64) << 32 | items
        )  # one number sorts four times faster than two columns
        packed.sort()
        counts = np.bincount(users, minlength=n_users)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return cls(offsets, (packed & 0xFFFFFFFF).astype(np.int32))

    @property
    def counts(self) -> Longs:
        return np.diff(self.offsets)

    def counts_of(self, users: Ints | Longs) -> Longs:
        """How many items the given users have, without a look at the others."""
        return self.offsets[users + 1] - self.offsets[users]

    def of(self, user: int) -> Ints:
        return self.items[self.offsets[user] : self.offsets[user + 1]]

    def take(self, users: Ints | Longs) -> tuple[Longs, Ints]:
        """(row, item) for every item of the given users; row counts within `users`."""
        return np.repeat(np.arange(len(users)), self.counts_of(users)), self.items[
            self.places(users)
        ]

    def places(self, users: Ints | Longs) -> Longs:
        """Where the items of the given users stand, one user after the other."""
        counts = self.counts_of(users)
        starts: Longs = np.repeat(self.offsets[users] - (np.cumsum(counts) - counts), counts)
        return starts + np.arange(len(starts))

    def of_users(self, users: Ints | Longs) -> Rows:
        """The rows of some users, numbered anew in the order given."""
        offsets = np.concatenate([[0], np.cumsum(self.counts_of(users))]).astype(np.int64)
        return Rows(offsets, self.items[self.places(users)])


@dataclass(frozen=True, slots=True)
class Message:
    """What the server sends to a node: arrays for everybody, and rows that belong to single users."""

    round: int
    users: Ints  # (n,) ascending
    common: dict[str, np.ndarray]
    own: dict[str, np.ndarray]  # each (n, ...)
    exchange: int = 0
    """Which one of the round."""
    private_state: dict[str, np.ndarray] = field(default_factory=dict)
    """What the users' devices kept for themselves, each (n, ...): no server sends it, the node adds it from its own store."""

    def to(self, which: Bools | Longs) -> Message:
        """The same message for some of the users."""
        own, private_state = (
            {name: rows[which] for name, rows in part.items()}
            for part in (self.own, self.private_state)
        )
        return Message(
            self.round, self.users[which], self.common, own, self.exchange, private_state
        )

    def and_from(self, other: Message) -> Message:
        """With what another server sends the same users."""
        return replace(self, common=self.common | other.common, own=self.own | other.own)


class Sizes(NamedTuple):
    """What an update may hold: item rows with numbers below `items`, and how wide everything is."""

    items: int
    item_width: int
    user_width: int
    dense: int


@dataclass(frozen=True, slots=True)
class Updates:
    """What the users of a cohort send back, as columns: one user's update is a slice, a node's reply a concatenation.

    Entries are fixed point: q = rint(change * SCALE). The item rows of user k are offsets[k]:offsets[k + 1].
    """

    users: Ints  # (n,)
    samples: Longs  # (n,) what n_k is in the papers
    offsets: Longs  # (n + 1,)
    items: Ints  # (rows,) ascending within a user
    item_rows: Ints  # (rows, width)
    user_rows: Ints  # (n, width)
    dense: Ints  # (n, size)

    def __len__(self) -> int:
        return len(self.users)

    def columns(self) -> dict[str, np.ndarray]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def take(self, which: Longs) -> Updates:
        """The updates of some users, in the order given."""
        rows = Rows(self.offsets, self.items)
        places = rows.places(which)
        chosen = rows.of_users(which)
        return Updates(
            self.users[which],
            self.samples[which],
            chosen.offsets,
            chosen.items,
            self.item_rows[places],
            self.user_rows[which],
            self.dense[which],
        )

    @classmethod
    def of_item_rows(cls, users: Ints, items: Sequence[Ints], rows: Sequence[Ints]) -> Updates:
        """Updates that are item rows alone: of client k, `rows[k]` for the items `items[k]`."""
        n = len(users)
        none = np.empty((n, 0), np.int32)
        return cls(
            users=users,
            samples=np.ones(n, np.int64),
            offsets=np.concatenate([[0], np.cumsum([len(each) for each in items])]),
            items=np.concatenate(items),
            item_rows=np.concatenate(rows),
            user_rows=none,
            dense=none,
        )

    @classmethod
    def joined(cls, parts: Sequence[Updates]) -> Updates:
        """All of them, in the order of their users."""
        if len(parts) == 1 and bool((np.diff(parts[0].users) > 0).all()):
            return parts[0]
        counts = np.concatenate([np.diff(p.offsets) for p in parts])
        columns = {f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)}
        whole = cls(**columns | {"offsets": np.concatenate([[0], np.cumsum(counts)])})
        return whole.take(np.argsort(whole.users, kind="stable"))
