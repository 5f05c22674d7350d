"""The engine contract: everything a round uses of the machinery that reaches the nodes.

An engine implements `gather` and `call`: messages out, replies in. The other members have defaults
that suit an engine whose nodes answer messages and do nothing else; an engine that can do more
overrides them. Engines subclass this protocol explicitly, so that the defaults are inherited.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from coterie.federated.aggregation import Aggregate, Limits
from coterie.federated.federation import (
    AnyExchange,
    AnyWorld,
    ClientTask,
    NodeData,
    PrivateState,
)
from coterie.federated.validation import Reply
from coterie.types import Ints, Message


class Engine(Protocol):
    def gather(self, make: Callable[[AnyWorld, NodeData], PrivateState]) -> PrivateState:
        """Rows that every node makes for its own users, ordered by user."""
        ...

    def call(self, task: ClientTask, message: Message) -> list[Reply]:
        """Send one message to every node that hosts a client of it; return the replies."""
        ...

    @property
    def stores_private_state(self) -> bool:
        """Whether nodes store private state themselves. Then it never reaches this process."""
        return False

    @property
    def only_node(self) -> NodeData | None:
        """The node that hosts all users in this process, where messages need not become bytes."""
        return None

    def aggregate(
        self, exchange: AnyExchange, message: Message, limits: Limits
    ) -> Aggregate | None:
        """Sums that trusted nodes computed over their own clients; None where nodes do not."""
        return None

    def commit(self, t: int, exchange: int, users: Ints) -> None:
        """The exchange is over: the new private state of these users counts."""
        return

    def record(self, t: int, sender: str, receiver: str, arrays: Mapping[str, np.ndarray]) -> None:
        """A server sent these arrays, for an engine that writes a transcript."""
        return
