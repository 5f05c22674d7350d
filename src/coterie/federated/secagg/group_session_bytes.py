"""A group session as bytes, for nodes that start a new process for every message.

The bytes hold private keys and seeds. They stay in the node's own store.
"""

from __future__ import annotations

import json

import numpy as np

from coterie.federated.federation import AnyExchange, AnyWorld, NodeData
from coterie.federated.secagg import client_updates
from coterie.federated.secagg.crypto import KeyPair, Seed
from coterie.federated.secagg.group_member import (
    Advert,
    GroupMember,
    GroupTerms,
    Hosted,
    Shares,
)
from coterie.federated.secagg.group_node import bind_vectors, known_keys_of, no_vector
from coterie.federated.secagg.session import GroupId, GroupSession
from coterie.types import JsonObject


def pack_group(session: GroupSession) -> bytes:
    terms = next((member.terms for member in session.members.values()), None)
    # Clients of a node have most adverts in common.
    adverts: dict[tuple[int, Advert], int] = {}
    for member in session.members.values():
        for one in member.adverts.items():
            adverts.setdefault(one, len(adverts))
    header = {
        "group": session.group,
        "phase": session.phase,
        "context": session.context.hex(),
        "terms": None if terms is None else {**terms._asdict(), "broadcast": terms.broadcast.hex()},
        "adverts": [(user, _advert_to_json(advert)) for user, advert in adverts],
        "members": [_member_to_json(member, adverts) for member in session.members.values()],
    }
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    return client_updates.pack(session.computed, {"header": text, "rows": session.rows})


def unpack_group(
    data: bytes, world: AnyWorld, exchange: AnyExchange, node: NodeData
) -> GroupSession:
    computed, arrays = client_updates.unpack(data)
    header = json.loads(arrays["header"].tobytes())
    session = GroupSession(
        group=GroupId(*header["group"]),
        phase=header["phase"],
        members=_members(header, node),
        computed=computed,
        rows=arrays["rows"],
        context=bytes.fromhex(header["context"]),
    )
    bind_vectors(world, exchange, session)
    return session


def _members(header: JsonObject, node: NodeData) -> dict[int, GroupMember]:
    stored = header["terms"]
    identities = node.identities
    if stored is None or identities is None:
        return {}
    broadcast = bytes.fromhex(stored["broadcast"])
    terms = GroupTerms(**(stored | {"users": tuple(stored["users"]), "broadcast": broadcast}))
    known_keys = known_keys_of(identities, terms)
    adverts = [(user, _advert_from_json(one)) for user, one in header["adverts"]]
    hosted = Hosted()
    members = {}
    for each in header["members"]:
        user = each["user"]
        members[user] = GroupMember(
            user=user,
            terms=terms,
            identity=identities.own(user),
            known_keys=known_keys,
            vector=no_vector,
            mask_key=KeyPair.from_secret(bytes.fromhex(each["mask_key"])),
            cipher_key=KeyPair.from_secret(bytes.fromhex(each["cipher_key"])),
            self_mask=Seed(bytes.fromhex(each["self_mask"])),
            hosted=hosted,
            holders=tuple(each["holders"]),
            adverts=dict(adverts[place] for place in each["adverts"]),
            ciphertexts={user: bytes.fromhex(one) for user, one in each["ciphertexts"]},
            held={
                user: Shares(bytes.fromhex(of_mask_key), bytes.fromhex(of_self_mask))
                for user, of_mask_key, of_self_mask in each["held"]
            },
            masked_with=frozenset(each["masked_with"]),
            survivors=frozenset(each["survivors"]),
            received={stage: bytes.fromhex(one) for stage, one in each["received"].items()},
        )
    return members


def _member_to_json(member: GroupMember, adverts: dict[tuple[int, Advert], int]) -> JsonObject:
    return {
        "user": member.user,
        "mask_key": member.mask_key.secret.hex(),
        "cipher_key": member.cipher_key.secret.hex(),
        "self_mask": member.self_mask.hex(),
        "holders": member.holders,
        "adverts": [adverts[one] for one in member.adverts.items()],
        "ciphertexts": [(user, one.hex()) for user, one in member.ciphertexts.items()],
        "held": [
            (user, shares.of_mask_key.hex(), shares.of_self_mask.hex())
            for user, shares in member.held.items()
        ],
        "masked_with": sorted(member.masked_with),
        "survivors": sorted(member.survivors),
        "received": {stage: one.hex() for stage, one in member.received.items()},
    }


def _advert_to_json(advert: Advert) -> list[str | tuple[int, ...]]:
    keys = (advert.mask_key, advert.cipher_key, advert.self_mask_digest, advert.signature)
    return [*(key.hex() for key in keys), advert.holders]


def _advert_from_json(stored: list[str | list[int]]) -> Advert:
    *keys, holders = stored
    mask_key, cipher_key, digest, signature = (bytes.fromhex(str(key)) for key in keys)
    return Advert(mask_key, cipher_key, digest, tuple(int(user) for user in holders), signature)
