"""Aggregation of an exchange in several ways that give the same bits.

The plain way calls the nodes, validates their updates and sums them. A large cohort is aggregated
in chunks, a single-pass kernel does everything in one call, and trusted nodes sum up beforehand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

import numpy as np

from coterie.federated.costs import Costs
from coterie.federated.federation import (
    NO_LIMIT,
    Accepted,
    AnyExchange,
    AnyWorld,
    ClientTask,
    NodeData,
    PrivateState,
    SequentialRounds,
    SinglePass,
    State,
    Sums,
    add_sums,
)
from coterie.federated.nodes import client_columns
from coterie.federated.robust.defence import defended, defended_sums, is_defended
from coterie.federated.secagg.session import SessionSlot
from coterie.federated.validation import (
    FAULTS,
    NOT_OF_THE_COHORT,
    Expected,
    Reply,
    are_among,
    validate,
)
from coterie.federated.wire import message_size, reply_sizes, sizes_of_replies
from coterie.types import Ints, Longs, Message, Sizes

CallNodes = Callable[[ClientTask, Message], list[Reply]]
"""(task, message) -> the replies of the nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """What remains of an exchange once updates are summed and dropped."""

    sums: Sums
    accepted: Accepted
    bytes_up: int
    refused: Counter[str]
    private_state: tuple[tuple[Ints, PrivateState], ...]
    """(users, their next private state) for groups of the accepted clients."""
    bytes_down: int = 0
    """Bytes sent to clients in addition to the message, in total."""

    def joined(
        self, later: Aggregate, combine: Callable[[Sums, Sums], Sums] | None = add_sums
    ) -> Aggregate:
        """With another group of the cohort. A group without accepted clients has no sums."""
        assert combine is not None  # otherwise the cohort is one group
        sums = self.sums or later.sums
        if self.sums and later.sums:
            sums = combine(self.sums, later.sums)
        return Aggregate(
            sums=sums,
            accepted=self.accepted.and_others(later.accepted),
            bytes_up=self.bytes_up + later.bytes_up,
            refused=self.refused + later.refused,
            private_state=self.private_state + later.private_state,
            bytes_down=self.bytes_down + later.bytes_down,
        )

    def costs(self, cohort: Ints, message: Message) -> Costs:
        """Costs of sending the message to the cohort and of the replies that came."""
        accepted = len(self.accepted.users)
        of_others = sum(self.refused[fault] for fault in NOT_OF_THE_COHORT)
        refused = self.refused.total() - of_others
        return Costs(
            users=cohort,
            accepted=accepted,
            dropped=max(len(cohort) - accepted - refused, 0),
            refused=self.refused,
            bytes_up=self.bytes_up,
            bytes_down=message_size(message) * len(cohort) + self.bytes_down,
        )


class Limits(NamedTuple):
    """The sizes of a valid update, and how many updates are held in memory at a time."""

    sizes: Sizes
    chunk_size: int

    @classmethod
    def of(cls, world: AnyWorld, exchange: AnyExchange, state: object) -> Limits:
        return cls(exchange.sizes(world, state), exchange.fast.chunk_size(world, state))


def aggregate(
    world: AnyWorld, exchange: AnyExchange, message: Message, call: CallNodes, limits: Limits
) -> Aggregate:
    """Call the nodes chunk by chunk, validate their updates, and sum them.

    A defence compares all clients of a round: then there is one chunk.
    """
    chunks = _chunks(message, NO_LIMIT if is_defended(world) else limits.chunk_size)
    return join(exchange, (_one_chunk(world, exchange, limits.sizes, c, call) for c in chunks))


def join(exchange: AnyExchange, parts: Iterable[Aggregate]) -> Aggregate:
    combine = exchange.fast.combine
    return reduce(lambda whole, part: whole.joined(part, combine), parts)


def aggregate_on_node(
    world: AnyWorld, exchange: AnyExchange, message: Message, node: NodeData, limits: Limits
) -> Aggregate:
    """A trusted node trains, validates and sums up for its own clients."""
    single = exchange.fast.single_pass(world, message, node)
    if single is not None:
        return from_single_pass(single, limits.sizes)

    def call(task: ClientTask, part: Message) -> list[Reply]:
        columns, private_state = client_columns(world, task, part, node, SessionSlot())
        return [Reply(part.users, part.round, columns, part.exchange, private_state)]

    return aggregate(world, exchange, message, call, limits)


def join_nodes(exchange: AnyExchange, parts: Iterable[Aggregate]) -> Aggregate:
    """The aggregates of several nodes as one, ordered by user."""
    whole = join(exchange, parts)
    order = np.argsort(whole.accepted.users)
    return replace(whole, accepted=whole.accepted.take(order))


def _chunks(message: Message, size: int) -> Iterator[Message]:
    """The message to some clients after the others; one chunk if there are none."""
    if len(message.users) <= size:
        yield message
        return
    for first in range(0, len(message.users), size):
        yield message.to(np.arange(first, min(first + size, len(message.users))))


def _one_chunk(
    world: AnyWorld, exchange: AnyExchange, sizes: Sizes, message: Message, call: CallNodes
) -> Aggregate:
    replies = call(exchange, message) if len(message.users) else []
    valid = validate(replies, Expected.of(message, sizes), is_defended(world))
    updates = defended(world, exchange, valid) if len(valid.updates) else valid.updates
    return Aggregate(
        sums=defended_sums(world, exchange, message, updates) if len(updates) else {},
        # Decoded arrays are views that would keep the whole reply in memory: copy them.
        accepted=Accepted(updates.users.copy(), updates.samples.copy(), updates.user_rows.copy()),
        bytes_up=int(reply_sizes(updates).sum()),
        refused=valid.refused,
        private_state=tuple(
            accepted_private_state(reply, updates.users) for reply in replies if reply.private_state
        ),
    )


def accepted_private_state(reply: Reply, accepted: Ints) -> tuple[Ints, PrivateState]:
    """The part of a reply's private state that belongs to accepted clients."""
    good = are_among(reply.selected, accepted)
    rows = {name: column[good] for name, column in reply.private_state.items()}
    return reply.selected[good], rows


def from_single_pass(single: SinglePass, sizes: Sizes) -> Aggregate:
    """The aggregate of a single-pass kernel, in which no update existed as a whole."""
    users = single.accepted.users
    return Aggregate(
        sums=single.sums,
        accepted=single.accepted,
        bytes_up=update_bytes(single.n_rows, sizes),
        refused=Counter(),
        private_state=((users, single.private_state),),
    )


def sequential_costs(
    world: AnyWorld, exchange: AnyExchange, state: object, rounds: SequentialRounds[State]
) -> Costs:
    """The costs of rounds of one client each, as if they had been run one by one."""
    sent = rounds.n_rows > 0
    faulty = rounds.faults[rounds.faults > 0]
    message = exchange.broadcast(world, state, rounds.users[:1], 0)
    sizes = exchange.sizes(world, state)
    return Costs(
        users=rounds.users,
        accepted=int(sent.sum()),
        dropped=int(len(sent) - sent.sum() - len(faulty)),
        refused=Counter(FAULTS[fault] for fault in faulty.tolist()),
        bytes_up=update_bytes(rounds.n_rows[sent], sizes),
        bytes_down=message_size(message) * len(rounds.users),
    )


def update_bytes(n_rows: Longs, sizes: Sizes) -> int:
    """Bytes of the updates of users who send `n_rows` item rows each."""
    by_user = sizes_of_replies(n_rows, sizes.item_width, sizes.user_width, sizes.dense)
    return int(by_user.sum())
