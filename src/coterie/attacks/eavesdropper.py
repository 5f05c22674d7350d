"""A curious server: an engine that does what another does and keeps an ear on what comes in. No bit of the run changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from coterie.federated.engine import Engine
from coterie.federated.federation import (
    AnyWorld,
    ClientTask,
    NodeData,
    PrivateState,
)
from coterie.federated.validation import DTYPES, Reply
from coterie.types import TOO_LARGE, Ints, Longs, Message, Updates

MOST_ROWS = 1 << 18
"""Rounds are read in parts of about so many rows, which bounds the memory that reading takes."""


@dataclass(frozen=True, slots=True)
class Overheard:
    """What a server sees of one round, and nothing else: who sent which rows, and what it had sent them before."""

    t: int
    users: Ints  # (n,) ascending
    samples: Longs  # (n,) what each says it trained on: T
    offsets: Longs  # (n + 1,) whose rows are whose
    items: Ints  # (rows,)
    item_rows: Ints  # (rows, width) changes in fixed point; for FPL the last column is the bias
    sent: Mapping[str, np.ndarray]  # the item rows, and biases, that went out

    @property
    def owners(self) -> Longs:
        """The place in `users` of whoever sent each row."""
        return np.repeat(np.arange(len(self.users)), np.diff(self.offsets))

    def parts(self, most_rows: int = MOST_ROWS) -> Iterator[Overheard]:
        """The same in parts of whole users: what one sends says nothing about another."""
        first = 0
        while first < len(self.users):
            last = (
                int(np.searchsorted(self.offsets, self.offsets[first] + most_rows, side="right"))
                - 1
            )
            last = max(last, first + 1)
            yield self._between(first, last)
            first = last

    def _between(self, first: int, last: int) -> Overheard:
        low = self.offsets[first]
        high = self.offsets[last]
        return Overheard(
            self.t,
            self.users[first:last],
            self.samples[first:last],
            self.offsets[first : last + 1] - low,
            self.items[low:high],
            self.item_rows[low:high],
            self.sent,
        )


class Listening(Engine):
    """Not `alone`, even where the engine it listens to is: rounds that could be fused are played one by one, to be heard."""

    def __init__(self, engine: Engine, hear: Callable[[Overheard], None]) -> None:
        self._engine = engine
        self._hear = hear

    def gather(self, make: Callable[[AnyWorld, NodeData], PrivateState]) -> PrivateState:
        return self._engine.gather(make)

    def call(self, exchange: ClientTask, message: Message) -> list[Reply]:
        replies = self._engine.call(exchange, message)
        parts = [
            Updates(**reply.columns)
            for reply in replies
            if reply.columns and set(reply.columns) == set(DTYPES)
        ]
        if parts:
            self._hear(overheard(message, Updates.joined(parts)))
        return replies


def overheard(message: Message, updates: Updates) -> Overheard:
    """Of users who sent rows that can be used; the rest a server refuses unread."""
    some = np.flatnonzero(np.diff(updates.offsets) > 0)
    updates = updates if len(some) == len(updates) else updates.take(some)
    strange = ((updates.item_rows >= TOO_LARGE) | (updates.item_rows <= -TOO_LARGE)).any(axis=1)
    if strange.any():
        updates = updates.take(
            np.flatnonzero(~np.logical_or.reduceat(strange, updates.offsets[:-1]))
        )
    return Overheard(
        message.round,
        updates.users,
        updates.samples,
        updates.offsets,
        updates.items,
        updates.item_rows,
        message.common,
    )
