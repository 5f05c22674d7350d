"""A node's side of `secagg`: its users as clients of a group, from one stage to the next."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from coterie.federated.federation import AnyExchange, AnyWorld, NodeData, PrivateState
from coterie.federated.privacy.noise import fewest_survivors, plan_of, share_of_noise
from coterie.federated.secagg import group_stages
from coterie.federated.secagg.client_updates import compute_updates, vector_of
from coterie.federated.secagg.crypto import Rejected, Seed, derive_key, expand
from coterie.federated.secagg.group_member import (
    GroupMember,
    GroupTerms,
    Hosted,
    mask_vectors,
)
from coterie.federated.secagg.group_terms import (
    ROW_WORD,
    ROWS,
    GroupHeader,
    digest_of_broadcast,
    group_terms,
    sums_union,
)
from coterie.federated.secagg.identity import Identities
from coterie.federated.secagg.session import (
    ClientUpdates,
    GroupId,
    GroupSession,
    SessionSlot,
)
from coterie.federated.secagg.stages import (
    ADVERTISE,
    AGREE,
    NO_REPLY,
    ORDER,
    SHARE,
    UNMASK,
    UPLOAD,
    StageArrays,
    has_rows,
)
from coterie.federated.secagg.summed_vector import summed_rows, vector_length
from coterie.federated.secagg.words import UNSIGNED, Words, to_integers, to_words
from coterie.types import Ints, Message

NO_ROWS = np.empty(0, np.int32)
METHODS: dict[str, Callable[..., Any]] = {
    SHARE: GroupMember.share,
    AGREE: GroupMember.agree,
    UNMASK: GroupMember.unmask,
}
"""What a client does with what it received at a stage."""


@dataclass(frozen=True, slots=True)
class GroupStage:
    """One stage of a group, as the task that an engine sends to nodes."""

    name: str
    exchange: AnyExchange
    """The exchange whose updates the group sums."""

    @property
    def role(self) -> str:
        return self.exchange.role

    def run(
        self, world: AnyWorld, message: Message, node: NodeData, slot: SessionSlot
    ) -> tuple[StageArrays, PrivateState]:
        """The replies of a node's users. A message that is not valid at this stage gets none."""
        header = GroupHeader.read(message.common.get("group"))
        if header is None or self.exchange.secure_sum is None:
            return NO_REPLY, {}
        try:
            if self.name == ADVERTISE:
                slot.open(open_session(world, self.exchange, message, node, slot, header))
            group = GroupId(message.round, message.exchange, header.number)
            session = slot.find(group, header.phase)
            if session is None:
                raise Rejected("no session of this group is open")
            replies = self._replies(session, message)
        except ValueError:  # Malformed, or Rejected for all users
            return NO_REPLY, {}
        if self.name != UPLOAD or header.phase == ROWS or not len(replies["users"]):
            return replies, {}
        if self.exchange.visible:
            replies = replies | session.computed.in_the_clear(replies["users"])
        return replies, session.computed.private_state_of(message.users)

    def _replies(self, session: GroupSession, message: Message) -> StageArrays:
        members = [
            session.members[user] for user in message.users.tolist() if user in session.members
        ]
        if not members:
            return NO_REPLY
        replied, replies = self._by_member(members, message)
        if not replied:
            return NO_REPLY
        holders = [member.holders for member in replied]
        arrays = group_stages.to_server(self.name, replies, holders)
        arrays["users"] = np.array([member.user for member in replied], np.int32)
        # The stage travels with the reply: a reply that is replayed at another stage is ignored.
        arrays["stage"] = np.full(len(replied), ORDER.index(self.name), np.uint8)
        return arrays

    def _by_member(
        self, members: list[GroupMember], message: Message
    ) -> tuple[list[GroupMember], Any]:
        """The clients that reply, and their replies. One that rejects its message sends none."""
        if self.name == ADVERTISE:
            return members, [member.advertise() for member in members]
        holders = members[0].terms.holders
        received = group_stages.from_server(self.name, message.common, message.own, holders)
        if len(received) == 1:
            received *= len(message.users)
        place = {user: k for k, user in enumerate(message.users.tolist())}
        if self.name == UPLOAD:
            return _uploads(members, [received[place[member.user]] for member in members])
        replied = []
        replies = []
        for member in members:
            try:
                replies.append(METHODS[self.name](member, *received[place[member.user]]))
            except Rejected:
                continue
            replied.append(member)
        return replied, replies


