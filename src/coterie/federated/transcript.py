"""A transcript of a run: every message between devices and servers, by who sent it to whom. No bit of the run changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from coterie.federated.engine import Engine
from coterie.federated.federation import (
    AnyWorld,
    ClientTask,
    NodeData,
    PrivateState,
)
from coterie.federated.rounds import CLIENTS
from coterie.federated.validation import Reply
from coterie.federated.wire import encode
from coterie.types import Message


class Line(NamedTuple):
    round: int
    sender: str
    receiver: str
    arrays: Mapping[str, np.ndarray]

    @property
    def bytes(self) -> int:
        """As the wire format packs it."""
        return len(encode(self.round, self.arrays))


@dataclass(frozen=True, slots=True)
class Transcript(Engine):
    """Another engine with an ear on it. It is not `alone`, so that what could be fused is sent instead."""

    engine: Engine
    lines: list[Line] = field(default_factory=list)

    def gather(self, make: Callable[[AnyWorld, NodeData], PrivateState]) -> PrivateState:
        return self.engine.gather(make)

    def call(self, exchange: ClientTask, message: Message) -> list[Reply]:
        replies = self.engine.call(exchange, message)
        for reply in replies:
            self.record(message.round, CLIENTS, exchange.role, reply.columns or {})
        return replies

    def record(self, t: int, sender: str, receiver: str, arrays: Mapping[str, np.ndarray]) -> None:
        self.lines.append(Line(t, sender or SERVER, receiver or SERVER, arrays))

    def seen_by(self, role: str) -> list[Line]:
        return [line for line in self.lines if line.receiver == role]


SERVER = "server"
"""The only one, where there are not several."""
