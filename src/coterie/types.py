"""Array aliases, and the frozen records of arrays that modules exchange."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int32]
Longs: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float32]
Doubles: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
Ids: TypeAlias = NDArray[Any]  # external ids: strings, or integers where the caller gave integers
Octets: TypeAlias = NDArray[np.uint8]
Signs: TypeAlias = NDArray[np.int8]  # +1 and -1
JsonObject: TypeAlias = dict[str, Any]
"""A parsed JSON object, or one to be written."""

SCALE = 1 << 20
"""Updates are sent in fixed point: SCALE represents 1.0."""
TOO_LARGE = 8 * SCALE
"""Exclusive bound on the entries of an update.

Below it, a 64-bit sum of products of two entries cannot overflow for 2^17 users.
"""
NOT_FINITE = -(1 << 31)
"""A client sends this in place of NaN or infinity. The server rejects it as out of range."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Items per user in compressed sparse rows.

    User u owns `items[offsets[u]:offsets[u + 1]]`, in ascending order.
    """

    offsets: Longs  # (users + 1,)
    items: Ints  # (interactions,)

    @classmethod
    def build(cls, users: Ints, items: Ints, n_users: int) -> Rows:
        # Sorting one packed integer is four times faster than sorting two columns.
        packed = users.astype(np.int64) << 32 | items
        packed.sort()
        counts = np.bincount(users, minlength=n_users)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return cls(offsets, (packed & 0xFFFFFFFF).astype(np.int32))

    def refuse_other_shape(self, n_users: int, n_items: int) -> None:
        """Refuse rows from a file that are not of so many users and items.

        Kernels do not check indices: a wrong one would read other memory.
        """
        if self.offsets.dtype != np.int64 or self.offsets.shape != (n_users + 1,):
            raise ValueError(f"offsets have shape {self.offsets.shape}; expected {n_users + 1}")
        if self.items.dtype != np.int32 or self.items.ndim != 1:
            raise ValueError(f"items have type {self.items.dtype}; expected int32")
        ends = (self.offsets[0], self.offsets[-1])
        if ends != (0, len(self.items)) or (np.diff(self.offsets) < 0).any():
            raise ValueError(f"offsets do not ascend from 0 to {len(self.items)}")
        if len(self.items) and not 0 <= self.items.min() <= self.items.max() < n_items:
            raise ValueError(f"items are not all from 0 to {n_items - 1}")

    @property
    def counts(self) -> Longs:
        return np.diff(self.offsets)

    def counts_of(self, users: Ints | Longs) -> Longs:
        """The number of items of each given user; cost does not depend on the other users."""
        return self.offsets[users + 1] - self.offsets[users]

    def of(self, user: int) -> Ints:
        return self.items[self.offsets[user] : self.offsets[user + 1]]

    def take(self, users: Ints | Longs) -> tuple[Longs, Ints]:
        """(row, item) for every item of the given users; `row` is a position in `users`."""
        rows = np.repeat(np.arange(len(users)), self.counts_of(users))
        return rows, self.items[self.places(users)]

    def places(self, users: Ints | Longs) -> Longs:
        """Positions in `items` of the given users' items, concatenated in the order of `users`."""
        counts = self.counts_of(users)
        starts: Longs = np.repeat(self.offsets[users] - (np.cumsum(counts) - counts), counts)
        return starts + np.arange(len(starts))

    def of_users(self, users: Ints | Longs) -> Rows:
        """The rows of some users, renumbered in the given order."""
        offsets = np.concatenate([[0], np.cumsum(self.counts_of(users))]).astype(np.int64)
        return Rows(offsets, self.items[self.places(users)])