def _uploads(members: list[GroupMember], received: list[Any]) -> tuple[list[GroupMember], Words]:
    """The masked vectors of all members at once: masks between two of them are expanded once."""
    terms = members[0].terms
    vectors: Words = np.empty((len(members), terms.length), UNSIGNED[terms.word])
    ready: list[GroupMember] = []
    for member, (ciphertexts, shared) in zip(members, received, strict=True):
        try:
            member.receive_shares(ciphertexts, shared)
            vectors[len(ready)] = member.checked_vector()
        except Rejected:
            continue
        ready.append(member)
    masked = vectors[: len(ready)]
    if ready:
        mask_vectors(ready, masked)
    return ready, masked


def open_session(
    world: AnyWorld,
    exchange: AnyExchange,
    message: Message,
    node: NodeData,
    slot: SessionSlot,
    header: GroupHeader,
) -> GroupSession:
    """The users' updates, and their parts in the group.

    In the second phase the updates are those of the first one.
    """
    group = GroupId(message.round, message.exchange, header.number)
    if not slot.begins(message.round):
        raise Rejected("a later round was begun before")
    earlier = b""
    if not sums_union(world, exchange, header.sizes):
        if header.phase == ROWS:
            raise Rejected("this exchange has no union of rows")
        computed = _computed(world, exchange, message, node, header)
        rows = summed_rows(world, exchange, header.number, header.items, None)
    elif header.phase == ROWS:
        computed = _computed(world, exchange, message, node, header)
        rows = NO_ROWS
    else:
        before = slot.find(group, ROWS)
        if before is None or before.computed.sizes != header.sizes:
            raise Rejected("the rows of this group were not summed before")
        computed = before.computed
        earlier = before.context
        rows = _union(world, exchange, message, header)
    terms = _terms(world, exchange, message, header, computed, rows, earlier)
    members = _members(node, computed, terms, header.phase, group, slot)
    session = GroupSession(group, header.phase, members, computed, rows, terms.context)
    bind_vectors(world, exchange, session)
    return session


def _computed(
    world: AnyWorld,
    exchange: AnyExchange,
    message: Message,
    node: NodeData,
    header: GroupHeader,
) -> ClientUpdates:
    of_exchange = {
        name: array for name, array in message.common.items() if name not in ("group", "members")
    }
    message = replace(message, common=of_exchange)
    return compute_updates(world, exchange, message, node, header.sizes)


