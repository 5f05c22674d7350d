"""A node's side of `ring`: its users as ring members, from one stage to the next."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from coterie.federated.federation import (
    AnyExchange,
    AnyWorld,
    NodeData,
    PrivateState,
)
from coterie.federated.secagg.client_updates import compute_updates, vector_of
from coterie.federated.secagg.crypto import Rejected
from coterie.federated.secagg.ring_member import Neighbour, RingMember, RingTerms, ShareForm, Side
from coterie.federated.secagg.session import GroupId, RingSession, SessionSlot
from coterie.federated.secagg.stages import (
    NO_REPLY,
    ORDER,
    StageArrays,
    has_rows,
    received_as_expected,
)
from coterie.federated.secagg.summed_vector import (
    summed_rows,
    touched_items,
    vector_length,
)
from coterie.federated.secagg.words import Word, Words
from coterie.types import Ints, Message, Sizes

FORMS: tuple[tuple[ShareForm, Word], ...] = (
    ("seed", 64),
    ("vector", 64),
    ("seed", 32),
    ("vector", 32),
)
"""The form of shares and the word of vectors. A place here is a number on the wire: append only."""
MAX_SIZE = 1 << 31
"""Sizes in a ring's header are smaller."""


class RingHeader(NamedTuple):
    """What a server sends about a ring at every stage, as one row of integers."""

    number: int
    form: int
    """A place in `FORMS`."""
    union: int
    items: int
    item_width: int
    user_width: int
    dense: int
    length: int = 0
    """The length of the summed vector: known after `advertise_keys`."""

    @classmethod
    def read(cls, row: np.ndarray | None) -> RingHeader | None:
        """The header in an array from the network; None if the array is not a valid one."""
        if row is None or row.dtype != np.int64 or row.shape != (len(cls._fields),):
            return None
        if (row < 0).any():
            return None
        header = cls(*row.tolist())
        valid = header.form < len(FORMS) and max(header.sizes) < MAX_SIZE
        return header if valid else None

    @property
    def sizes(self) -> Sizes:
        return Sizes(*self[3:7])

    @property
    def shares(self) -> ShareForm:
        return FORMS[self.form][0]

    @property
    def word(self) -> Word:
        return FORMS[self.form][1]


@dataclass(frozen=True, slots=True)
class RingStage:
    """One stage of a ring, as the task that an engine sends to nodes."""

    name: str
    exchange: AnyExchange
    """The exchange whose updates the ring sums."""

    @property
    def role(self) -> str:
        return self.exchange.role

    def run(
        self, world: AnyWorld, message: Message, node: NodeData, slot: SessionSlot
    ) -> tuple[StageArrays, PrivateState]:
        """The replies of a node's users. A message that is not valid at this stage gets none."""
        header = RingHeader.read(message.common.get("ring"))
        secure = self.exchange.secure_sum
        if header is None or secure is None:
            return NO_REPLY, {}
        # The word follows from what a node knows itself. A server cannot choose another one.
        if header.word != secure.word(world):
            return NO_REPLY, {}
        common = {name: array for name, array in message.common.items() if name != "ring"}
        ring = GroupId(message.round, message.exchange, header.number)
        if self.name == "advertise_keys":
            message = replace(message, common=common)
            slot.ring = start_session(world, self.exchange, message, node, ring, header)
            return advertise_keys_of(slot.ring, header), {}
        session = slot.ring
        if session is None or session.ring != ring:
            return NO_REPLY, {}
        if not received_as_expected(self.name, len(message.users), message.own):
            return NO_REPLY, {}
        if self.name == "distribute_shares":
            rows = agree_on_rows(world, self.exchange, session, header, common.get("rows"))
            if rows is None:
                return NO_REPLY, {}
            session = bind_vectors(world, self.exchange, session._replace(rows=rows))
            slot.ring = session
        replies = reply_to(self.name, session.members, message.users.tolist(), message.own)
        if self.name != "upload" or not len(replies["users"]):
            return replies, {}
        if self.exchange.visible:
            replies = replies | session.computed.in_the_clear(replies["users"])
        return replies, session.computed.private_state_of(message.users)


def start_session(
    world: AnyWorld,
    exchange: AnyExchange,
    message: Message,
    node: NodeData,
    ring: GroupId,
    header: RingHeader,
) -> RingSession:
    """Compute the users' updates, and make members of those with a valid one."""
    computed = compute_updates(world, exchange, message, node, header.sizes)
    terms = RingTerms(*ring, length=0, shares=header.shares, word=header.word)
    members = {
        user: RingMember(user, terms, _no_vector) for user in computed.updates.users.tolist()
    }
    return RingSession(ring, members, computed)


