"""A curious server: an engine that wraps another one and observes its replies.

It changes nothing: the run is bit-identical.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from coterie.federated.engine import Engine
from coterie.federated.federation import (
    AnyWorld,
    ClientTask,
    NodeData,
    PrivateState,
)
from coterie.federated.validation import DTYPES, Reply
from coterie.federated.wire import reply_sizes
from coterie.types import TOO_LARGE, Ints, Longs, Message, Updates

MAX_ROWS = 1 << 18
"""Rows per part in which a round is processed; it bounds the memory."""


@dataclass(frozen=True, slots=True)
class Observation:
    """All that a server sees of one round: the rows that users sent, and what it had sent them."""

    t: int
    users: Ints  # (n,) ascending
    samples: Longs  # (n,) the reported number of training samples: T
    offsets: Longs  # (n + 1,) user k sent the rows offsets[k]:offsets[k + 1]
    items: Ints  # (rows,)
    item_rows: Ints  # (rows, width) changes in fixed point; for FPL the last column is the bias
    sent: Mapping[str, np.ndarray]  # the item rows, and biases, that the server sent
    dense: Ints  # (n, size) the part of an update without items; for FedALS the user's vector
    n_bytes: Longs = field(default_factory=lambda: np.empty(0, np.int64))  # (n,) of each update

    @property
    def owners(self) -> Longs:
        """For each row, the place of its sender in `users`."""
        return np.repeat(np.arange(len(self.users)), np.diff(self.offsets))

    def parts(self, max_rows: int = MAX_ROWS) -> Iterator[Observation]:
        """Split into parts of whole users. Attackers treat users independently."""
        first = 0
        while first < len(self.users):
            limit = self.offsets[first] + max_rows
            last = int(np.searchsorted(self.offsets, limit, side="right")) - 1
            last = max(last, first + 1)
            yield self._between(first, last)
            first = last

    def _between(self, first: int, last: int) -> Observation:
        low = self.offsets[first]
        high = self.offsets[last]
        return Observation(
            self.t,
            self.users[first:last],
            self.samples[first:last],
            self.offsets[first : last + 1] - low,
            self.items[low:high],
            self.item_rows[low:high],
            self.sent,
            self.dense[first:last],
            self.n_bytes[first:last],
        )


class Eavesdropper(Engine):
    """Calls an engine and reports what a server observes of each round.

    It never declares a single node, even if the engine does. Otherwise rounds could run in a
    single-pass kernel, where no update exists to be observed.
    """

    def __init__(self, engine: Engine, report: Callable[[Observation], None]) -> None:
        self._engine = engine
        self._report = report

    def gather(self, make: Callable[[AnyWorld, NodeData], PrivateState]) -> PrivateState:
        return self._engine.gather(make)

    def call(self, exchange: ClientTask, message: Message) -> list[Reply]:
        replies = self._engine.call(exchange, message)
        for reply in replies:
            reply.protect()
        parts = [
            Updates(**reply.columns)
            for reply in replies
            if reply.columns and set(reply.columns) == set(DTYPES)
        ]
        if parts:
            self._report(observe(message, Updates.joined(parts)))
        return replies


def observe(message: Message, updates: Updates) -> Observation:
    """What a server sees of a round: users without rows or with invalid rows are left out."""
    nonempty = np.flatnonzero(np.diff(updates.offsets) > 0)
    updates = updates if len(nonempty) == len(updates) else updates.take(nonempty)
    invalid = ((updates.item_rows >= TOO_LARGE) | (updates.item_rows <= -TOO_LARGE)).any(axis=1)
    if invalid.any():
        valid_users = ~np.logical_or.reduceat(invalid, updates.offsets[:-1])
        updates = updates.take(np.flatnonzero(valid_users))
    return Observation(
        message.round,
        updates.users,
        updates.samples,
        updates.offsets,
        updates.items,
        updates.item_rows,
        message.common,
        updates.dense,
        reply_sizes(updates),
    )
