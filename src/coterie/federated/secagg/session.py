"""The secure-aggregation session of a node: the secrets of its users between two stages.

A node opens a session at the first stage of a ring or group, passes it from stage to stage, and
discards it when the exchange is over. A session holds private keys and seeds. It is never sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from coterie.federated.secagg.group_member import GroupMember
from coterie.federated.secagg.ring_member import RingMember
from coterie.federated.secagg.stages import StageArrays
from coterie.types import Ints, Message, Sizes, Updates


class GroupId(NamedTuple):
    """A ring or a group of an exchange."""

    round: int
    exchange: int
    number: int


class ClientUpdates(NamedTuple):
    """What clients computed from an exchange's message, and the message."""

    message: Message
    updates: Updates
    """The valid ones. A server cannot validate masked updates, so each device validates its own."""
    private_state: dict[str, np.ndarray]
    """A row for every client of the message."""
    sizes: Sizes

    def in_the_clear(self, users: Ints) -> StageArrays:
        """What a server sees of clients in an exchange that shows something of each.

        A client without a valid update shows one sample and no change of its row.
        """
        samples = np.ones(len(users), np.int64)
        user_rows = np.zeros((len(users), self.sizes.user_width), np.int32)
        valid = np.isin(users, self.updates.users)
        places = np.searchsorted(self.updates.users, users[valid])
        samples[valid] = self.updates.samples[places]
        user_rows[valid] = self.updates.user_rows[places]
        return {"samples": samples, "user_rows": user_rows}

    def private_state_of(self, users: Ints) -> dict[str, np.ndarray]:
        selected = np.searchsorted(self.message.users, users)
        return {name: rows[selected] for name, rows in self.private_state.items()}


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


@dataclass(slots=True)
class SessionSlot:
    """Where a node has its sessions. Whoever hosts the node creates the slot.

    Sessions of groups stay until the next round begins. A client takes part in one group of an
    exchange: otherwise a server could repeat a round with one client fewer, or try groups until the
    client draws holders that suit it. An exchange that is repeated as it was begins anew and, once
    a client has agreed to survivors, gets the same replies.
    """

    ring: RingSession | None = None
    round: int = -1
    """The newest round with groups."""
    groups: list[GroupSession] = field(default_factory=list)
    """Of the newest round."""

    def discard(self) -> None:
        """The exchange is over, and so are its secrets."""
        self.ring = None
        self.round = -1
        self.groups = []

    def begins(self, t: int) -> bool:
        """Turn to a round; False if a later one was begun before."""
        if t > self.round:
            self.round = t
            self.groups = []
        return t == self.round

    def find(self, group: GroupId, phase: int) -> GroupSession | None:
        """The newest session of a group."""
        found = [one for one in self.groups if (one.group, one.phase) == (group, phase)]
        return found[-1] if found else None

    def of_user(self, group: GroupId, phase: int, user: int) -> GroupSession | None:
        """The session of a user in this or another group of the exchange."""
        for session in self.groups:
            same = (session.group.exchange, session.phase) == (group.exchange, phase)
            if same and user in session.members:
                return session
        return None

    def open(self, session: GroupSession) -> None:
        """Add a session, in place of an earlier one with the same terms."""
        others = [other for other in self.groups if other.context != session.context]
        self.groups = [*others, session]