def advertise_keys_of(session: RingSession, header: RingHeader) -> StageArrays:
    """The public keys of all members and, for a union of rows, the items they touched."""
    updates = session.computed.updates
    users = updates.users
    replies = reply_to("advertise_keys", session.members, users.tolist(), {})
    if header.union and len(users):
        replies = replies | {"touched": touched_items(updates, header.items)}
    return replies


def agree_on_rows(
    world: AnyWorld,
    exchange: AnyExchange,
    session: RingSession,
    header: RingHeader,
    union: np.ndarray | None,
) -> Ints | None:
    """Set the members' terms to the summed rows; None if the header does not match the session."""
    computed = session.computed
    if header.sizes != computed.sizes:
        return None
    union_bytes = -(-header.items // 8)
    if union is not None and not has_rows(union[None], 1, np.uint8, union_bytes):
        return None
    rows = summed_rows(world, exchange, header.number, header.items, union)
    if header.length != vector_length(world, exchange, computed.message, computed.sizes, rows):
        return None
    digest = hashlib.sha256(rows.tobytes()).hexdigest()
    for member in session.members.values():
        if member.received_share is None:
            member.terms = member.terms._replace(length=header.length, rows=digest)
    return rows


def bind_vectors(world: AnyWorld, exchange: AnyExchange, session: RingSession) -> RingSession:
    """Let members compute their private vectors, which need the summed rows."""
    assert session.rows is not None
    for user, member in session.members.items():
        member.vector = partial(vector_of, session.computed, world, exchange, user, session.rows)
    return session


def _no_vector() -> Words:
    return np.empty(0, np.uint64)


def reply_to(
    stage: str, members: dict[int, RingMember], users: Iterable[int], own: StageArrays
) -> StageArrays:
    """The replies of some members to a stage. A member that rejects its message sends none."""
    replied = []
    replies = []
    for k, user in enumerate(users):
        received = {name: rows[k] for name, rows in own.items()}
        try:
            reply = STAGES[stage](members[user], received)
        except (Rejected, KeyError):
            continue
        replied.append(user)
        replies.append(reply)
    if not replied:
        return NO_REPLY
    arrays = {name: np.stack([reply[name] for reply in replies]) for name in replies[0]}
    arrays["users"] = np.array(replied, np.int32)
    # The stage travels with the reply: a reply that is replayed at another stage is ignored.
    arrays["stage"] = np.full(len(replied), ORDER.index(stage), np.uint8)
    return arrays


def _advertise_keys(member: RingMember, received: StageArrays) -> StageArrays:
    return {"key": _array(member.advertise_keys())}


def _distribute_shares(member: RingMember, received: StageArrays) -> StageArrays:
    for_successor, for_predecessor = member.distribute_shares(
        int(received["attempt"]),
        _neighbour(received, "predecessor"),
        _neighbour(received, "successor"),
    )
    return {
        "share_ciphertext": _array(for_successor),
        "self_mask_ciphertext": _array(for_predecessor),
    }


def _upload(member: RingMember, received: StageArrays) -> StageArrays:
    share = received["share_ciphertext"].tobytes()
    self_mask = received["self_mask_ciphertext"].tobytes()
    return {"vector": member.upload(share, self_mask)}


def _unmask(member: RingMember, received: StageArrays) -> StageArrays:
    self_mask, share_ciphertext = member.unmask(
        bool(received["predecessor_uploaded"]),
        bool(received["successor_uploaded"]),
        _neighbour(received, "successor"),
    )
    return {"self_mask": _array(self_mask), "share_ciphertext": _array(share_ciphertext)}


def _reveal_self_mask_of_predecessor(member: RingMember, received: StageArrays) -> StageArrays:
    return {"self_mask": _array(member.reveal_self_mask("predecessor"))}


def _reveal_self_mask_of_successor(member: RingMember, received: StageArrays) -> StageArrays:
    return {"self_mask": _array(member.reveal_self_mask("successor"))}


def _recover(member: RingMember, received: StageArrays) -> StageArrays:
    share = received["share_ciphertext"].tobytes()
    return {"vector": member.recover(share, _neighbour(received, "predecessor"))}


STAGES: dict[str, Callable[[RingMember, StageArrays], StageArrays]] = {
    "advertise_keys": _advertise_keys,
    "distribute_shares": _distribute_shares,
    "upload": _upload,
    "unmask": _unmask,
    "reveal_self_mask_of_predecessor": _reveal_self_mask_of_predecessor,
    "reveal_self_mask_of_successor": _reveal_self_mask_of_successor,
    "recover": _recover,
}


def _array(content: bytes) -> np.ndarray:
    return np.frombuffer(content, np.uint8)


def _neighbour(received: StageArrays, side: Side) -> Neighbour:
    return Neighbour(int(received[side]), received[f"{side}_key"].tobytes())
