"""A transcript of a run: every message between clients and servers, with sender and receiver."""

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


class TranscriptLine(NamedTuple):
    round: int
    sender: str
    receiver: str
    arrays: Mapping[str, np.ndarray]

    @property
    def bytes(self) -> int:
        """The size of the message in the wire format."""
        return len(encode(self.round, self.arrays))


@dataclass(frozen=True, slots=True)
class Transcript(Engine):
    """An engine that records the messages of another one. Results are bit-identical.

    It does not declare `alone`, so single-pass kernels are not used and every message is sent.
    """

    engine: Engine
    lines: list[TranscriptLine] = field(default_factory=list)

    def gather(self, make: Callable[[AnyWorld, NodeData], PrivateState]) -> PrivateState:
        return self.engine.gather(make)

    def call(self, exchange: ClientTask, message: Message) -> list[Reply]:
        replies = self.engine.call(exchange, message)
        for reply in replies:
            reply.protect()
            self.record(message.round, CLIENTS, exchange.role, reply.columns or {})
        return replies

    def record(self, t: int, sender: str, receiver: str, arrays: Mapping[str, np.ndarray]) -> None:
        self.lines.append(TranscriptLine(t, sender or SERVER, receiver or SERVER, arrays))

    def seen_by(self, role: str) -> list[TranscriptLine]:
        """The messages that a server received."""
        return [line for line in self.lines if line.receiver == role]


SERVER = "server"
"""The name of the server in an algorithm that has only one."""
