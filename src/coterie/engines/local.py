"""The local engine: nodes in this process. One node hosts everybody, or several speak through the wire format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from coterie.data.training_set import TrainingSet
from coterie.federated.federation import ClientTask, NodeData, PrivateState, World
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
    nodes: tuple[NodeData, ...]
    through_the_wire: bool
    """Whether messages become bytes and back; a single node can do without."""

    @classmethod
    def over(
        cls, world: World, training: TrainingSet, n_nodes: int, through_the_wire: bool | None = None
    ) -> LocalEngine:
        wired = n_nodes > 1 if through_the_wire is None else through_the_wire
        return cls(*share_out(world, training, n_nodes), wired)

    @property
    def alone(self) -> NodeData | None:
        """The node that hosts everybody, if there is one and nothing has to become bytes."""
        return self.nodes[0] if len(self.nodes) == 1 and not self.through_the_wire else None

    def gather(self, make: Callable[[World, NodeData], PrivateState]) -> PrivateState:
        """What all devices make for themselves, by user; the simulator keeps it in one place."""
        return by_user([(node.users, make(self.world, node)) for node in self.nodes])

    def call(self, exchange: ClientTask, message: Message) -> list[Reply]:
        """One message to every node that hosts somebody of the cohort, one reply from each."""
        return [
            self._call(exchange, part, self.nodes[n])
            for n, part in parts_of(message, len(self.nodes))
        ]

    def _call(self, exchange: ClientTask, message: Message, node: NodeData) -> Reply:
        if not self.through_the_wire:
            columns, private_state = answer(self.world, exchange, message, node)
            return Reply(message.users, message.round, columns, message.exchange, private_state)
        back, private_state = receive(
            self.world, exchange, write_message(message), node, message.private_state
        )
        return replace(read_reply(message, back), private_state=private_state)
