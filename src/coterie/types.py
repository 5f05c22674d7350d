"""Data that crosses module borders: plain frozen records of contiguous arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int32]
Longs: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float32]
Doubles: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
Ids: TypeAlias = NDArray[Any]  # external ids: strings, or integers where the caller gave integers


@dataclass(frozen=True, slots=True)
class Rows:
    """Items per user, one user after the other: user u owns `items[offsets[u]:offsets[u + 1]]`, ascending."""

    offsets: Longs  # (users + 1,)
    items: Ints  # (interactions,)

    @classmethod
    def build(cls, users: Ints, items: Ints, n_users: int) -> Rows:
        packed = users.astype(np.int64) << 32 | items  # one number sorts four times faster than two columns
        packed.sort()
        counts = np.bincount(users, minlength=n_users)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return cls(offsets, (packed & 0xFFFFFFFF).astype(np.int32))

    @property
    def counts(self) -> Longs:
        return np.diff(self.offsets)

    def of(self, user: int) -> Ints:
        return self.items[self.offsets[user] : self.offsets[user + 1]]

    def take(self, users: Ints) -> tuple[Longs, Ints]:
        """(row, item) for every item of the given users; row counts within `users`."""
        counts = self.counts[users]
        rows = np.repeat(np.arange(len(users)), counts)
        starts = np.repeat(self.offsets[users] - (np.cumsum(counts) - counts), counts)
        return rows, self.items[starts + np.arange(len(rows))]


@dataclass(frozen=True, slots=True)
class Training:
    """All that training may see. Built from the training part alone; evaluation data never enters it."""

    n_users: int
    n_items: int
    positives: Rows
    """What users did."""
    excluded: Rows
    """What negatives avoid: the training positives, and nothing else unless a published leak is asked for."""
    ratings: Floats | None
    """Aligned with `positives.items`; None for implicit feedback."""

    @property
    def users(self) -> Ints:
        """The user of every positive, aligned with `positives.items`."""
        return np.repeat(np.arange(self.n_users, dtype=np.int32), self.positives.counts)

    def __len__(self) -> int:
        return len(self.positives.items)
