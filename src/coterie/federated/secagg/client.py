"""A node's side of rings: its users as members, from one stage to the next."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from coterie.core.weak_cache import WeakCache
from coterie.federated.federation import (
    AnyExchange,
    AnyWorld,
    NodeData,
    PrivateState,
)
from coterie.federated.secagg.crypto import KEY_BYTES, Refused, Words
from coterie.federated.secagg.member import Member, Neighbour, Terms
from coterie.federated.secagg.ring import Columns
from coterie.federated.validation import Expected, Reply, no_updates, validate
from coterie.types import Ints, Message, Sizes, Updates


class Held(NamedTuple):
    """What a node remembers of the ring that its users are in."""

    ring: tuple[int, int, int]
    """Round, exchange and number."""
    members: dict[int, Member]
    message: Message
    updates: Updates
    private_state: PrivateState
    sizes: Sizes
    rows: Ints | None = None
    """Those of item tables that are added up, once the server has said so."""


HELD = WeakCache()
"""By node: the last ring. No server ever sees it."""
WAYS = ("seed", "numbers")
MOST = 1 << 31


class About(NamedTuple):
    """What a server says about a ring at every stage, as one row of numbers."""

    number: int
    way: int
    union: int
    items: int
    item_width: int
    user_width: int
    dense: int
    length: int = 0
    """Known when all have announced themselves."""

    @classmethod
    def read(cls, row: np.ndarray | None) -> About | None:
        """None where it is no such row."""
        if (
            row is None
            or row.dtype != np.int64
            or row.shape != (len(cls._fields),)
            or (row < 0).any()
        ):
            return None
        about = cls(*row.tolist())
        return about if about.way < len(WAYS) and max(about.sizes) < MOST else None

    @property
    def sizes(self) -> Sizes:
        return Sizes(*self[3:7])


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a ring, as an engine carries it to nodes and back."""

    name: str
    exchange: AnyExchange
    """What the members would have answered in the open."""

    @property
    def role(self) -> str:
        return self.exchange.role

    def client_update(
        self, world: AnyWorld, message: Message, node: NodeData
    ) -> tuple[Columns, PrivateState]:
        """The answers of those of a node's users who give one; of nobody to what is no message of this stage."""
        about = About.read(message.common.get("ring"))
        common = {k: v for k, v in message.common.items() if k != "ring"}
        if about is None:
            return NOBODY, {}
        which = message.round, message.exchange, about.number
        if self.name == "announce":
            return begin(
                world, self.exchange, replace(message, common=common), node, which, about
            ), {}
        held: Held | None = HELD.get(node.users)
        if (
            held is None
            or held.ring != which
            or not fits(self.name, len(message.users), message.own)
        ):
            return NOBODY, {}
        if self.name == "deal":
            rows = agreed(world, self.exchange, held, about, common.get("rows"))
            if rows is None:
                return NOBODY, {}
            held = armed(world, self.exchange, held._replace(rows=rows))
            HELD.put(node.users, held)
        said = answer(self.name, held.members, message.users.tolist(), message.own)
        if self.name != "upload" or not len(said["users"]):
            return said, {}
        places = np.searchsorted(held.updates.users, said["users"])
        if self.exchange.visible:
            said |= {
                "samples": held.updates.samples[places],
                "user_rows": held.updates.user_rows[places],
            }
        asked = np.searchsorted(held.message.users, message.users)
        return said, {name: rows[asked] for name, rows in held.private_state.items()}


NOBODY: Columns = {"users": np.empty(0, np.int32)}


