"""What a node remembers of secure aggregation, as bytes in its own store."""

from __future__ import annotations

import json
import struct

from coterie.federated.federation import AnyExchange, AnyWorld, NodeData
from coterie.federated.secagg.group_session_bytes import pack_group, unpack_group
from coterie.federated.secagg.ring_session_bytes import pack_ring, unpack_ring
from coterie.federated.secagg.session import Agreements, GroupSession, SessionSlot

LENGTH = struct.Struct("<I")


def pack_slot(slot: SessionSlot) -> bytes:
    """A session, behind a header with the agreements of clients."""
    session = slot.session
    assert session is not None
    agreements = slot.agreements
    header = {
        "protocol": "secagg" if isinstance(session, GroupSession) else "ring",
        "newest": agreements.newest,
        "agreed": [
            (user, phase, context.hex()) for (user, phase), context in agreements.contexts.items()
        ],
    }
    text = json.dumps(header).encode()
    content = pack_group(session) if isinstance(session, GroupSession) else pack_ring(session)
    return LENGTH.pack(len(text)) + text + content


def unpack_slot(data: bytes, world: AnyWorld, exchange: AnyExchange, node: NodeData) -> SessionSlot:
    (length,) = LENGTH.unpack_from(data)
    header = json.loads(data[LENGTH.size : LENGTH.size + length])
    content = data[LENGTH.size + length :]
    agreed = {(user, phase): bytes.fromhex(text) for user, phase, text in header["agreed"]}
    newest_round, newest_exchange = header["newest"]
    agreements = Agreements((newest_round, newest_exchange), agreed)
    if header["protocol"] == "secagg":
        return SessionSlot(unpack_group(content, world, exchange, node), agreements)
    return SessionSlot(unpack_ring(content, world, exchange), agreements)
