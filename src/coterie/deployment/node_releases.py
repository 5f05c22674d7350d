"""Which release a message of the server asks for: see `node_ledger.py`.

An exchange in the open releases its reply. Under secure aggregation, data leaves with the upload:
it counts from then on, since nobody can know whether others unmask it.
"""

from __future__ import annotations

import numpy as np

from coterie.deployment.branch_rounds import round_number
from coterie.deployment.node_ledger import Release
from coterie.federated.federation import NodeData
from coterie.federated.secagg.group_terms import ROWS, GroupHeader, digest_of_broadcast
from coterie.federated.secagg.ring_node import RingHeader
from coterie.federated.secagg.session import GroupId, SessionSlot
from coterie.federated.secagg.stages import UPLOAD
from coterie.types import Ints, Message

UPLOADS = (UPLOAD, "upload", "recover")
"""The stages at which a client's vector leaves; that of `recover` is the one before, again."""


def releases_in_the_open(message: Message, node: NodeData, branch: int = 0) -> list[Release]:
    """The release of each user of a message, in a branch of the run."""
    common = digest_of_broadcast(message.common)
    digests = []
    for k in range(len(message.users)):
        own = {name: rows[k] for name, rows in message.own.items()}
        digests.append(digest_of_broadcast(own, common))
    return _with_histories(message, message.users, digests, node, branch)


def releases_of_upload(
    message: Message, users: Ints, node: NodeData, slot: SessionSlot
) -> list[Release]:
    """The release of each user who uploads; empty if the upload is not paid for.

    Without a payment clients only tell which rows they touched, to a server that draws the noise
    itself, and is trusted with sums.
    """
    sent = _digest_of_session(message, slot)
    if sent is None:
        return []
    # A run with secure aggregation has one branch.
    return _with_histories(message, users, [sent] * len(users), node, branch=0)


def _with_histories(
    message: Message, users: Ints, sent: list[bytes], node: NodeData, branch: int
) -> list[Release]:
    number = round_number(branch, message.round)
    training = node.training
    releases = []
    for place, digest in zip(node.positions(users).tolist(), sent, strict=True):
        start, end = training.positives.offsets[place : place + 2]
        history: dict[str, np.ndarray] = {"items": training.positives.items[start:end]}
        if training.ratings is not None:
            history["ratings"] = training.ratings[start:end]
        whole = digest_of_broadcast(history, digest)
        releases.append(Release(number, message.exchange, whole))
    return releases


def _digest_of_session(message: Message, slot: SessionSlot) -> bytes | None:
    """What clients of a ring or group were sent; None while a group finds its rows."""
    ring = RingHeader.read(message.common.get("ring"))
    if ring is not None and slot.ring is not None:
        sent = slot.ring.computed.message.common
        return digest_of_broadcast(sent | {"ring": np.array([ring.number])})
    group = GroupHeader.read(message.common.get("group"))
    if group is None or group.phase == ROWS:
        return None
    session = slot.find(GroupId(message.round, message.exchange, group.number), group.phase)
    return None if session is None else session.context
