"""The server's side of `ring` through an engine: headers, the rows that are summed, and the sum."""

from __future__ import annotations

import numpy as np

from coterie.federated.federation import AnyExchange, AnyWorld
from coterie.federated.secagg.channel import StageChannel, Step
from coterie.federated.secagg.ring import Ring, collect_keys, min_survivors
from coterie.federated.secagg.ring_member import RingTerms
from coterie.federated.secagg.ring_node import FORMS, RingHeader
from coterie.federated.secagg.stages import ReplySpec
from coterie.federated.secagg.summed_vector import summed_rows, vector_length
from coterie.federated.secagg.vector_sum import VectorSum, in_the_clear
from coterie.types import Ints, Sizes

RING_STEPS: tuple[Step, ...] = (
    (0, "advertise_keys"),
    (0, "distribute_shares"),
    (0, "upload"),
    (0, "unmask"),
)
"""The messages of a member of a ring, before which a simulated dropout happens."""


def sum_ring(
    world: AnyWorld,
    exchange: AnyExchange,
    sizes: Sizes,
    number: int,
    users: Ints,
    channel: StageChannel,
) -> VectorSum:
    settings = world.settings
    message = channel.message
    secure = exchange.secure_sum
    assert secure is not None
    use_union = settings.ring_rows == "union" and bool(sizes.items) and secure.rows is None
    word = secure.word(world)
    form = FORMS.index((settings.ring_shares, word))
    header = RingHeader(number, form, int(use_union), *sizes)
    channel.common = {"ring": np.array(header, np.int64)}

    advertised: ReplySpec = {}
    if use_union:
        advertised = {"touched": (np.uint8, (-(-sizes.items // 8),))}
    replies = collect_keys(channel.send, users, advertised)
    keys = {user: reply["key"].tobytes() for user, reply in replies.items()}
    union = None
    if use_union:
        union = np.bitwise_or.reduce([reply["touched"] for reply in replies.values()])

    rows = summed_rows(world, exchange, number, sizes.items, union)
    length = vector_length(world, exchange, message, sizes, rows)
    channel.common = {"ring": np.array(header._replace(length=length), np.int64)}
    if union is not None:
        channel.common["rows"] = union
    terms = RingTerms(
        message.round, message.exchange, number, length, settings.ring_shares, word=word
    )
    clear = in_the_clear(sizes) if exchange.visible else {}
    ring = Ring(
        terms, channel.send, min_survivors(len(users)), clear, max_entry=secure.max_entry(world)
    )
    ring_sum = ring.aggregate(keys)
    return VectorSum(ring_sum.vector.view(np.int64), rows, ring_sum.users, ring_sum.clear)
