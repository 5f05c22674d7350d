"""The secure-aggregation session of a node: the secrets of its users between two stages of a ring.

A node opens a session at the first stage of a ring, passes it from stage to stage, and discards it
when the exchange is over. A session holds private keys and seeds. It is never sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from coterie.federated.secagg.ring_member import RingMember
from coterie.types import Ints, Message, Sizes, Updates


class RingId(NamedTuple):
    round: int
    exchange: int
    number: int


class ClientSession(NamedTuple):
    """What a node remembers between two stages of the ring that its users are in."""

    ring: RingId
    members: dict[int, RingMember]
    message: Message
    updates: Updates
    private_state: dict[str, np.ndarray]
    sizes: Sizes
    rows: Ints | None = None
    """The summed rows of item tables; None before `distribute_shares`."""


@dataclass(slots=True)
class SessionSlot:
    """Where a node has its session, if one is open. Whoever hosts the node creates the slot."""

    session: ClientSession | None = None

    def discard(self) -> None:
        self.session = None
