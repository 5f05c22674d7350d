"""A ring session as bytes, for nodes that start a new process for every message.

The bytes hold private keys and seeds. They stay in the node's own store.
"""

from __future__ import annotations

import json

import numpy as np

from coterie.federated.federation import AnyExchange, AnyWorld
from coterie.federated.secagg import client_updates
from coterie.federated.secagg.crypto import KeyPair, Seed
from coterie.federated.secagg.ring_member import Neighbour, RingMember, RingTerms
from coterie.federated.secagg.ring_node import bind_vectors
from coterie.federated.secagg.session import GroupId, RingSession
from coterie.federated.secagg.words import Words
from coterie.types import JsonObject


def pack_ring(session: RingSession) -> bytes:
    members = list(session.members.values())
    header = {"ring": session.ring, "members": [_member_to_json(member) for member in members]}
    arrays: dict[str, np.ndarray] = {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)}
    for member in members:
        if member.received_share is not None:
            arrays[f"received_share {member.user}"] = member.received_share
    if session.rows is not None:
        arrays["rows"] = session.rows
    return client_updates.pack(session.computed, arrays)


def unpack_ring(data: bytes, world: AnyWorld, exchange: AnyExchange) -> RingSession:
    computed, arrays = client_updates.unpack(data)
    header = json.loads(arrays["header"].tobytes())
    members = {}
    for each in header["members"]:
        user = each["user"]
        members[user] = _member_from_json(each, arrays.get(f"received_share {user}"))
    session = RingSession(GroupId(*header["ring"]), members, computed, arrays.get("rows"))
    return session if session.rows is None else bind_vectors(world, exchange, session)


def _member_to_json(member: RingMember) -> JsonObject:
    self_masks = {side: seed.hex() for side, seed in member.neighbour_self_masks.items()}
    return {
        "user": member.user,
        "terms": member.terms,
        "secret_key": member.key_pair.secret.hex(),
        "attempt": member.attempt,
        "predecessor": _neighbour_to_json(member.predecessor),
        "successor": _neighbour_to_json(member.successor),
        "share": member.share.hex(),
        "self_mask": member.self_mask.hex(),
        "neighbour_self_masks": self_masks,
        "neighbour_uploaded": member.neighbour_uploaded,
        "recovered": member.recovered,
    }


def _member_from_json(stored: JsonObject, received_share: Words | None) -> RingMember:
    self_masks = stored["neighbour_self_masks"]
    return RingMember(
        user=stored["user"],
        terms=RingTerms(*stored["terms"]),
        vector=_not_bound,
        key_pair=KeyPair.from_secret(bytes.fromhex(stored["secret_key"])),
        attempt=stored["attempt"],
        predecessor=_neighbour_from_json(stored["predecessor"]),
        successor=_neighbour_from_json(stored["successor"]),
        share=_seed(stored["share"]),
        self_mask=_seed(stored["self_mask"]),
        received_share=received_share,
        neighbour_self_masks={side: _seed(seed) for side, seed in self_masks.items()},
        neighbour_uploaded=stored["neighbour_uploaded"],
        recovered=stored["recovered"],
    )


def _not_bound() -> Words:
    """The vector of a member before `bind_vectors`."""
    return np.empty(0, np.uint64)


def _seed(text: str) -> Seed:
    return Seed(bytes.fromhex(text))


def _neighbour_to_json(neighbour: Neighbour | None) -> tuple[int, str] | None:
    return None if neighbour is None else (neighbour.user, neighbour.key.hex())


def _neighbour_from_json(stored: tuple[int, str] | None) -> Neighbour | None:
    return None if stored is None else Neighbour(stored[0], bytes.fromhex(stored[1]))
