"""Secure aggregation of a whole cohort: rings sum in secret, and the server adds up their sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from coterie.core import streams
from coterie.federated.aggregation import Aggregate, accepted_private_state
from coterie.federated.contract import check_words
from coterie.federated.federation import (
    Accepted,
    AnyExchange,
    AnyWorld,
    ClientTask,
    PrivateState,
    SecureSum,
    Sums,
)
from coterie.federated.secagg.node_side import FORMS, RingHeader, Stage
from coterie.federated.secagg.ring import Ring, RingSum, collect_keys, min_survivors
from coterie.federated.secagg.ring_member import RingTerms
from coterie.federated.secagg.stages import ORDER, Aborted, ReplySpec, StageArrays
from coterie.federated.secagg.summed_vector import summed_rows, vector_length, zero_sums
from coterie.federated.validation import Reply
from coterie.federated.wire import message_size
from coterie.types import Bools, Ints, Message, Sizes

RING_ABORTED = "ring aborted"
"""Why an update did not count, in the counts of refusals."""
DROPOUT_STAGES = ("advertise_keys", "distribute_shares", "upload")
"""The stages before which a simulated dropout happens."""
CallTask = Callable[[ClientTask, Message], list[Reply]]


def aggregate_securely(
    world: AnyWorld,
    exchange: AnyExchange,
    server: object,
    message: Message,
    call: CallTask,
    absent: Bools | None = None,
) -> Aggregate:
    """Run an exchange under secure aggregation: sums over all clients that stayed.

    `absent` marks the clients that drop out in a simulation.
    """
    ring = exchange.secure_sum
    assert ring is not None
    check_words(world, ring)
    sizes = exchange.sizes(world, server)
    dropouts = dropout_stages(world, message, absent)
    all_items = np.arange(sizes.items, dtype=np.int32)
    total = zero_sums(world, exchange, message, sizes, all_items)
    parts = []
    rings = assign_rings(message.users, world.settings.ring_size, world.seed, message.round)
    for number, users in enumerate(rings):
        channel = RingChannel(exchange, message, call, dropouts)
        try:
            rows, ring_sum = sum_ring(world, exchange, sizes, number, users, channel)
        except Aborted:
            parts.append(_aborted_part(users, dropouts, channel, sizes))
            continue
        for name, part in split_vector(ring_sum.vector, total, ring, rows).items():
            if name in ring.by_item:
                total[name][rows] += part
            else:
                total[name] += part
        parts.append(
            Aggregate(
                sums={},
                accepted=accepted_clients(ring_sum, sizes),
                bytes_up=channel.bytes_up,
                refused=Counter(),
                private_state=channel.private_state_of(ring_sum.users),
                bytes_down=channel.bytes_down,
            )
        )
    aggregate = parts[0]
    for later in parts[1:]:
        aggregate = aggregate.joined(later)
    return replace(aggregate, sums=ring.from_table(world, total))


def assign_rings(users: Ints, size: int, seed: int, t: int) -> list[Ints]:
    """Split a cohort into rings of about the same size, in a random order, at most `size` each.

    The order is drawn anew every round: neighbours that collude with the server can recover an
    update, and should not stay neighbours.
    """
    n = -(-len(users) // size)
    return np.array_split(streams.at(seed, "rings", t).permutation(users), n) if n else []


def dropout_stages(world: AnyWorld, message: Message, absent: Bools | None) -> dict[int, int]:
    """The stage before which each simulated dropout happens, by user."""
    if absent is None:
        return {}
    users = message.users[absent]
    words = streams.words(streams.keys(world.seed, "leaves", message.round, last=users), 0)
    stages = streams.below(words, np.full(len(users), len(DROPOUT_STAGES)))
    return dict(zip(users.tolist(), stages.tolist(), strict=True))


def sum_ring(
    world: AnyWorld,
    exchange: AnyExchange,
    sizes: Sizes,
    number: int,
    users: Ints,
    channel: RingChannel,
) -> tuple[Ints, RingSum]:
    """Run one ring: the rows of item tables that it sums, and the sum."""
    settings = world.settings
    message = channel.message
    ring = exchange.secure_sum
    assert ring is not None
    use_union = settings.ring_rows == "union" and bool(sizes.items) and ring.rows is None
    word = ring.word(world)
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
    clear: ReplySpec = {}
    if exchange.visible:
        clear = {"samples": (np.int64, ()), "user_rows": (np.int32, (sizes.user_width,))}
    terms = RingTerms(
        message.round, message.exchange, number, length, settings.ring_shares, word=word
    )
    secure = Ring(
        terms, channel.send, min_survivors(len(users)), clear, max_entry=ring.max_entry(world)
    )
    return rows, secure.aggregate(keys)


@dataclass(slots=True)
class RingChannel:
    """Messages between a server and a ring's clients through an engine, and their bytes."""

    exchange: AnyExchange
    message: Message
    call: CallTask
    dropouts: dict[int, int]
    """The stage before which a client drops out, by user."""
    common: StageArrays = field(default_factory=dict)
    bytes_up: int = 0
    bytes_down: int = 0
    private_replies: list[Reply] = field(default_factory=list)
    """Replies with new private state. In a simulation it is passed along; it is never sent."""

    def send(self, stage: str, users: Ints, own: StageArrays) -> dict[int, StageArrays]:
        order = np.argsort(users)
        own = {name: rows[order] for name, rows in own.items()}
        message = self._message(stage, users[order], own)
        size = message_size(message)
        if stage == "advertise_keys":
            # `Aggregate.costs` counts the exchange's own message.
            size -= message_size(self.message)
        self.bytes_down += size * len(users)
        responding = np.array([self._responds(u, stage) for u in message.users.tolist()], bool)
        if not responding.any():
            return {}
        arrays: dict[int, StageArrays] = {}
        for reply in self.call(Stage(stage, self.exchange), message.to(responding)):
            arrays |= self._read(reply, stage)
        return arrays

    def _message(self, stage: str, users: Ints, own: StageArrays) -> Message:
        if stage == "advertise_keys":
            # The first stage carries the exchange's message: clients compute their update from it.
            part = self.message.to(np.searchsorted(self.message.users, users))
            return replace(part, common=part.common | self.common)
        return Message(self.message.round, users, self.common, own, self.message.exchange)

    def _responds(self, user: int, stage: str) -> bool:
        if user not in self.dropouts:
            return True
        return stage in DROPOUT_STAGES and DROPOUT_STAGES.index(stage) < self.dropouts[user]

    def _read(self, reply: Reply, stage: str) -> dict[int, StageArrays]:
        """The clients' arrays in a node's reply, by user; {} for a reply that is malformed.

        Arrays for users that the node was not called for are dropped.
        """
        columns = reply.columns
        expected = (self.message.round, self.message.exchange)
        if columns is None or (reply.round, reply.exchange) != expected:
            return {}
        if any(name not in columns or columns[name].ndim != 1 for name in ("users", "stage")):
            return {}
        users = columns["users"]
        n = len(users)
        if users.dtype != np.int32:
            return {}
        if any(column.ndim == 0 or len(column) != n for column in columns.values()):
            return {}
        without_users = {name: column for name, column in columns.items() if name != "users"}
        self.bytes_up += message_size(Message(reply.round, users, {}, without_users)) * n
        if stage == "upload" and reply.private_state:
            self.private_replies.append(reply)
        called = set(reply.selected.tolist())
        rows = {name: column for name, column in without_users.items() if name != "stage"}
        return {
            user: {name: column[k] for name, column in rows.items()}
            for k, user in enumerate(users.tolist())
            if user in called and columns["stage"][k] == ORDER.index(stage)
        }

    def private_state_of(self, users: Ints) -> tuple[tuple[Ints, PrivateState], ...]:
        """The new private state of some users."""
        return tuple(accepted_private_state(reply, users) for reply in self.private_replies)


