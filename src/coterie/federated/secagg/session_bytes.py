"""What a node remembers of secure aggregation, as bytes in its own store."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable

from coterie.federated.federation import AnyExchange, AnyWorld, NodeData
from coterie.federated.secagg.group_session_bytes import pack_group, unpack_group
from coterie.federated.secagg.ring_session_bytes import pack_ring, unpack_ring
from coterie.federated.secagg.session import SessionSlot

LENGTH = struct.Struct("<I")


def pack_slot(slot: SessionSlot) -> bytes:
    """The sessions, behind a header with their sizes."""
    ring = b"" if slot.ring is None else pack_ring(slot.ring)
    groups = [pack_group(session) for session in slot.groups]
    header = {
        "round": slot.round,
        "ring": len(ring),
        "groups": [
            (session.group.exchange, len(data))
            for session, data in zip(slot.groups, groups, strict=True)
        ],
    }
    text = json.dumps(header).encode()
    return b"".join([LENGTH.pack(len(text)), text, ring, *groups])


def unpack_slot(
    data: bytes,
    world: AnyWorld,
    node: NodeData,
    exchange: AnyExchange,
    exchange_of: Callable[[int], AnyExchange],
) -> SessionSlot:
    """The sessions in bytes of `pack_slot`.

    A ring is of the current exchange; `exchange_of` gives those of groups by their number.
    """
    (length,) = LENGTH.unpack_from(data)
    start = LENGTH.size + length
    header = json.loads(data[LENGTH.size : start])
    slot = SessionSlot(round=header["round"])
    end = start + header["ring"]
    if header["ring"]:
        slot.ring = unpack_ring(data[start:end], world, exchange)
    for number, size in header["groups"]:
        session = unpack_group(data[end : end + size], world, exchange_of(number), node)
        slot.groups.append(session)
        end += size
    return slot
