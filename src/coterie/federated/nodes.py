"""Nodes, whatever engine reaches them: which users they host, and how they process a message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from coterie.core import streams
from coterie.data.training_set import TrainingSet
from coterie.federated import contract
from coterie.federated.federation import (
    AlgorithmSettings,
    AnyWorld,
    Arrays,
    ClientTask,
    NodeData,
    PrivateState,
    World,
)
from coterie.federated.secagg.identity import SimulatedIdentities
from coterie.federated.validation import Reply
from coterie.federated.wire import Malformed, decode, encode
from coterie.types import Ints, Message, Updates

if TYPE_CHECKING:
    from coterie.federated.secagg.session import SessionSlot


def share_out(
    world: World[AlgorithmSettings], training: TrainingSet, n_nodes: int
) -> tuple[World[AlgorithmSettings], tuple[NodeData, ...]]:
    """What nodes know of the world, and the data of each: node u mod n hosts user u.

    Nodes do not learn what the server may know about users.
    """
    all_users = np.arange(training.n_users, dtype=np.int32)
    seed = streams.key(world.seed, "devices")
    training = replace(training, content=world.client_content)
    nodes = []
    for n in range(n_nodes):
        users = all_users[n::n_nodes]
        part = training.of_users(users) if n_nodes > 1 else training
        nodes.append(NodeData(users, part, seed, SimulatedIdentities(seed)))
    return replace(world, user_features={}, content=None, client_content=None), tuple(nodes)


def parts_of(message: Message, n_nodes: int) -> Iterator[tuple[int, Message]]:
    """(node, its part of the message) for every node that hosts a client of the cohort."""
    for node in range(n_nodes):
        part = message if n_nodes == 1 else message.to(message.users % n_nodes == node)
        if len(part.users):
            yield node, part


def by_user(parts: Sequence[tuple[Ints, PrivateState]]) -> PrivateState:
    """Rows that several nodes made for their users, ordered by user."""
    for users, made in parts:
        contract.check_rows_per_user(made, len(users))
    order = np.argsort(np.concatenate([users for users, _ in parts]))
    names = parts[0][1]
    return {name: np.concatenate([rows[name] for _, rows in parts])[order] for name in names}


def receive(
    world: AnyWorld,
    task: ClientTask,
    data: bytes,
    node: NodeData,
    private_state: PrivateState,
    slot: SessionSlot,
) -> tuple[bytes, PrivateState]:
    """The node's side: a message in bytes in, a reply in bytes out. Private state stays here."""
    message = replace(read_message(data), private_state=private_state)
    columns, after = client_columns(world, task, message, node, slot)
    return encode(message.round, columns, exchange=message.exchange), after


def read_message(data: bytes | memoryview) -> Message:
    t, own, common, number = decode(data)
    users = own.pop("users", None)
    if users is None:
        raise Malformed("the message has no column 'users'")
    return Message(t, users, common, own, number)


def write_message(message: Message) -> bytes:
    own = {"users": message.users, **message.own}
    return encode(message.round, own, message.common, message.exchange)


def client_columns(
    world: AnyWorld, task: ClientTask, message: Message, node: NodeData, slot: SessionSlot
) -> tuple[Arrays, PrivateState]:
    """The columns of a node's reply, and the next private state of its clients."""
    made = task.run(world, message, node, slot)
    updates, private_state = made if isinstance(made, tuple) else (made, {})
    if isinstance(updates, Updates):
        contract.check_updates(updates)
        contract.check_private_rows(message.private_state, private_state, len(message.users))
        return updates.columns(), private_state
    return updates, private_state


def read_reply(message: Message, data: bytes) -> Reply:
    """The server's side: whatever the bytes are, a reply that validation can evaluate."""
    try:
        t, columns, common, number = decode(data)
    except Malformed:
        return Reply(message.users)
    return Reply(message.users, t, None if common else columns, number)
