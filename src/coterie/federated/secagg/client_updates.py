"""The updates of a node's clients while secure aggregation sums them: computed once, never sent."""

from __future__ import annotations

import numpy as np

from coterie.core import npz, parallel
from coterie.federated.federation import AnyExchange, AnyWorld, NodeData
from coterie.federated.nodes import read_message, write_message
from coterie.federated.secagg.session import ClientUpdates
from coterie.federated.secagg.summed_vector import flat_vector
from coterie.federated.secagg.words import Words
from coterie.federated.validation import Expected, Reply, validate
from coterie.types import Ints, Message, Sizes, Updates


def compute_updates(
    world: AnyWorld, exchange: AnyExchange, message: Message, node: NodeData, sizes: Sizes
) -> ClientUpdates:
    result = exchange.client_update(world, message, node)
    updates, private_state = (result, {}) if isinstance(result, Updates) else result
    reply = Reply(message.users, message.round, updates.columns(), message.exchange)
    updates = validate([reply], Expected.of(message, sizes)).updates
    return ClientUpdates(message, updates, private_state, sizes)


def vector_of(
    computed: ClientUpdates, world: AnyWorld, exchange: AnyExchange, user: int, rows: Ints
) -> Words:
    """The vector that a client with a valid update adds to the sum."""
    message = computed.message.to(np.searchsorted(computed.message.users, np.array([user])))
    update = computed.updates.take(np.searchsorted(computed.updates.users, np.array([user])))
    with parallel.on_this_thread():
        return flat_vector(world, exchange, message, update, rows)


# As bytes, for nodes that start a new process for every message


def pack(computed: ClientUpdates, more: dict[str, np.ndarray]) -> bytes:
    """Updates and further arrays. They stay in the node's own store."""
    arrays: dict[str, np.ndarray] = {
        "sizes": np.array(computed.sizes, np.int64),
        "message": np.frombuffer(write_message(computed.message), np.uint8),
    }
    arrays |= {f"update {name}": column for name, column in computed.updates.columns().items()}
    arrays |= {f"private {name}": rows for name, rows in computed.private_state.items()}
    return npz.packed(arrays | more)


def unpack(data: bytes) -> tuple[ClientUpdates, dict[str, np.ndarray]]:
    arrays = npz.read_bytes(data, "the updates of a secure aggregation")
    computed = ClientUpdates(
        message=read_message(arrays["message"].tobytes()),
        updates=Updates(**_with_prefix("update", arrays)),
        private_state=_with_prefix("private", arrays),
        sizes=Sizes(*arrays["sizes"].tolist()),
    )
    return computed, arrays


def _with_prefix(kind: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    prefix = f"{kind} "
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
