"""Bytes of one client in an exchange under secure aggregation, computed without a run.

`ring_bytes` and `group_bytes` compute them from the shapes of what is sent, without cryptography.
`StageChannel` counts the same bytes while a protocol runs: tests compare the two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from coterie.federated.federation import AnyExchange, AnyWorld
from coterie.federated.secagg.stages import StageArrays
from coterie.federated.secagg.summed_vector import summed_rows, vector_length
from coterie.federated.secagg.words import UNSIGNED, Word
from coterie.federated.wire import message_size
from coterie.types import Message, Sizes


class ClientBytes(NamedTuple):
    """What one client sends and receives in an exchange."""

    up: int
    down: int


class Summed(NamedTuple):
    """What secure aggregation sums in an exchange."""

    message: Message
    """The message that the exchange begins with."""
    length: int
    """Of a client's vector."""
    word: Word = 64
    user_width: int | None = None
    """Length of the user row that is sent in the clear, with the number of samples; None where the
    exchange shows nothing (`Exchange.visible`)."""


ComputeBytes = Callable[[AnyWorld, int, Summed], ClientBytes]
"""(world, clients of the round, what is summed) -> bytes of one client without dropouts."""


def summed_length(world: AnyWorld, exchange: AnyExchange, message: Message, sizes: Sizes) -> int:
    """The length of the vector that is summed with all rows (ring_rows=all, group_rows=all)."""
    rows = summed_rows(world, exchange, 0, sizes.items, None)
    return vector_length(world, exchange, message, sizes, rows)


def uploaded(summed: Summed) -> StageArrays:
    """Arrays of the shapes that one client uploads."""
    # A view of one number: the vector itself may have millions.
    arrays = {"vector": np.broadcast_to(UNSIGNED[summed.word](0), (1, summed.length))}
    if summed.user_width is None:
        return arrays
    return arrays | {
        "samples": np.zeros(1, np.int64),
        "user_rows": np.zeros((1, summed.user_width), np.int32),
    }


def reply_bytes(arrays: StageArrays) -> int:
    """Bytes of one client's reply at a stage."""
    return sent_bytes(arrays | {"stage": np.zeros(1, np.uint8)}, {})


def sent_bytes(own: StageArrays, common: StageArrays) -> int:
    """Bytes of a message to or from one client."""
    return message_size(Message(0, np.zeros(1, np.int32), common, own))