def split_vector(vector: np.ndarray, total: Sums, ring: SecureSum, rows: Ints) -> Sums:
    """The named sums in a ring's vector; item tables have the summed rows only."""
    sums = {}
    start = 0
    integers = vector.view(np.int64)
    for name, whole in total.items():
        shape = (len(rows), *whole.shape[1:]) if name in ring.by_item else whole.shape
        size = int(np.prod(shape))
        sums[name] = integers[start : start + size].reshape(shape)
        start += size
    return sums


def accepted_clients(ring_sum: RingSum, sizes: Sizes) -> Accepted:
    """The clients whose upload counts, and what they sent in the clear."""
    n = len(ring_sum.users)
    samples = ring_sum.clear.get("samples", np.ones(n, np.int64))
    user_rows = ring_sum.clear.get("user_rows", np.empty((n, sizes.user_width), np.int32))
    return Accepted(ring_sum.users, samples, user_rows)


def _aborted_part(
    users: Ints, dropouts: dict[int, int], channel: RingChannel, sizes: Sizes
) -> Aggregate:
    """What an aborted ring adds to a round: its bytes, and no update."""
    stayed = sum(user not in dropouts for user in users.tolist())
    no_clients = Accepted(
        np.empty(0, np.int32), np.empty(0, np.int64), np.empty((0, sizes.user_width), np.int32)
    )
    return Aggregate(
        sums={},
        accepted=no_clients,
        bytes_up=channel.bytes_up,
        refused=+Counter({RING_ABORTED: stayed}),
        private_state=(),
        bytes_down=channel.bytes_down,
    )
