"""Both ends of a federation's messages: the node, and the server's engine that sends to nodes.

A message carries, for each of its users, the tag of the last update that the server accepted. From
it a node knows which private state is current. An update that was refused, late or lost has no
effect, and a server can repeat a round after a crash. The transport of bytes is pluggable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from coterie.deployment.branch_rounds import tag
from coterie.deployment.node_ledger import RunLedger
from coterie.deployment.node_private_store import NEVER, RING, NodeStore
from coterie.deployment.node_releases import UPLOADS, releases_in_the_open, releases_of_upload
from coterie.deployment.node_snapshots import take_due_snapshots
from coterie.deployment.snapshot_plan import NO_SNAPSHOTS, SnapshotPlan
from coterie.deployment.watch.norms import NodeNorms
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
from coterie.federated.secagg.group_node import GroupStage
from coterie.federated.secagg.ring_node import RingStage
from coterie.federated.secagg.server import stage_task
from coterie.federated.secagg.session import SessionSlot
from coterie.federated.secagg.session_bytes import pack_slot, unpack_slot
from coterie.federated.secagg.stages import FIRST_STAGES, GROUP_STAGES, ORDER
from coterie.federated.trainer import SETUP
from coterie.federated.validation import Reply
from coterie.federated.wire import Malformed, encode
from coterie.types import Ints, Longs, Message

Transport = Callable[[Mapping[int, bytes]], Mapping[int, bytes]]
"""Sends bytes to nodes, by node index; returns the replies that came before the deadline."""
NEWEST = "newest"
"""Metadata key of the newest round that a node received."""
STAGE = "stage"
"""Where a message is for members of a ring, at which stage of it."""


def stage_of(message: Message) -> str:
    place = message.common[STAGE]
    if place.shape != (1,) or place.dtype != np.uint8 or place[0] >= len(ORDER):
        raise Malformed("there is no such stage of a ring")
    return ORDER[int(place[0])]


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a federation: bytes in, bytes out."""

    federation: AnyFederation
    world: AnyWorld
    node: NodeData
    store: NodeStore
    open_slots: list[SessionSlot] = field(default_factory=list)
    """The sessions that the store holds, at most one; empty if they have to be read from it. A node
    is made anew when another process changed the store."""
    ledger: RunLedger | None = None
    """What the users' data has spent, in a federation with a privacy budget."""
    branch: int = 0
    """How often the run was rolled back."""
    plan: SnapshotPlan = NO_SNAPSHOTS

    def initialise(self) -> None:
        """Write the initial private state of users who have none."""
        user_ids = self.store.numbers()
        self.store.put_initial_state(
            [user_ids[index] for index in self.node.users.tolist()],
            self.federation.init_clients(self.world, self.node),
        )

    def receive(self, data: bytes) -> bytes:
        """Reply to a message; Malformed if it does not belong to this federation."""
        self.refuse_late(data)
        message, user_ids = self.synchronise(data)
        exchange = self._exchange(message.exchange)
        self._refuse_other_protocol(exchange, message)
        message, user_ids = self._within_budget(message, user_ids)
        message = replace(message, private_state=self.store.private_state(user_ids))
        if STAGE in message.common:
            columns, after = self._run_stage(exchange, message)
        else:
            columns, after = client_columns(self.world, exchange, message, self.node, SessionSlot())
        if after:
            self.store.put_pending(user_ids, after, self._tag(message))
        return encode(message.round, columns, exchange=message.exchange)

    def _within_budget(self, message: Message, user_ids: list[str]) -> tuple[Message, list[str]]:
        """The message for the users whose data may enter this release, and their ids."""
        if self.world.settings.epsilon is None:
            return message, user_ids
        ledger = self._ledger()
        if STAGE in message.common:
            may = ledger.may_take_part(user_ids, message.round, message.exchange)
        else:
            may = ledger.take(user_ids, releases_in_the_open(message, self.node, self.branch))
        return message.to(may), [user for user, is_in in zip(user_ids, may, strict=True) if is_in]

    def _ledger(self) -> RunLedger:
        if self.ledger is None:
            raise Malformed("this node has no ledger; this federation has a privacy budget")
        return self.ledger

    def _refuse_other_protocol(self, exchange: AnyExchange, message: Message) -> None:
        """Reject a message that is not of the federation's protocol of secure aggregation.

        A server that asked for plain updates, or for a weaker protocol, would get single ones.
        """
        protocol = "none"
        if STAGE in message.common:
            protocol = "secagg" if stage_of(message) in GROUP_STAGES else "ring"
        agreed = self.world.settings.secure_aggregation if exchange.secure_sum else "none"
        if protocol != agreed:
            raise Malformed(f"a message of protocol {protocol}; this federation has {agreed}")

    def _run_stage(
        self, exchange: AnyExchange, message: Message
    ) -> tuple[dict[str, np.ndarray], PrivateState]:
        """One stage of secure aggregation. Between stages the session is in the node's store."""
        stage = stage_of(message)
        common = {name: array for name, array in message.common.items() if name != STAGE}
        message = replace(message, common=common)
        slot = self._open_slot(exchange)
        task = stage_task(stage, exchange)
        columns, after = client_columns(self.world, task, message, self.node, slot)
        if stage in UPLOADS and self.world.settings.epsilon is not None:
            columns = self._paid_uploads(message, slot, columns)
        # The store may have erased a user meanwhile. Then its secrets must not come back.
        hosted = self.store.numbers()
        is_open = slot.ring is not None or bool(slot.groups)
        if is_open and all(user in hosted for user in message.users.tolist()):
            self.store.put_held(RING, pack_slot(slot))
            self.open_slots.append(slot)
        return columns, after

    def _paid_uploads(
        self, message: Message, slot: SessionSlot, columns: dict[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """The uploads that count within the budget, which are counted now."""
        users = columns["users"]
        releases = releases_of_upload(message, users, self.node, slot)
        if not releases:
            return columns
        user_ids = self.store.numbers()
        may = self._ledger().take([user_ids.get(user, "") for user in users.tolist()], releases)
        return {name: rows[may] for name, rows in columns.items()}

    def _open_slot(self, exchange: AnyExchange) -> SessionSlot:
        """The sessions as they were after the last stage: in memory, or else in the store."""
        if self.open_slots:
            return self.open_slots.pop()
        stored = self.store.held(RING)
        if stored is None:
            return SessionSlot()
        return unpack_slot(stored, self.world, self.node, exchange, self._exchange)

    def refuse_late(self, data: bytes) -> None:
        """Reject a message of an earlier round: it must not undo what a later one did."""
        t = read_message(data).round
        newest = int(self.store.meta(NEWEST) or -1)
        if t < newest:
            raise Malformed(f"a message of round {t} arrived after one of round {newest}")
        self.store.put_meta(**{NEWEST: str(t)})

    def synchronise(self, data: bytes) -> tuple[Message, list[str]]:
        """Read a message, commit the private state that it reports as accepted, and filter it.

        Returns the message for the users whose state is the one the server expects, and their ids.
        Users who were erased, or whose state comes from an older copy, are left out.
        """
        message = self._read(data)
        user_ids = self.store.numbers()
        accepted = message.own.pop("accepted")
        hosted = np.isin(message.users, self.node.users)
        message = message.to(hosted)
        accepted = accepted[hosted]
        listed = [user_ids[index] for index in message.users.tolist()]
        if STAGE in message.common and stage_of(message) not in FIRST_STAGES:
            return message, listed  # commits happen only at the first stage of an exchange
        take_due_snapshots(self.store, self.plan, message.round)
        self._begin_again(listed, accepted)
        current = self.store.commit(listed, accepted)
        return message.to(current), [
            user for user, is_current in zip(listed, current, strict=True) if is_current
        ]

    def _tag(self, message: Message) -> int:
        return tag(self.branch, message.round, message.exchange)

    def _begin_again(self, users: list[str], accepted: Longs) -> None:
        """Users of whom the server accepted no update begin with the initial private state.

        Theirs may be later: they came from another node, or the server from an older copy.
        """
        new = {user for user, tag in zip(users, accepted.tolist(), strict=True) if tag == NEVER}
        later = self.store.users_with_updates() & new if new else set()
        if later:
            self.store.delete_private_state(sorted(later))
            self.initialise()

    def _read(self, data: bytes) -> Message:
        message = read_message(data)
        accepted = message.own.get("accepted")
        users = message.users
        if accepted is None or accepted.dtype != np.int64 or accepted.shape != users.shape:
            raise Malformed(
                "the message lacks the column accepted, or it has a wrong type or shape"
            )
        if users.dtype != np.int32 or users.ndim != 1 or (np.diff(users) <= 0).any():
            raise Malformed("the user indices of the message are not ascending int32")
        if any(rows.ndim == 0 or len(rows) != len(users) for rows in message.own.values()):
            raise Malformed("a column of the message does not have one row for each user")
        return message

    def _exchange(self, number: int) -> AnyExchange:
        if number < len(self.federation.exchanges):
            listed = self.federation.exchanges[number]
            found = listed if isinstance(listed, Exchange) else None
        else:
            found = self.federation.setup(self.world) if number == SETUP else None
        if found is None:
            raise Malformed(f"exchange {number} does not exist")
        if self.world.settings.epsilon is not None and found.private_sum is None:
            raise Malformed(f"exchange {number} has no noise; this federation has a privacy budget")
        return found


@dataclass(frozen=True, slots=True)
class NodeEngine(Engine):
    """The server's engine: it splits messages by node and collects replies."""

    hosts: Ints  # (users,) the node index of each user; -1 if no node hosts it
    transport: Transport
    accepted: Longs  # (users,) the tag of each user's last accepted update
    branch: int = 0
    """How often the run was rolled back."""
    norms: NodeNorms = field(default_factory=NodeNorms)
    """Of updates in the clear, for the server's operator."""

    @classmethod
    def over(cls, hosts: Ints, transport: Transport, branch: int = 0) -> NodeEngine:
        return cls(hosts, transport, np.full(len(hosts), NEVER, np.int64), branch)

    @property
    def stores_private_state(self) -> bool:
        return True

    def gather(self, make: Callable[[AnyWorld, NodeData], PrivateState]) -> PrivateState:
        """Nodes make their private state themselves, so there is nothing to gather."""
        return {}

    def call(self, exchange: ClientTask, message: Message) -> list[Reply]:
        if isinstance(exchange, RingStage | GroupStage):
            message = replace(
                message,
                common=message.common | {STAGE: np.array([ORDER.index(exchange.name)], np.uint8)},
            )
        parts = self.split_by_node(message)
        replies = self.transport({node: write_message(part) for node, part in parts.items()})
        read = {node: read_reply(parts[node], replies[node]) for node in parts if node in replies}
        if STAGE not in message.common:
            for node, reply in read.items():
                self.norms.add(node, reply)
        return list(read.values())

    def split_by_node(self, message: Message) -> dict[int, Message]:
        """The message for each node, with the tags of the updates accepted from its users."""
        own = message.own | {"accepted": self.accepted[message.users]}
        hosts = self.hosts[message.users]
        message = replace(message, own=own)
        return {int(node): message.to(hosts == node) for node in np.unique(hosts[hosts >= 0])}

    def commit(self, t: int, exchange: int, users: Ints) -> None:
        """Record that the updates of these users were accepted."""
        self.accepted[users] = tag(self.branch, t, exchange)
