"""A cohort heard in rings: every ring adds up its members' numbers in secret, and the server has the sum of the rings' sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from coterie.core import streams
from coterie.federated.aggregation import Aggregate, accepted_private_state
from coterie.federated.federation import (
    Accepted,
    AnyExchange,
    AnyWorld,
    ClientTask,
    PrivateState,
    SecureSum,
    Sums,
)
from coterie.federated.secagg.client import (
    ORDER,
    WAYS,
    About,
    Stage,
    length_of,
    parts_of_nobody,
    rows_of,
)
from coterie.federated.secagg.member import Terms
from coterie.federated.secagg.ring import Added, Columns, Expected, GivenUp, Ring, announced, fewest
from coterie.federated.validation import Reply
from coterie.federated.wire import message_size
from coterie.types import Bools, Ints, Message, Sizes

GIVEN_UP = "ring given up"
VANISHING = ("announce", "deal", "upload")
"""The stages before which whoever drops out is gone."""
Call = Callable[[ClientTask, Message], list[Reply]]


def aggregate(
    world: AnyWorld,
    exchange: AnyExchange,
    server: object,
    message: Message,
    call: Call,
    absent: Bools | None = None,
) -> Aggregate:
    """What is left of an exchange: sums over everybody who stayed, and nothing of anybody."""
    ring = exchange.secure_sum
    sizes = exchange.sizes(world, server)
    assert ring is not None
    gone = leaving(world, message, absent)
    every = np.arange(sizes.items, dtype=np.int32)
    total = parts_of_nobody(world, exchange, message, sizes, every)
    parts = []
    for number, users in enumerate(
        of_cohort(message.users, world.settings.ring_size, world.seed, message.round)
    ):
        talk = Talk(exchange, message, call, gone)
        try:
            rows, added = added_up(world, exchange, sizes, number, users, talk)
        except GivenUp:
            stayed = sum(user not in gone for user in users.tolist())
            parts.append(
                Aggregate(
                    sums={},
                    accepted=nobody(sizes),
                    bytes_up=talk.up,
                    refused=+Counter({GIVEN_UP: stayed}),
                    private_state=(),
                    bytes_down=talk.down,
                )
            )
            continue
        for name, numbers in split(total, ring, rows, added).items():
            if name in ring.by_item:
                total[name][rows] += numbers
            else:
                total[name] += numbers
        parts.append(
            Aggregate(
                sums={},
                accepted=delegates(added, sizes),
                bytes_up=talk.up,
                refused=Counter(),
                private_state=talk.kept_by(added.users),
                bytes_down=talk.down,
            )
        )
    heard = parts[0]
    for part in parts[1:]:
        heard = heard.joined(part)
    return replace(heard, sums=ring.from_table(world, total))


def of_cohort(users: Ints, size: int, seed: int, t: int) -> list[Ints]:
    """Rings of about the same size in a random order, none larger than `size`."""
    n = -(-len(users) // size)
    return np.array_split(streams.at(seed, "rings", t).permutation(users), n) if n else []


def leaving(world: AnyWorld, message: Message, absent: Bools | None) -> dict[int, int]:
    """Before which stage each of those leaves who drop out."""
    if absent is None:
        return {}
    users = message.users[absent]
    words = streams.words(streams.keys(world.seed, "leaves", message.round, last=users), 0)
    stages = streams.below(words, np.full(len(users), len(VANISHING)))
    return dict(zip(users.tolist(), stages.tolist(), strict=True))


def added_up(
    world: AnyWorld, exchange: AnyExchange, sizes: Sizes, number: int, users: Ints, talk: Talk
) -> tuple[Ints, Added]:
    """One ring: the rows that it adds up, and their sum."""
    settings = world.settings
    message = talk.message
    ring = exchange.secure_sum
    assert ring is not None
    union = settings.ring_rows == "union" and bool(sizes.items) and ring.rows is None
    about = About(number, WAYS.index(settings.ring_way), int(union), *sizes)
    talk.common = {"ring": np.array(about, np.int64)}
    beside: Expected = {"touched": (np.uint8, (-(-sizes.items // 8),))} if union else {}
    said = announced(talk.ask, users, beside)
    touched = (
        np.bitwise_or.reduce([answer["touched"] for answer in said.values()]) if union else None
    )
    rows = rows_of(world, exchange, number, sizes.items, touched)
    about = about._replace(length=length_of(world, exchange, message, sizes, rows))
    talk.common = {"ring": np.array(about, np.int64)} | (
        {} if touched is None else {"rows": touched}
    )
    clear: Expected = (
        {"samples": (np.int64, ()), "user_rows": (np.int32, (sizes.user_width,))}
        if exchange.visible
        else {}
    )
    terms = Terms(message.round, message.exchange, number, about.length, settings.ring_way)
    keys = {user: answer["key"].tobytes() for user, answer in said.items()}
    return rows, Ring(terms, talk.ask, fewest(len(users)), clear).add_up(keys)


@dataclass(slots=True)
class Talk:
    """What a server and the members of a ring say to each other through an engine, and what it weighs."""

    exchange: AnyExchange
    message: Message
    call: Call
    gone: dict[int, int]
    common: Columns = field(default_factory=dict)
    up: int = 0
    down: int = 0
    private_state: list[Reply] = field(default_factory=list)
    """Replies with what devices keep."""

    def ask(self, stage: str, users: Ints, own: Columns) -> dict[int, Columns]:
        order = np.argsort(users)
        sent = self._message(
            stage, users[order], {name: column[order] for name, column in own.items()}
        )
        self.down += message_size(sent) * len(users) - (
            message_size(self.message) if stage == "announce" else 0
        ) * len(users)
        there = np.array([self._is_there(user, stage) for user in sent.users.tolist()], bool)
        replies = self.call(Stage(stage, self.exchange), sent.to(there)) if there.any() else []
        found: dict[int, Columns] = {}
        for reply in replies:
            found |= self._read(reply, stage)
        return found

    def _message(self, stage: str, users: Ints, own: Columns) -> Message:
        if stage == "announce":  # with all that an update is made of
            part = self.message.to(np.searchsorted(self.message.users, users))
            return replace(part, common=part.common | self.common)
        return Message(self.message.round, users, self.common, own, self.message.exchange)

    def _is_there(self, user: int, stage: str) -> bool:
        before = VANISHING.index(stage) if stage in VANISHING else len(VANISHING)
        return user not in self.gone or before < self.gone[user]

    def _read(self, reply: Reply, stage: str) -> dict[int, Columns]:
        """The answers in a reply, by user; nobody speaks for others."""
        columns = reply.columns
        tag = ORDER.index(stage)
        if columns is None or (reply.round, reply.exchange) != (
            self.message.round,
            self.message.exchange,
        ):
            return {}
        if any(name not in columns or columns[name].ndim != 1 for name in ("users", "stage")):
            return {}  # of nobody, or nonsense
        n = len(columns["users"])
        if columns["users"].dtype != np.int32 or any(
            not column.ndim or len(column) != n for column in columns.values()
        ):
            return {}
        self.up += (
            message_size(
                Message(
                    reply.round,
                    columns["users"],
                    {},
                    {k: v for k, v in columns.items() if k != "users"},
                )
            )
            * n
        )
        if stage == "upload" and reply.private_state:
            self.private_state.append(reply)
        mine = set(reply.selected.tolist())
        said = {name: column for name, column in columns.items() if name not in ("users", "stage")}
        return {
            user: {name: column[k] for name, column in said.items()}
            for k, user in enumerate(columns["users"].tolist())
            if user in mine and columns["stage"][k] == tag
        }

    def kept_by(self, users: Ints) -> tuple[tuple[Ints, PrivateState], ...]:
        """What the devices of some users keep."""
        return tuple(accepted_private_state(reply, users) for reply in self.private_state)


def split(total: Sums, ring: SecureSum, rows: Ints, added: Added) -> Sums:
    """The sums that a row of numbers stands for; of item tables some rows."""
    found = {}
    at = 0
    numbers = added.numbers.view(np.int64)
    for name, whole in total.items():
        shape = (len(rows), *whole.shape[1:]) if name in ring.by_item else whole.shape
        size = int(np.prod(shape))
        found[name] = numbers[at : at + size].reshape(shape)
        at += size
    return found


def delegates(added: Added, sizes: Sizes) -> Accepted:
    """Who counts, and what they said in the clear."""
    n = len(added.users)
    rows = added.beside.get("user_rows", np.empty((n, sizes.user_width), np.int32))
    return Accepted(added.users, added.beside.get("samples", np.ones(n, np.int64)), rows)


def nobody(sizes: Sizes) -> Accepted:
    return Accepted(
        np.empty(0, np.int32), np.empty(0, np.int64), np.empty((0, sizes.user_width), np.int32)
    )
