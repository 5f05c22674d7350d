"""Bytes of a client in a ring without dropouts, computed from the shapes of what is sent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from coterie.federated.federation import AnyWorld
from coterie.federated.secagg.client_bytes import (
    ClientBytes,
    Summed,
    reply_bytes,
    sent_bytes,
    uploaded,
)
from coterie.federated.secagg.crypto import KEY_BYTES, SEED_BYTES, TAG_BYTES
from coterie.federated.secagg.ring_node import RingHeader
from coterie.federated.secagg.stages import RECEIVED, StageArrays
from coterie.federated.wire import message_size

SHARE = 2 * SEED_BYTES + TAG_BYTES
"""Bytes of a share ciphertext: the share seed and the self-mask seed."""
SELF_MASK = SEED_BYTES + TAG_BYTES
"""Bytes of a self-mask ciphertext."""
CIPHERTEXTS = {"share_ciphertext": SHARE, "self_mask_ciphertext": SELF_MASK}
STAGES_RUN = ("advertise_keys", "distribute_shares", "upload", "unmask")
"""The stages of a ring that no client drops out of."""
HEADER = {"ring": np.zeros(len(RingHeader._fields), np.int64)}


def ring_bytes(world: AnyWorld, n_clients: int, summed: Summed) -> ClientBytes:
    """Bytes of one client. They do not depend on the size of its ring. Shares are seeds."""
    up = sum(reply_bytes(_reply(stage, summed)) for stage in STAGES_RUN)
    first = message_size(replace(summed.message, common=summed.message.common | HEADER))
    later = sum(sent_bytes(_received(stage), HEADER) for stage in STAGES_RUN[1:])
    return ClientBytes(up, first + later)


def _reply(stage: str, summed: Summed) -> StageArrays:
    """Arrays of the shapes that one client replies with."""
    arrays = {
        "advertise_keys": {"key": _octets(KEY_BYTES)},
        "distribute_shares": {name: _octets(size) for name, size in CIPHERTEXTS.items()},
        "upload": uploaded(summed),
        "unmask": {"self_mask": _octets(SEED_BYTES), "share_ciphertext": _octets(SELF_MASK)},
    }
    return arrays[stage]


def _received(stage: str) -> StageArrays:
    """Arrays of the shapes that one client is sent."""
    return {
        name: np.zeros((1,) if size is None else (1, CIPHERTEXTS.get(name, size)), dtype)
        for name, (dtype, size) in RECEIVED[stage].items()
    }


def _octets(size: int) -> np.ndarray:
    return np.zeros((1, size), np.uint8)
