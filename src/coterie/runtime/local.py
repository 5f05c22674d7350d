"""The local engine: nodes in this process. One node hosts everybody, or several speak through the wire format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from coterie import streams
from coterie.federation import Asked, Histories, Kept, World
from coterie.runtime.wire import Malformed, decode, encode
from coterie.types import Message, Training, Updates
from coterie.validation import Reply


@dataclass(frozen=True, slots=True)
class LocalEngine:
    world: World
    nodes: tuple[Histories, ...]
    through_the_wire: bool
    """Whether messages become bytes and back; a single node can do without."""

    @classmethod
    def over(cls, world: World, training: Training, n_nodes: int, through_the_wire: bool | None = None) -> LocalEngine:
        """User u lives on node u mod n. Nodes do not learn what the server may know about people."""
        people, seed = np.arange(training.n_users, dtype=np.int32), streams.key(world.seed, "devices")
        training = replace(training, content=world.on_devices)
        shares = [people[n::n_nodes] for n in range(n_nodes)]
        nodes = tuple(Histories(users, training.of_users(users) if n_nodes > 1 else training, seed) for users in shares)
        wired = n_nodes > 1 if through_the_wire is None else through_the_wire
        return cls(replace(world, user_features={}, content=None, on_devices=None), nodes, wired)

    @property
    def alone(self) -> Histories | None:
        """The node that hosts everybody, if there is one and nothing has to become bytes."""
        return self.nodes[0] if len(self.nodes) == 1 and not self.through_the_wire else None

    def gather(self, make: Callable[[World, Histories], Kept]) -> Kept:
        """What all devices make for themselves, by user; the simulator keeps it in one place."""
        parts = [(node.users, make(self.world, node)) for node in self.nodes]
        users = np.concatenate([people for people, _ in parts])
        order = np.argsort(users)
        return {name: np.concatenate([kept[name] for _, kept in parts])[order] for name in parts[0][1]}

    def call(self, exchange: Asked, message: Message) -> list[Reply]:
        """One message to every node that hosts somebody of the cohort, one reply from each."""
        replies = []
        for number, node in enumerate(self.nodes):
            part = message if len(self.nodes) == 1 else message.to(message.users % len(self.nodes) == number)
            if len(part.users):
                replies.append(self._call(exchange, part, node))
        return replies

    def _call(self, exchange: Asked, message: Message, node: Histories) -> Reply:
        if not self.through_the_wire:
            columns, kept = answer(self.world, exchange, message, node)
            return Reply(message.users, message.round, columns, message.exchange, kept)
        there = encode(message.round, {"users": message.users, **message.own}, message.common, message.exchange)
        back, kept = receive(self.world, exchange, there, node, message.kept)
        return replace(read_reply(message, back), kept=kept)


def receive(world: World, exchange: Asked, data: bytes, node: Histories, kept: Kept) -> tuple[bytes, Kept]:
    """The node's side: bytes in, bytes out; what its devices keep stays."""
    t, own, common, number = decode(data)
    users = own.pop("users")
    columns, after = answer(world, exchange, Message(t, users, common, own, number, kept), node)
    return encode(t, columns, exchange=number), after


def answer(world: World, exchange: Asked, message: Message, node: Histories) -> tuple[dict[str, np.ndarray], Kept]:
    made = exchange.answer(world, message, node)
    said, kept = made if isinstance(made, tuple) else (made, {})
    return said.columns() if isinstance(said, Updates) else said, kept


def read_reply(message: Message, data: bytes) -> Reply:
    """The server's side: whatever the bytes are, a reply that validation can judge."""
    try:
        t, columns, common, number = decode(data)
    except Malformed:
        return Reply(message.users)
    return Reply(message.users, t, None if common else columns, number)