def begin(
    world: AnyWorld,
    exchange: AnyExchange,
    message: Message,
    node: NodeData,
    which: tuple[int, int, int],
    about: About,
) -> Columns:
    """Users make their updates; whose is as it should be becomes a member."""
    made = exchange.client_update(world, message, node)
    updates, private_state = (made, {}) if isinstance(made, Updates) else made
    reply = Reply(message.users, message.round, updates.columns(), message.exchange)
    updates, _ = validate([reply], Expected.of(message, about.sizes))
    terms = Terms(*which, 0, WAYS[about.way])  # type: ignore[arg-type]
    members = {user: Member(user, terms, _nothing) for user in updates.users.tolist()}
    HELD.put(node.users, Held(which, members, message, updates, private_state, about.sizes))
    said = answer("announce", members, updates.users.tolist(), {})
    return said | (
        {"touched": touched(updates, about.items)} if about.union and len(updates) else {}
    )


def touched(updates: Updates, n_items: int) -> np.ndarray:
    """(n, bytes) which items each says something about, a bit for every item."""
    found = np.zeros((len(updates), n_items), bool)
    found[np.repeat(np.arange(len(updates)), np.diff(updates.offsets)), updates.items] = True
    return np.packbits(found, axis=1)


def agreed(
    world: AnyWorld, exchange: AnyExchange, held: Held, about: About, union: np.ndarray | None
) -> Ints | None:
    """Members learn which rows are added up; None where what they are told does not fit together."""
    if about.sizes != held.sizes or not (
        union is None or _is(union[None], 1, np.uint8, -(-about.items // 8))
    ):
        return None
    rows = rows_of(world, exchange, about.number, about.items, union)
    if about.length != length_of(world, exchange, held.message, held.sizes, rows):
        return None
    digest = hashlib.sha256(rows.tobytes()).hexdigest()
    for member in held.members.values():
        if member.given is None:
            member.terms = member.terms._replace(length=about.length, rows=digest)
    return rows


def armed(world: AnyWorld, exchange: AnyExchange, held: Held) -> Held:
    """With members who can say their numbers, when they are needed."""
    assert held.rows is not None
    for k, (user, member) in enumerate(held.members.items()):
        message = held.message.to(np.searchsorted(held.message.users, np.array([user])))
        member.numbers = partial(
            numbers_of, world, exchange, message, held.updates.take(np.array([k])), held.rows
        )
    return held


def length_of(
    world: AnyWorld, exchange: AnyExchange, message: Message, sizes: Sizes, rows: Ints
) -> int:
    """How many numbers a member adds."""
    return sum(
        part.size for part in parts_of_nobody(world, exchange, message, sizes, rows).values()
    )


def parts_of_nobody(
    world: AnyWorld, exchange: AnyExchange, message: Message, sizes: Sizes, rows: Ints
) -> Columns:
    none = message.to(np.empty(0, np.int64))
    return parts_of(world, exchange, none, no_updates(Expected.of(none, sizes)), rows)


def rows_of(
    world: AnyWorld, exchange: AnyExchange, number: int, n_items: int, union: np.ndarray | None
) -> Ints:
    """The rows of item tables that a ring adds up."""
    assert exchange.secure_sum is not None
    if union is not None:
        return np.flatnonzero(np.unpackbits(union, count=n_items)).astype(np.int32)
    if exchange.secure_sum.rows is not None:
        return exchange.secure_sum.rows(world, number)
    return np.arange(n_items, dtype=np.int32)


def numbers_of(
    world: AnyWorld, exchange: AnyExchange, message: Message, updates: Updates, rows: Ints
) -> Words:
    """What some users add up to, as one row of numbers modulo 2^64."""
    parts = [part.ravel() for part in parts_of(world, exchange, message, updates, rows).values()]
    return np.concatenate(parts).view(np.uint64)


def parts_of(
    world: AnyWorld, exchange: AnyExchange, message: Message, updates: Updates, rows: Ints
) -> dict[str, np.ndarray]:
    ring = exchange.secure_sum
    assert ring is not None
    sums = ring.to_table(world, exchange.aggregate(world, message, updates))
    return {
        name: part[rows] if name in ring.by_item else part for name, part in sorted(sums.items())
    }


def _nothing() -> Words:
    return np.empty(0, np.uint64)


RECEIVED: dict[str, dict[str, tuple[Any, int | None]]] = {
    "announce": {},
    "deal": {
        "attempt": (np.int32, None),
        "before": (np.int32, None),
        "before_key": (np.uint8, KEY_BYTES),
        "after": (np.int32, None),
        "after_key": (np.uint8, KEY_BYTES),
    },
    "upload": {"forward": (np.uint8, 0), "back": (np.uint8, 0)},
    "close": {
        "before_counts": (np.uint8, None),
        "after_counts": (np.uint8, None),
        "after": (np.int32, None),
        "after_key": (np.uint8, KEY_BYTES),
    },
    "reveal before": {},
    "reveal after": {},
    "mend": {
        "before": (np.int32, None),
        "before_key": (np.uint8, KEY_BYTES),
        "forward": (np.uint8, 0),
    },
}
"""What members are sent at each stage: dtype, and how many bytes; None is a number, 0 any number of bytes."""
ORDER = tuple(RECEIVED)


def fits(stage: str, n: int, own: Columns) -> bool:
    """Whether columns are what n members are sent at a stage."""
    expected = RECEIVED[stage]
    return set(own) == set(expected) and all(
        _is(own[name], n, *expected[name]) for name in expected
    )


def _is(column: np.ndarray, n: int, dtype: Any, size: int | None) -> bool:
    shape = (n,) if size is None else (n, size or column.shape[-1] if column.ndim else 0)
    return column.dtype == dtype and column.shape == shape


def answer(stage: str, members: dict[int, Member], users: Iterable[int], own: Columns) -> Columns:
    """What some members say to what each was sent; who refuses, or is none, says nothing."""
    spoke = []
    spoken = []
    for k, user in enumerate(users):
        try:
            said = STAGES[stage](members[user], {name: column[k] for name, column in own.items()})
        except (Refused, KeyError):
            continue
        spoke.append(user)
        spoken.append(said)
    if not spoke:
        return NOBODY
    columns = {name: np.stack([said[name] for said in spoken]) for name in spoken[0]}
    tag = np.full(
        len(spoke), ORDER.index(stage), np.uint8
    )  # what was said at one stage is no answer at another
    columns |= {"users": np.array(spoke, np.int32), "stage": tag}
    return columns


def announce(member: Member, sent: Columns) -> Columns:
    return {"key": _array(member.announce())}


def deal(member: Member, sent: Columns) -> Columns:
    forward, back = member.deal(
        int(sent["attempt"]), _neighbour(sent, "before"), _neighbour(sent, "after")
    )
    return {"forward": _array(forward), "back": _array(back)}


def upload(member: Member, sent: Columns) -> Columns:
    return {"numbers": member.upload(sent["forward"].tobytes(), sent["back"].tobytes())}


def close(member: Member, sent: Columns) -> Columns:
    veil, box = member.close(
        bool(sent["before_counts"]), bool(sent["after_counts"]), _neighbour(sent, "after")
    )
    return {"veil": _array(veil), "forward": _array(box)}


def reveal_before(member: Member, sent: Columns) -> Columns:
    return {"veil": _array(member.reveal("before"))}


def reveal_after(member: Member, sent: Columns) -> Columns:
    return {"veil": _array(member.reveal("after"))}


def mend(member: Member, sent: Columns) -> Columns:
    return {"numbers": member.mend(sent["forward"].tobytes(), _neighbour(sent, "before"))}


STAGES: dict[str, Callable[[Member, Columns], Columns]] = {
    "announce": announce,
    "deal": deal,
    "upload": upload,
    "close": close,
    "reveal before": reveal_before,
    "reveal after": reveal_after,
    "mend": mend,
}


def _array(content: bytes) -> np.ndarray:
    return np.frombuffer(content, np.uint8)


def _neighbour(sent: Columns, which: str) -> Neighbour:
    return Neighbour(int(sent[which]), sent[f"{which}_key"].tobytes())
