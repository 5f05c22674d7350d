"""The local engine: nodes in this process.

One node hosts all users, or several nodes exchange messages through the wire format.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from coterie.data.training_set import TrainingSet
from coterie.federated.engine import Engine
from coterie.federated.federation import AnyWorld, ClientTask, NodeData, PrivateState
from coterie.federated.nodes import (
    by_user,
    client_columns,
    parts_of,
    read_reply,
    receive,
    share_out,
    write_message,
)
from coterie.federated.secagg.session import SessionSlot
from coterie.federated.validation import Reply
from coterie.types import Ints, Message


@dataclass(frozen=True, slots=True)
class LocalEngine(Engine):
    world: AnyWorld
    nodes: tuple[NodeData, ...]
    slots: tuple[SessionSlot, ...]
    """The secure-aggregation sessions, one for each node."""
    through_the_wire: bool
    """Whether messages become bytes and back. A single node can do without."""

    @classmethod
    def over(
        cls,
        world: AnyWorld,
        training: TrainingSet,
        n_nodes: int,
        through_the_wire: bool | None = None,
    ) -> LocalEngine:
        wired = n_nodes > 1 if through_the_wire is None else through_the_wire
        node_world, nodes = share_out(world, training, n_nodes)
        return cls(node_world, nodes, tuple(SessionSlot() for _ in nodes), wired)

    @property
    def only_node(self) -> NodeData | None:
        return self.nodes[0] if len(self.nodes) == 1 and not self.through_the_wire else None

    def gather(self, make: Callable[[AnyWorld, NodeData], PrivateState]) -> PrivateState:
        """The simulator holds the private state of all clients in one place."""
        return by_user([(node.users, make(self.world, node)) for node in self.nodes])

    def call(self, task: ClientTask, message: Message) -> list[Reply]:
        parts = parts_of(message, len(self.nodes))
        return [self._call(task, part, self.nodes[n], self.slots[n]) for n, part in parts]

    def commit(self, t: int, exchange: int, users: Ints) -> None:
        """The exchange is over, and so are its secrets."""
        for slot in self.slots:
            slot.discard()

    def _call(self, task: ClientTask, message: Message, node: NodeData, slot: SessionSlot) -> Reply:
        if not self.through_the_wire:
            columns, private_state = client_columns(self.world, task, message, node, slot)
            return Reply(message.users, message.round, columns, message.exchange, private_state)
        data = write_message(message)
        reply, private_state = receive(self.world, task, data, node, message.private_state, slot)
        return replace(read_reply(message, reply), private_state=private_state)
