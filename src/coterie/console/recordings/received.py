"""What the server received of each user: every update, with the items whose rows it has."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from coterie.attacks.eavesdropper import Observation
from coterie.types import SCALE, Floats, Ints, Longs

MOST_ROWS = 8_000_000
"""Item rows of a recording. Updates after the round in which there are more are left out."""


class UpdateOfUser(NamedTuple):
    """One update, as the server decodes it."""

    round: int
    samples: int
    n_bytes: int
    items: Ints
    changes: Floats  # the length of the change of each item's row


@dataclass(frozen=True, slots=True)
class ReceivedUpdates:
    """All updates, by user and then by round."""

    users: Ints  # (updates,) ascending
    rounds: Ints
    samples: Longs
    n_bytes: Longs
    offsets: Longs  # (updates + 1,) update k has the rows offsets[k]:offsets[k + 1]
    items: Ints  # (rows,)
    changes: Floats  # (rows,)
    until: int  # the last round of the recording

    def of(self, user: int) -> list[UpdateOfUser]:
        first, last = np.searchsorted(self.users, [user, user + 1])
        return [self._at(k) for k in range(first, last)]

    def _at(self, k: int) -> UpdateOfUser:
        rows = slice(self.offsets[k], self.offsets[k + 1])
        return UpdateOfUser(
            int(self.rounds[k]),
            int(self.samples[k]),
            int(self.n_bytes[k]),
            self.items[rows],
            self.changes[rows],
        )


@dataclass(slots=True)
class UpdateRecorder:
    """Listens to a replay."""

    most_rows: int = MOST_ROWS
    parts: list[ReceivedUpdates] = field(default_factory=list)
    n_rows: int = 0
    is_full: bool = False

    def add(self, observation: Observation) -> None:
        self.is_full |= self.n_rows + len(observation.items) > self.most_rows
        if self.is_full:
            return
        self.n_rows += len(observation.items)
        change = np.linalg.norm(observation.item_rows.astype(np.float32), axis=1) / SCALE
        n = observation.t + 1  # rounds of a paper begin at 0
        self.parts.append(
            ReceivedUpdates(
                observation.users,
                np.full(len(observation.users), n, np.int32),
                observation.samples,
                observation.n_bytes,
                observation.offsets,
                observation.items,
                change.astype(np.float32),
                n,
            )
        )

    def finish(self, last: int) -> ReceivedUpdates:
        """By user; `last` is the last round of the replay."""
        until = last
        if self.is_full:
            until = self.parts[-1].until if self.parts else 0
        if not self.parts:
            none = np.empty(0, np.int32)
            zeros = np.zeros(1, np.int64)
            no_longs = zeros[:0]
            changes = np.empty(0, np.float32)
            return ReceivedUpdates(none, none, no_longs, no_longs, zeros, none, changes, until)
        users = np.concatenate([part.users for part in self.parts])
        counts = np.concatenate([np.diff(part.offsets) for part in self.parts])
        order = np.argsort(users, kind="stable")
        begins = np.cumsum(counts) - counts
        offsets = np.concatenate([[0], np.cumsum(counts[order])]).astype(np.int64)
        # The rows of update order[k] move to offsets[k] and on.
        places = np.arange(offsets[-1]) + np.repeat(begins[order] - offsets[:-1], counts[order])
        return ReceivedUpdates(
            users[order],
            np.concatenate([part.rounds for part in self.parts])[order],
            np.concatenate([part.samples for part in self.parts])[order],
            np.concatenate([part.n_bytes for part in self.parts])[order],
            offsets,
            np.concatenate([part.items for part in self.parts])[places],
            np.concatenate([part.changes for part in self.parts])[places],
            until,
        )
