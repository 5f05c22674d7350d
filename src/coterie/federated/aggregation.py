"""What a server hears of an exchange, in ways that give the same bits: all at once, in parts, fused into a kernel, or added up by nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

import numpy as np

from coterie.federated.costs import Costs
from coterie.federated.federation import (
    Accepted,
    Exchange,
    NodeData,
    PrivateState,
    SequentialRounds,
    SinglePass,
    Sums,
    World,
    added,
)
from coterie.federated.nodes import answer
from coterie.federated.validation import FAULTS, NOT_OF_THE_COHORT, Expected, Reply, validate
from coterie.federated.wire import message_size, reply_sizes
from coterie.types import Ints, Longs, Message, Sizes, Updates

Call = Callable[[Exchange, Message], list[Reply]]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """What is left when updates are summed and gone."""

    sums: Sums
    delegates: Accepted
    bytes_up: int
    refused: Counter[str]
    private_state: tuple[tuple[Ints, PrivateState], ...]
    """What devices keep, row by row for some of the delegates at a time."""
    bytes_down: int = 0
    """What was sent beside the message, to all together."""

    def and_part(
        self, later: Aggregate, together: Callable[[Sums, Sums], Sums] | None = added
    ) -> Aggregate:
        """With those of the cohort who were heard after; of a part in which nobody was accepted there are no sums."""
        assert together is not None  # else all is heard at once
        sums = (
            together(self.sums, later.sums) if later.sums and self.sums else self.sums or later.sums
        )
        mine = self.delegates
        theirs = later.delegates
        return Aggregate(
            sums,
            Accepted(
                np.concatenate([mine.users, theirs.users]),
                np.concatenate([mine.samples, theirs.samples]),
                np.concatenate([mine.user_rows, theirs.user_rows]),
            ),
            self.bytes_up + later.bytes_up,
            self.refused + later.refused,
            self.private_state + later.private_state,
            self.bytes_down + later.bytes_down,
        )

    def costs(self, cohort: Ints, message: Message) -> Costs:
        """What it cost to send everybody of the cohort the message and to hear those who were heard."""
        accepted = len(self.delegates.users)
        own = self.refused.total() - sum(self.refused[fault] for fault in NOT_OF_THE_COHORT)
        return Costs(
            cohort,
            accepted=accepted,
            dropped=max(len(cohort) - accepted - own, 0),
            refused=self.refused,
            bytes_up=self.bytes_up,
            bytes_down=message_size(message) * len(cohort) + self.bytes_down,
        )


class Limits(NamedTuple):
    """What an update may hold, and how many users' updates are held at a time."""

    sizes: Sizes
    at_once: int

    @classmethod
    def of(cls, world: World, exchange: Exchange, server: object) -> Limits:
        return cls(exchange.sizes(world, server), exchange.at_once(world, server))


def hear(
    world: World, exchange: Exchange, message: Message, call: Call, limits: Limits
) -> Aggregate:
    """Everybody's updates, so many users at a time as may be held."""
    parts = _parts(message, limits.at_once)
    return joined(exchange, (_part(world, exchange, limits.sizes, part, call) for part in parts))


def joined(exchange: Exchange, parts: Iterable[Aggregate]) -> Aggregate:
    return reduce(lambda heard, part: heard.and_part(part, exchange.together), parts)


def hear_own(
    world: World, exchange: Exchange, message: Message, node: NodeData, limits: Limits
) -> Aggregate:
    """What a node hears of its own users, where it is trusted to validate and to add up."""
    fused = exchange.fused(world, message, node)
    if fused is not None:
        return of_fused(fused, limits.sizes)

    def call(asked: Exchange, part: Message) -> list[Reply]:
        columns, private_state = answer(world, asked, part, node)
        return [Reply(part.users, part.round, columns, part.exchange, private_state)]

    return hear(world, exchange, message, call, limits)


def added_up(exchange: Exchange, parts: Iterable[Aggregate]) -> Aggregate:
    """What several nodes heard of their own users, in the order of users."""
    heard = joined(exchange, parts)
    order = np.argsort(heard.delegates.users)
    whose = heard.delegates
    return replace(
        heard, delegates=Accepted(whose.users[order], whose.samples[order], whose.user_rows[order])
    )


def _parts(message: Message, most: int) -> Iterator[Message]:
    """The message to some users after the others; to nobody if there are none."""
    if len(message.users) <= most:
        yield message
        return
    for first in range(0, len(message.users), most):
        yield message.to(np.arange(first, min(first + most, len(message.users))))


def _part(
    world: World, exchange: Exchange, sizes: Sizes, message: Message, call: Call
) -> Aggregate:
    replies = call(exchange, message) if len(message.users) else []
    updates, refused = validate(replies, Expected.of(message, sizes))
    return Aggregate(
        exchange.reduce(world, message, updates) if len(updates) else {},
        # copies: what was decoded is a view of a reply's bytes, which would stay with it
        Accepted(updates.users.copy(), updates.samples.copy(), updates.user_rows.copy()),
        int(reply_sizes(updates).sum()),
        refused,
        tuple(kept_of(reply, updates.users) for reply in replies if reply.private_state),
    )


def kept_of(reply: Reply, accepted: Ints) -> tuple[Ints, PrivateState]:
    """What devices keep of those accepted."""
    good = np.isin(reply.asked, accepted)
    return reply.asked[good], {name: rows[good] for name, rows in reply.private_state.items()}


def of_fused(fused: SinglePass, sizes: Sizes) -> Aggregate:
    """The same where no update was ever there as a whole."""
    users = fused.delegates.users
    return Aggregate(
        fused.sums,
        fused.delegates,
        bytes_of(users, fused.n_rows, sizes),
        Counter(),
        ((users, fused.private_state),),
    )


def tally_of(world: World, exchange: Exchange, server: object, turns: SequentialRounds) -> Costs:
    """What rounds of one user each cost, as if they had been played one by one."""
    spoke = turns.n_rows > 0
    faulty = turns.faults[turns.faults > 0]
    return Costs(
        turns.users,
        accepted=int(spoke.sum()),
        dropped=int(len(spoke) - spoke.sum() - len(faulty)),
        refused=Counter(FAULTS[fault] for fault in faulty.tolist()),
        bytes_up=bytes_of(turns.users[spoke], turns.n_rows[spoke], exchange.sizes(world, server)),
        bytes_down=message_size(exchange.ask(world, server, turns.users[:1], 0)) * len(turns.users),
    )


def bytes_of(users: Ints, n_rows: Longs, sizes: Sizes) -> int:
    """What users sent who sent so many item rows each."""
    none = np.empty(0, np.int32)
    n = len(users)
    offsets = np.concatenate([[0], np.cumsum(n_rows)])
    rows, own, dense = (
        np.empty((k, width), np.int32) for k, width in zip((0, n, n), sizes[1:], strict=True)
    )
    return int(reply_sizes(Updates(users, n_rows, offsets, none, rows, own, dense)).sum())
