"""Bytes of a client in a ring without dropouts, computed from the shapes of what is sent.

`StageChannel` counts the same bytes while a ring runs: a test compares the two. Computing them
needs no ring, and no cryptography.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from coterie.federated.federation import AnyExchange, AnyWorld
from coterie.federated.secagg.crypto import KEY_BYTES, SEED_BYTES, TAG_BYTES
from coterie.federated.secagg.ring_node import RingHeader
from coterie.federated.secagg.stages import RECEIVED
from coterie.federated.secagg.summed_vector import summed_rows, vector_length
from coterie.federated.secagg.words import UNSIGNED, Word
from coterie.federated.wire import message_size
from coterie.types import Message, Sizes

SHARE = 2 * SEED_BYTES + TAG_BYTES
"""Bytes of a share ciphertext: the share seed and the self-mask seed."""
SELF_MASK = SEED_BYTES + TAG_BYTES
"""Bytes of a self-mask ciphertext."""
CIPHERTEXTS = {"share_ciphertext": SHARE, "self_mask_ciphertext": SELF_MASK}
STAGES_RUN = ("advertise_keys", "distribute_shares", "upload", "unmask")
"""The stages of a ring that no client drops out of."""
HEADER = {"ring": np.zeros(len(RingHeader._fields), np.int64)}


class ClientBytes(NamedTuple):
    """What one client sends and receives in an exchange."""

    up: int
    down: int


def summed_length(world: AnyWorld, exchange: AnyExchange, message: Message, sizes: Sizes) -> int:
    """The length of the vector that a ring sums with ring_rows=all."""
    rows = summed_rows(world, exchange, 0, sizes.items, None)
    return vector_length(world, exchange, message, sizes, rows)


def client_bytes(
    message: Message, length: int, word: Word = 64, user_width: int | None = None
) -> ClientBytes:
    """Bytes of an exchange under secure aggregation, with the message that it begins with.

    Shares are seeds. `user_width` is the length of the user row that is sent in the clear, with the
    number of samples; None where the exchange shows nothing (`Exchange.visible`).
    """
    replies = {stage: _reply(stage, length, word) for stage in STAGES_RUN}
    if user_width is not None:
        replies["upload"] |= {
            "samples": np.zeros(1, np.int64),
            "user_rows": np.zeros((1, user_width), np.int32),
        }
    up = sum(message_size(_message(reply)) for reply in replies.values())
    first = message_size(replace(message, common=message.common | HEADER))
    later = sum(message_size(_message(_received(stage), HEADER)) for stage in STAGES_RUN[1:])
    return ClientBytes(up, first + later)


def _reply(stage: str, length: int, word: Word) -> dict[str, np.ndarray]:
    """Arrays of the shapes that one client replies with."""
    arrays = {
        "advertise_keys": {"key": _octets(KEY_BYTES)},
        "distribute_shares": {name: _octets(size) for name, size in CIPHERTEXTS.items()},
        # A view of one number: the vector itself may have millions.
        "upload": {"vector": np.broadcast_to(UNSIGNED[word](0), (1, length))},
        "unmask": {"self_mask": _octets(SEED_BYTES), "share_ciphertext": _octets(SELF_MASK)},
    }
    return arrays[stage] | {"stage": np.zeros(1, np.uint8)}


def _received(stage: str) -> dict[str, np.ndarray]:
    """Arrays of the shapes that one client is sent."""
    return {
        name: np.zeros((1,) if size is None else (1, CIPHERTEXTS.get(name, size)), dtype)
        for name, (dtype, size) in RECEIVED[stage].items()
    }


def _octets(size: int) -> np.ndarray:
    return np.zeros((1, size), np.uint8)


def _message(own: dict[str, np.ndarray], common: dict[str, np.ndarray] | None = None) -> Message:
    return Message(0, np.zeros(1, np.int32), common or {}, own)