@dataclass(frozen=True, slots=True)
class Message:
    """A message from the server to a node: common arrays, and one row per user."""

    round: int
    users: Ints  # (n,) ascending
    common: dict[str, np.ndarray]
    own: dict[str, np.ndarray]  # each (n, ...)
    exchange: int = 0
    """Index of the exchange within the round."""
    private_state: dict[str, np.ndarray] = field(default_factory=dict)
    """Private client state, each (n, ...). Only the node adds it, from its store."""

    def to(self, which: Bools | Longs) -> Message:
        """The same message for a subset of its users."""
        own, private_state = (
            {name: rows[which] for name, rows in part.items()}
            for part in (self.own, self.private_state)
        )
        return Message(
            self.round, self.users[which], self.common, own, self.exchange, private_state
        )

    def and_from(self, other: Message) -> Message:
        """This message merged with one that another server sends to the same users."""
        return replace(self, common=self.common | other.common, own=self.own | other.own)


def runs_of(which: Bools) -> Longs:
    """(runs, 2) where each run of marks begins and ends."""
    borders: Longs = np.flatnonzero(np.diff(which, prepend=False, append=False)).reshape(-1, 2)
    return borders


def closed_up(column: np.ndarray, runs: Longs) -> np.ndarray:
    """The rows of these ascending runs without gaps; in place if writable and contiguous."""
    column = column if column.flags.carray else column.copy()
    # NumPy moves a vector that overlaps with itself without a copy of it.
    flat = column.reshape(-1)
    width = column[:1].size
    end = 0
    for first, last in runs.tolist():
        flat[end * width : (end + last - first) * width] = flat[first * width : last * width]
        end += last - first
    return column[:end]


class Sizes(NamedTuple):
    """The shape an update must have: item indices below `items`, and the widths of its arrays."""

    items: int
    item_width: int
    user_width: int
    dense: int


@dataclass(frozen=True, slots=True)
class Updates:
    """The updates of a cohort as columns.

    One user's update is a slice; a node's reply is a concatenation. Entries are fixed point:
    q = rint(change * SCALE). The item rows of user k are offsets[k]:offsets[k + 1].
    """

    users: Ints  # (n,)
    samples: Longs  # (n,) n_k in the papers
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
        """The updates of some users, in the given order."""
        rows = Rows(self.offsets, self.items)
        places = rows.places(which)
        return Updates(
            self.users[which],
            self.samples[which],
            np.concatenate([[0], np.cumsum(rows.counts_of(which))]),
            self.items.take(places),
            # Twice as fast as `item_rows[places]`, which copies component by component.
            self.item_rows.take(places, axis=0),
            self.user_rows[which],
            self.dense[which],
        )

    def only(self, which: Bools) -> Updates:
        """The marked updates, which is fast if most are. Item rows after the first one that is left
        out move up in place, unless they are read-only."""
        counts = np.diff(self.offsets)
        runs = self.offsets[runs_of(which)]
        return Updates(
            users=self.users[which],
            samples=self.samples[which],
            offsets=np.concatenate([[0], np.cumsum(counts[which])]),
            items=self.items[np.repeat(which, counts)],
            item_rows=closed_up(self.item_rows, runs),
            user_rows=self.user_rows[which],
            dense=self.dense[which],
        )

    def between(self, first: int, last: int) -> Updates:
        """The updates at positions first..last, as views of these."""
        begin = self.offsets[first]
        end = self.offsets[last]
        return Updates(
            self.users[first:last],
            self.samples[first:last],
            self.offsets[first : last + 1] - begin,
            self.items[begin:end],
            self.item_rows[begin:end],
            self.user_rows[first:last],
            self.dense[first:last],
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
        """All parts concatenated and sorted by user."""
        ascending = bool((np.diff(np.concatenate([p.users for p in parts])) > 0).all())
        if len(parts) == 1 and ascending:
            return parts[0]
        counts = np.concatenate([np.diff(p.offsets) for p in parts])
        columns = {f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)}
        whole = cls(**columns | {"offsets": np.concatenate([[0], np.cumsum(counts)])})
        return whole if ascending else whole.take(np.argsort(whole.users, kind="stable"))
