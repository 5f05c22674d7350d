"""The local engine: nodes in this process. One node hosts everybody, or several speak through the wire format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from coterie.data.training_set import Training
from coterie.federated.federation import Asked, Histories, Kept, World
from coterie.federated.nodes import (
    answer,
    by_user,
    parts_of,
    read_reply,
    receive,
    share_out,
    write_message,
)
from coterie.federated.validation import Reply
from coterie.types import Message


@dataclass(frozen=True, slots=True)
class LocalEngine:
    world: World
    nodes: tuple[Histories, ...]
    through_the_wire: bool
    """Whether messages become bytes and back; a single node can do without."""

    @classmethod
    def over(
        cls, world: World, training: Training, n_nodes: int, through_the_wire: bool | None = None
    ) -> LocalEngine:
        wired = n_nodes > 1 if through_the_wire is None else through_the_wire
        return cls(*share_out(world, training, n_nodes), wired)

    @property
    def alone(self) -> Histories | None:
        """The node that hosts everybody, if there is one and nothing has to become bytes."""
        return self.nodes[0] if len(self.nodes) == 1 and not self.through_the_wire else None

    def gather(self, make: Callable[[World, Histories], Kept]) -> Kept:
        """What all devices make for themselves, by user; the simulator keeps it in one place."""
        return by_user([(node.users, make(self.world, node)) for node in self.nodes])

    def call(self, exchange: Asked, message: Message) -> list[Reply]:
        """One message to every node that hosts somebody of the cohort, one reply from each."""
        return [
            self._call(exchange, part, self.nodes[n])
            for n, part in parts_of(message, len(self.nodes))
        ]

    def _call(self, exchange: Asked, message: Message, node: Histories) -> Reply:
        if not self.through_the_wire:
            columns, kept = answer(self.world, exchange, message, node)
            return Reply(message.users, message.round, columns, message.exchange, kept)
        back, kept = receive(self.world, exchange, write_message(message), node, message.kept)
        return replace(read_reply(message, back), kept=kept)
