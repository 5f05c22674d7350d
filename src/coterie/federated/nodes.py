"""Nodes, whatever engine speaks to them: who lives where, and what a node makes of a message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from coterie.core import streams
from coterie.data.training_set import TrainingSet
from coterie.federated.federation import ClientTask, NodeData, PrivateState, World
from coterie.federated.validation import Reply
from coterie.federated.wire import Malformed, decode, encode
from coterie.types import Ints, Message, Updates


def share_out(
    world: World, training: TrainingSet, n_nodes: int
) -> tuple[World, tuple[NodeData, ...]]:
    """What nodes know of the world, and what each has: user u lives on node u mod n. Nodes do not learn what the server may know about people."""
    people = np.arange(training.n_users, dtype=np.int32)
    seed = streams.key(world.seed, "devices")
    training = replace(training, content=world.on_devices)
    shares = [people[n::n_nodes] for n in range(n_nodes)]
    nodes = tuple(
        NodeData(users, training.of_users(users) if n_nodes > 1 else training, seed)
        for users in shares
    )
    return replace(world, user_features={}, content=None, on_devices=None), nodes


def parts_of(message: Message, n_nodes: int) -> Iterator[tuple[int, Message]]:
    """The message to every node that hosts somebody of the cohort."""
    for number in range(n_nodes):
        part = message if n_nodes == 1 else message.to(message.users % n_nodes == number)
        if len(part.users):
            yield number, part


def by_user(parts: Sequence[tuple[Ints, PrivateState]]) -> PrivateState:
    """What devices of several nodes made, in the order of their users."""
    order = np.argsort(np.concatenate([users for users, _ in parts]))
    return {
        name: np.concatenate([private_state[name] for _, private_state in parts])[order]
        for name in parts[0][1]
    }


def receive(
    world: World, exchange: ClientTask, data: bytes, node: NodeData, private_state: PrivateState
) -> tuple[bytes, PrivateState]:
    """The node's side: bytes in, bytes out; what its devices keep stays."""
    message = replace(read_message(data), private_state=private_state)
    columns, after = answer(world, exchange, message, node)
    return encode(message.round, columns, exchange=message.exchange), after


def read_message(data: bytes) -> Message:
    t, own, common, number = decode(data)
    users = own.pop("users", None)
    if users is None:
        raise Malformed("the message is for nobody")
    return Message(t, users, common, own, number)


def write_message(message: Message) -> bytes:
    return encode(
        message.round, {"users": message.users, **message.own}, message.common, message.exchange
    )


def answer(
    world: World, exchange: ClientTask, message: Message, node: NodeData
) -> tuple[dict[str, np.ndarray], PrivateState]:
    made = exchange.answer(world, message, node)
    said, private_state = made if isinstance(made, tuple) else (made, {})
    return said.columns() if isinstance(said, Updates) else said, private_state


def read_reply(message: Message, data: bytes) -> Reply:
    """The server's side: whatever the bytes are, a reply that validation can judge."""
    try:
        t, columns, common, number = decode(data)
    except Malformed:
        return Reply(message.users)
    return Reply(message.users, t, None if common else columns, number)
