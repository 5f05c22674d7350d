"""A federation between parties: nodes that keep their people to themselves, and the server's engine that speaks to them.

A message says of every user it is for which of their updates the server accepted last. By that a node knows what its devices' rows are:
what was refused, late or lost is as if it had never been, and a round that a server plays again after a crash finds
devices as they were. How bytes get from one to the other is a transport's business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from coterie.deployment.node_store import NEVER, RING, NodeStore
from coterie.federated.engine import Engine
from coterie.federated.federation import (
    AnyExchange,
    AnyFederation,
    AnyWorld,
    ClientTask,
    Exchange,
    NodeData,
    PrivateState,
)
from coterie.federated.nodes import client_columns, read_message, read_reply, write_message
from coterie.federated.secagg.client import HELD, ORDER, Stage
from coterie.federated.secagg.sessions import packed, unpacked
from coterie.federated.trainer import SETUP
from coterie.federated.validation import Reply
from coterie.federated.wire import Malformed, encode
from coterie.types import Ints, Longs, Message

Transport = Callable[[Mapping[int, bytes]], Mapping[int, bytes]]
"""Bytes to nodes by their numbers; what came back from whom in time."""
EXCHANGES = 256
NEWEST = "newest"
"""The round that was asked for last."""
STAGE = "stage"
"""Where a message is for members of a ring, at which stage of it."""


def tag(t: int, exchange: int) -> int:
    """One number for an exchange of a round; the opening is before all of them."""
    return 0 if exchange == SETUP else 1 + t * EXCHANGES + exchange


def stage_of(message: Message) -> str:
    place = message.common[STAGE]
    if place.shape != (1,) or place.dtype != np.uint8 or place[0] >= len(ORDER):
        raise Malformed("there is no such stage of a ring")
    return ORDER[int(place[0])]


@dataclass(frozen=True, slots=True)
class Node:
    """A node: bytes in, bytes out."""

    federation: AnyFederation
    world: AnyWorld
    node: NodeData
    store: NodeStore

    def begin(self) -> None:
        """Devices make what they begin with, once."""
        persons = self.store.numbers()
        self.store.begin(
            [persons[u] for u in self.node.users.tolist()],
            self.federation.init_clients(self.world, self.node),
        )

    def receive(self, data: bytes) -> bytes:
        """The answer to a message; to what is none of this federation's, nothing."""
        self.refuse_late(data)
        message, asked = self.settled(data)
        exchange = self._exchange(message.exchange)
        kept_by = tag(message.round, message.exchange)
        message = replace(message, private_state=self.store.private_state(asked))
        if STAGE in message.common:
            columns, after = self._in_ring(exchange, message)
        else:
            columns, after = client_columns(self.world, exchange, message, self.node)
        if after:
            self.store.made(asked, after, kept_by)
        return encode(message.round, columns, exchange=message.exchange)

    def _in_ring(
        self, exchange: AnyExchange, message: Message
    ) -> tuple[dict[str, np.ndarray], PrivateState]:
        """A stage of a ring; what members keep to themselves until the next one is in the store."""
        stage = stage_of(message)
        left = self.store.held(RING)
        if stage != ORDER[0] and left is not None:
            HELD.put(self.node.users, unpacked(left, self.world, exchange))
        common = {name: array for name, array in message.common.items() if name != STAGE}
        columns, after = client_columns(
            self.world, Stage(stage, exchange), replace(message, common=common), self.node
        )
        persons = self.store.numbers()
        held = HELD.get(self.node.users)
        if held is not None and all(
            user in persons for user in message.users.tolist()
        ):  # nobody was forgotten meanwhile
            self.store.put_held(RING, packed(held))
        return columns, after

    def refuse_late(self, data: bytes) -> None:
        """A process that was slower than its deadline must not undo what a later one did."""
        t = read_message(data).round
        newest = int(self.store.about(NEWEST) or -1)
        if t < newest:
            raise Malformed(f"a message of round {t} after one of round {newest}")
        self.store.put_about(**{NEWEST: str(t)})

    def settled(self, data: bytes) -> tuple[Message, list[str]]:
        """A message for those it finds as the server thinks they are; of what counts, the store knows now.

        Who was forgotten, or put back to an earlier day, has no part in it.
        """
        message = self._read(data)
        persons = self.store.numbers()
        accepted = message.own.pop("accepted")
        here = np.isin(message.users, self.node.users)
        message = message.to(here)
        accepted = accepted[here]
        asked = [persons[user] for user in message.users.tolist()]
        if STAGE in message.common and stage_of(message) != ORDER[0]:
            return message, asked  # in the middle of an exchange nothing is settled
        known = self.store.settle(asked, accepted)
        return message.to(known), [
            person for person, fine in zip(asked, known, strict=True) if fine
        ]

    def _read(self, data: bytes) -> Message:
        message = read_message(data)
        accepted = message.own.get("accepted")
        users = message.users
        if accepted is None or accepted.dtype != np.int64 or accepted.shape != users.shape:
            raise Malformed("the message does not say what was accepted")
        if users.dtype != np.int32 or users.ndim != 1 or (np.diff(users) <= 0).any():
            raise Malformed("the message does not say whom it is for")
        if any(rows.ndim == 0 or len(rows) != len(users) for rows in message.own.values()):
            raise Malformed("the message has not one row for everybody")
        return message

    def _exchange(self, number: int) -> AnyExchange:
        found = self.federation.setup(self.world) if number == SETUP else None
        if number < len(self.federation.exchanges):
            listed = self.federation.exchanges[number]
            found = listed if isinstance(listed, Exchange) else None
        if found is None:
            raise Malformed(f"there is no exchange {number}")
        return found


@dataclass(frozen=True, slots=True)
class NodeEngine(Engine):
    """The server's side."""

    homes: Ints  # (users,) the node of each; -1 of nobody's
    transport: Transport
    accepted: Longs  # (users,) which of their updates was accepted last

    @property
    def stores_private_state(self) -> bool:
        return True

    @classmethod
    def over(cls, homes: Ints, transport: Transport) -> NodeEngine:
        return cls(homes, transport, np.full(len(homes), NEVER, np.int64))

    def gather(self, make: Callable[[AnyWorld, NodeData], PrivateState]) -> PrivateState:
        """Devices make it, and it stays with them."""
        return {}

    def call(self, exchange: ClientTask, message: Message) -> list[Reply]:
        if isinstance(exchange, Stage):
            message = replace(
                message,
                common=message.common | {STAGE: np.array([ORDER.index(exchange.name)], np.uint8)},
            )
        parts = self.parts(message)
        back = self.transport({node: write_message(part) for node, part in parts.items()})
        return [read_reply(part, back[node]) for node, part in parts.items() if node in back]

    def parts(self, message: Message) -> dict[int, Message]:
        """What every node hears of it, and of its people what was accepted."""
        own = message.own | {"accepted": self.accepted[message.users]}
        homes = self.homes[message.users]
        message = replace(message, own=own)
        return {int(node): message.to(homes == node) for node in np.unique(homes[homes >= 0])}

    def commit(self, t: int, exchange: int, users: Ints) -> None:
        """The updates of these users were accepted."""
        self.accepted[users] = tag(t, exchange)
