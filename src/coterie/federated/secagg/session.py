"""The secure-aggregation session of a node: the secrets of its users between two stages.

A node opens a session at the first stage of a ring or group, passes it from stage to stage, and
discards it when the exchange is over. A session holds private keys and seeds. It is never sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from coterie.federated.secagg.client_updates import ClientUpdates
from coterie.federated.secagg.group_member import GroupMember
from coterie.federated.secagg.ring_member import RingMember
from coterie.types import Ints


class GroupId(NamedTuple):
    """A ring or a group of an exchange."""

    round: int
    exchange: int
    number: int


class RingSession(NamedTuple):
    """What a node remembers between two stages of the ring that its users are in."""

    ring: GroupId
    members: dict[int, RingMember]
    computed: ClientUpdates
    rows: Ints | None = None
    """The summed rows of item tables; None before `distribute_shares`."""


class GroupSession(NamedTuple):
    """What a node remembers between two stages of the `secagg` group that its users are in."""

    group: GroupId
    phase: int
    """What the group sums: a place in `group_terms.PHASES`."""
    members: dict[int, GroupMember]
    computed: ClientUpdates
    rows: Ints
    """The summed rows of item tables; none while the group finds out which."""
    context: bytes
    """Of the group's terms."""
    earlier: bytes
    """The context of the phase before; empty if there was none."""


@dataclass(slots=True)
class Agreements:
    """The survivors' sets that a node's clients agreed to in the newest exchange.

    After a client has agreed, it takes part in no other group of the same exchange and phase:
    otherwise a server could repeat a round with one client fewer.
    """

    newest: tuple[int, int] = (-1, -1)
    """(round, exchange)"""
    contexts: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """(user, phase) -> the context of the terms under which it agreed."""

    def begin(self, group: GroupId) -> bool:
        """Turn to an exchange; False if a later one was begun before."""
        exchange = (group.round, group.exchange)
        if exchange < self.newest:
            return False
        if exchange > self.newest:
            self.newest = exchange
            self.contexts = {}
        return True


@dataclass(slots=True)
class SessionSlot:
    """Where a node has its session, if one is open. Whoever hosts the node creates the slot."""

    session: RingSession | GroupSession | None = None
    agreements: Agreements = field(default_factory=Agreements)

    def discard(self) -> None:
        """The exchange is over, and so are its secrets."""
        self.session = None