def _union(world: AnyWorld, exchange: AnyExchange, message: Message, header: GroupHeader) -> Ints:
    """The rows that the group touched, as the server broadcasts them."""
    union = message.common.get("rows")
    if union is None or not has_rows(union[None], 1, np.uint8, -(-header.items // 8)):
        raise Rejected("the union of rows is missing or malformed")
    return summed_rows(world, exchange, header.number, header.items, union)


def _terms(
    world: AnyWorld,
    exchange: AnyExchange,
    message: Message,
    header: GroupHeader,
    computed: ClientUpdates,
    rows: Ints,
    earlier: bytes,
) -> GroupTerms:
    assert exchange.secure_sum is not None
    length = header.items
    word = ROW_WORD
    if header.phase != ROWS:
        length = vector_length(world, exchange, computed.message, computed.sizes, rows)
        word = exchange.secure_sum.word(world)
    return group_terms(
        world,
        GroupId(message.round, message.exchange, header.number),
        header.phase,
        group_stages.read_users(message.common, "members"),
        length,
        word,
        digest_of_broadcast(message.common, earlier),
        fewest_survivors(world, exchange),
    )


def _members(
    node: NodeData,
    computed: ClientUpdates,
    terms: GroupTerms,
    phase: int,
    group: GroupId,
    slot: SessionSlot,
) -> dict[int, GroupMember]:
    """User -> its part in the group. Users that must not take part are left out.

    If the same terms come again, a client that has agreed to survivors goes on where it was, and
    others begin anew. No client takes part under other terms in the same exchange.
    Rejected if no user may take part.
    """
    identities = node.identities
    if identities is None:
        raise Rejected("this node has no signing keys")
    known_keys = known_keys_of(identities, terms)
    hosted = Hosted()
    members = {}
    for user in computed.message.users.tolist():
        before = slot.of_user(group, phase, user)
        if before is not None and before.context != terms.context:
            continue
        if before is not None and before.members[user].has_agreed:
            members[user] = before.members[user]
        else:
            own = identities.own(user)
            members[user] = GroupMember(user, terms, own, known_keys, no_vector, hosted=hosted)
    if not members:
        # A session without members would hide the one that its users are in.
        raise Rejected("the users take part under other terms in this exchange")
    return members


def known_keys_of(identities: Identities, terms: GroupTerms) -> dict[int, bytes]:
    """User -> its public key, for the users of the group that the node knows."""
    keys = {user: identities.public(user) for user in terms.users}
    return {user: key for user, key in keys.items() if key is not None}


def bind_vectors(world: AnyWorld, exchange: AnyExchange, session: GroupSession) -> None:
    """Let members compute their private vectors."""
    computed = session.computed
    for member in session.members.values():
        if session.phase == ROWS:
            member.vector = partial(_touched_words, computed, member)
        else:
            member.vector = partial(_values, computed, world, exchange, member, session.rows)


def no_vector() -> Words:
    """The vector of a member before `bind_vectors`."""
    return np.empty(0, np.uint64)


def _values(
    computed: ClientUpdates,
    world: AnyWorld,
    exchange: AnyExchange,
    member: GroupMember,
    rows: Ints,
) -> Words:
    """A client's sums; zeros if its update is not valid, or if not all of its rows are summed.

    A client that took no part then would tell a lying server what it touched: the server could
    leave out a row of the union, or broadcast values by which updates of one item become invalid.
    """
    vector: Words = np.zeros(member.terms.length, UNSIGNED[member.terms.word])
    touched = _touched(computed, member.user)
    if touched is not None and _is_within(touched, rows):
        with suppress(Rejected):
            vector = vector_of(computed, world, exchange, member.user, rows)
    return with_noise(world, exchange, member, vector)


def _is_within(touched: Ints, rows: Ints) -> bool:
    """Whether all touched rows are among the summed ones, which ascend."""
    places = np.searchsorted(rows, touched)
    return bool((places < len(rows)).all() and (rows[places] == touched).all())


def with_noise(world: AnyWorld, exchange: AnyExchange, member: GroupMember, vector: Words) -> Words:
    """The vector with the client's share of noise, where clients draw it.

    A client without a valid update adds its share, too: others count on it. The noise follows from
    the long-term secret of the client and from what is summed, since a sum that is begun anew after
    a crash must not have other noise. Nor may another vector have the same noise, or their
    difference would have none.
    """
    plan = plan_of(world, exchange)
    if plan is None or not plan.fewest_survivors:
        return vector
    word = member.terms.word
    if np.linalg.norm(to_integers(vector, word).astype(np.float64)) > plan.sensitivity:
        vector = np.zeros_like(vector)
    info = member.terms.context + hashlib.blake2b(vector.data, digest_size=32).digest()
    key = derive_key(member.identity.secret, b"noise " + info)
    noise = share_of_noise(plan, len(vector), key)
    noisy: Words = vector + to_words(noise, word)
    return noisy


def _touched(computed: ClientUpdates, user: int) -> Ints | None:
    """The item rows in a client's update; None if it has no valid one."""
    updates = computed.updates
    place = int(np.searchsorted(updates.users, user))
    if place == len(updates) or updates.users[place] != user:
        return None
    start, end = updates.offsets[place : place + 2]
    touched: Ints = updates.items[start:end]
    return touched


def _touched_words(computed: ClientUpdates, member: GroupMember) -> Words:
    """A random word at each row that a client touched, and zeros elsewhere.

    They follow from a secret of the client: a repeated upload must be the same, since its masks
    are.
    """
    words: Words = np.zeros(member.terms.length, np.uint64)
    touched = _touched(computed, member.user)
    if touched is not None:
        info = b"touched rows " + member.context
        seed = Seed(derive_key(member.cipher_key.secret, info))
        words[touched] = np.maximum(expand(seed, len(touched)), 1)
    return words
