"""Messages between a server and the clients of a ring or group through an engine, and their bytes.

In a simulation, clients drop out here: before any of their messages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from coterie.core import streams
from coterie.federated.aggregation import accepted_private_state
from coterie.federated.federation import AnyExchange, AnyWorld, ClientTask, PrivateState
from coterie.federated.secagg.stages import FIRST_STAGES, ORDER, StageArrays
from coterie.federated.validation import Reply
from coterie.federated.wire import message_size
from coterie.types import Bools, Ints, Longs, Message

CallTask = Callable[[ClientTask, Message], list[Reply]]
Step = tuple[int, str]
"""(phase, stage): a message of a client."""


@dataclass(frozen=True, slots=True)
class Dropouts:
    """Which clients drop out in a simulation, and before which of their messages."""

    steps: tuple[Step, ...] = ()
    """A client's messages, in their order."""
    place: dict[int, int] = field(default_factory=dict)
    """User -> how many messages it sends."""

    @classmethod
    def draw(
        cls,
        world: AnyWorld,
        message: Message,
        absent: Bools | None,
        steps: tuple[Step, ...],
        uploads: int,
    ) -> Dropouts:
        """Draw when clients drop out.

        `absent` marks those whose update is lost: they drop out before the upload, the message at
        the place `uploads`. Others may drop out after it, as often for each message: their update
        counts, but their help is missing.
        """
        if absent is None:
            return cls()
        gone = message.users[absent]
        place = _drawn(world, "leaves", message.round, gone, uploads + 1)
        stayed = message.users[~absent]
        n_later = len(steps) - uploads - 1
        rate = world.settings.client_dropout * n_later / (uploads + 1)
        words = _words(world, "leaves later", message.round, stayed) >> np.uint64(11)
        later = stayed[words < np.uint64(rate * 2.0**53)]
        place |= {
            user: uploads + 1 + step
            for user, step in _drawn(world, "leaves last", message.round, later, n_later).items()
        }
        return cls(steps, place)

    def responds(self, user: int, step: Step) -> bool:
        """Whether a client replies. In a step that is not listed, only those who never left do."""
        if user not in self.place:
            return True
        return step in self.steps and self.steps.index(step) < self.place[user]

    def is_lost(self, user: int, uploads: int) -> bool:
        """Whether a client drops out before its upload."""
        return user in self.place and self.place[user] <= uploads


def _words(world: AnyWorld, name: str, t: int, users: Ints) -> np.ndarray:
    return streams.words(streams.keys(world.seed, name, t, last=users), 0)


def _drawn(world: AnyWorld, name: str, t: int, users: Ints, n: int) -> dict[int, int]:
    """User -> one of n places."""
    places: Longs = streams.below(_words(world, name, t, users), np.full(len(users), n))
    return dict(zip(users.tolist(), places.tolist(), strict=True))


@dataclass(slots=True)
class StageChannel:
    """What a server sends to the clients of a ring or group, and what they reply."""

    exchange: AnyExchange
    message: Message
    """The exchange's own message, which the first stage carries."""
    make_task: Callable[[str, AnyExchange], ClientTask]
    call: CallTask
    dropouts: Dropouts
    common: StageArrays = field(default_factory=dict)
    """Arrays that go to all clients at every stage."""
    phase: int = 0
    first: bool = True
    """Whether the exchange's message is still to be sent."""
    bytes_up: int = 0
    bytes_down: int = 0
    private_replies: list[Reply] = field(default_factory=list)
    """Replies with new private state. In a simulation it is passed along; it is never sent."""

    def send(
        self, stage: str, users: Ints, own: StageArrays, common: StageArrays | None = None
    ) -> dict[int, StageArrays]:
        """User -> the arrays of its reply, for the clients that replied."""
        order = np.argsort(users)
        own = {name: rows[order] for name, rows in own.items()}
        message = self.message_of(stage, users[order], own, common)
        size = message_size(message)
        if stage in FIRST_STAGES and self.first:
            # `Aggregate.costs` counts the exchange's own message.
            size -= message_size(self.message)
        self.bytes_down += size * len(users)
        responding = np.array(
            [self.dropouts.responds(user, (self.phase, stage)) for user in message.users.tolist()],
            bool,
        )
        if not responding.any():
            return {}
        arrays: dict[int, StageArrays] = {}
        for reply in self.call(self.make_task(stage, self.exchange), message.to(responding)):
            arrays |= self._read(reply, stage)
        return arrays

    def message_of(
        self, stage: str, users: Ints, own: StageArrays, common: StageArrays | None = None
    ) -> Message:
        """The message of a stage. The first one carries the exchange's: clients compute their
        update from it."""
        everybody = self.common | (common or {})
        if stage in FIRST_STAGES and self.first:
            part = self.message.to(np.searchsorted(self.message.users, users))
            return replace(part, common=part.common | everybody)
        return Message(self.message.round, users, everybody, own, self.message.exchange)

    def _read(self, reply: Reply, stage: str) -> dict[int, StageArrays]:
        """The clients' arrays in a node's reply, by user; {} for a reply that is malformed.

        Arrays for users that the node was not called for are dropped.
        """
        columns = reply.columns
        expected = (self.message.round, self.message.exchange)
        if columns is None or (reply.round, reply.exchange) != expected:
            return {}
        if any(name not in columns or columns[name].ndim != 1 for name in ("users", "stage")):
            return {}
        users = columns["users"]
        n = len(users)
        if users.dtype != np.int32:
            return {}
        if any(column.ndim == 0 or len(column) != n for column in columns.values()):
            return {}
        without_users = {name: column for name, column in columns.items() if name != "users"}
        self.bytes_up += message_size(Message(reply.round, users, {}, without_users)) * n
        if reply.private_state:
            self.private_replies.append(reply)
        called = set(reply.selected.tolist())
        rows = {name: column for name, column in without_users.items() if name != "stage"}
        return {
            user: {name: column[k] for name, column in rows.items()}
            for k, user in enumerate(users.tolist())
            if user in called and columns["stage"][k] == ORDER.index(stage)
        }

    def private_state_of(self, users: Ints) -> tuple[tuple[Ints, PrivateState], ...]:
        """The new private state of some users."""
        return tuple(accepted_private_state(reply, users) for reply in self.private_replies)
