"""A node's side of rings: its users as members, from one stage to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from coterie.beside import Beside
from coterie.federation import Exchange, Histories, Kept, World
from coterie.protect.masks import Refused, Words
from coterie.protect.member import Member, Neighbour, Terms
from coterie.protect.ring import Columns
from coterie.types import Ints, Message, Sizes, Updates
from coterie.validation import Expected, Reply, validate


class Held(NamedTuple):
    """What a node remembers of the ring that its users are in."""

    ring: tuple[int, int, int]
    """Round, exchange and number."""
    members: dict[int, Member]
    message: Message
    updates: Updates
    kept: Kept


HELD = Beside()
"""By node: the last ring. No server ever sees it."""
WAYS = ("seed", "numbers")


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a ring, as an engine carries it to nodes and back."""

    name: str
    exchange: Exchange
    """What the members would have answered in the open."""

    @property
    def role(self) -> str:
        return self.exchange.role

    def answer(self, world: World, message: Message, node: Histories) -> tuple[Columns, Kept]:
        """The answers of those of a node's users who give one."""
        ring, common = message.common["ring"].tolist(), {k: v for k, v in message.common.items() if k != "ring"}
        which = message.round, message.exchange, ring[0]
        if self.name == "announce":
            return begin(world, self.exchange, replace(message, common=common), node, which, ring), {}
        held: Held | None = HELD.get(node.users)
        if held is None or held.ring != which:
            return {"users": np.empty(0, np.int32)}, {}
        if self.name == "deal":
            agree(world, self.exchange, held, ring, common)
        said = answer(self.name, held.members, message.users.tolist(), message.own)
        if self.name != "upload" or not len(said["users"]):
            return said, {}
        places = np.searchsorted(held.updates.users, said["users"])
        if self.exchange.clear:
            said |= {"samples": held.updates.samples[places], "user_rows": held.updates.user_rows[places]}
        asked = np.searchsorted(held.message.users, message.users)
        return said, {name: rows[asked] for name, rows in held.kept.items()}


def begin(
    world: World, exchange: Exchange, message: Message, node: Histories, which: tuple[int, int, int], ring: list[int]
) -> Columns:
    """Users make their updates; whose is as it should be becomes a member."""
    made = exchange.answer(world, message, node)
    updates, kept = (made, {}) if isinstance(made, Updates) else made
    sizes, (way, by_union) = Sizes(*ring[3:7]), ring[1:3]
    reply = Reply(message.users, message.round, updates.columns(), message.exchange)
    updates, _ = validate([reply], Expected.of(message, sizes))
    terms = Terms(*which, 0, WAYS[way])  # type: ignore[arg-type]
    members = {user: Member(user, terms, _nothing) for user in updates.users.tolist()}
    HELD.put(node.users, Held(which, members, message, updates, kept))
    said = answer("announce", members, updates.users.tolist(), {})
    return said | ({"touched": touched(updates, sizes.items)} if by_union and len(updates) else {})


def touched(updates: Updates, n_items: int) -> np.ndarray:
    """(n, bytes) which items each says something about, a bit for every item."""
    found = np.zeros((len(updates), n_items), bool)
    found[np.repeat(np.arange(len(updates)), np.diff(updates.offsets)), updates.items] = True
    return np.packbits(found, axis=1)


def agree(world: World, exchange: Exchange, held: Held, ring: list[int], common: Columns) -> None:
    """Members learn which rows are added up."""
    rows = rows_of(world, exchange, ring[0], ring[3], common.get("rows"))
    for k, (user, member) in enumerate(held.members.items()):
        alone = np.array([k])
        message = held.message.to(np.searchsorted(held.message.users, np.array([user])))
        member.terms = member.terms._replace(length=ring[7])
        member.numbers = lambda message=message, alone=alone: numbers_of(  # type: ignore[misc]
            world, exchange, message, held.updates.take(alone), rows
        )


def rows_of(world: World, exchange: Exchange, number: int, n_items: int, union: np.ndarray | None) -> Ints:
    """The rows of item tables that a ring adds up."""
    assert exchange.ring is not None
    if union is not None:
        return np.flatnonzero(np.unpackbits(union, count=n_items)).astype(np.int32)
    if exchange.ring.rows is not None:
        return exchange.ring.rows(world, number)
    return np.arange(n_items, dtype=np.int32)


def numbers_of(world: World, exchange: Exchange, message: Message, updates: Updates, rows: Ints) -> Words:
    """What some users add up to, as one row of numbers modulo 2^64."""
    parts = [part.ravel() for part in parts_of(world, exchange, message, updates, rows).values()]
    return np.concatenate(parts).view(np.uint64)


def parts_of(world: World, exchange: Exchange, message: Message, updates: Updates, rows: Ints) -> dict[str, np.ndarray]:
    ring = exchange.ring
    assert ring is not None
    sums = ring.table(world, exchange.reduce(world, message, updates))
    return {name: part[rows] if name in ring.by_item else part for name, part in sorted(sums.items())}


def _nothing() -> Words:
    return np.empty(0, np.uint64)


def answer(stage: str, members: dict[int, Member], users: Iterable[int], own: Columns) -> Columns:
    """What some members say to what each was sent; who refuses says nothing."""
    said: dict[str, list[np.ndarray]] = {"users": []}
    for k, user in enumerate(users):
        try:
            spoken = STAGES[stage](members[user], {name: column[k] for name, column in own.items()})
        except (Refused, KeyError):
            continue
        said["users"].append(np.int32(user))  # type: ignore[arg-type]
        for name, value in spoken.items():
            said.setdefault(name, []).append(value)
    return {name: np.stack(values) if values else np.empty(0, np.int32) for name, values in said.items()}


def announce(member: Member, sent: Columns) -> Columns:
    return {"key": _array(member.announce())}


def deal(member: Member, sent: Columns) -> Columns:
    forward, back = member.deal(int(sent["attempt"]), _neighbour(sent, "before"), _neighbour(sent, "after"))
    return {"forward": _array(forward), "back": _array(back)}


def upload(member: Member, sent: Columns) -> Columns:
    return {"numbers": member.upload(sent["forward"].tobytes(), sent["back"].tobytes())}


def close(member: Member, sent: Columns) -> Columns:
    veil, box = member.close(bool(sent["before_counts"]), bool(sent["after_counts"]), _neighbour(sent, "after"))
    return {"veil": _array(veil), "forward": _array(box)}


def reveal(member: Member, sent: Columns) -> Columns:
    return {"veil": _array(member.reveal("after" if sent["which"] else "before"))}


def mend(member: Member, sent: Columns) -> Columns:
    return {"numbers": member.mend(sent["forward"].tobytes(), _neighbour(sent, "before"))}


STAGES: dict[str, Callable[[Member, Columns], Columns]] = {
    "announce": announce, "deal": deal, "upload": upload, "close": close, "reveal": reveal, "mend": mend,
}  # fmt: skip


def _array(content: bytes) -> np.ndarray:
    return np.frombuffer(content, np.uint8)


def _neighbour(sent: Columns, which: str) -> Neighbour:
    return Neighbour(int(sent[which]), sent[f"{which}_key"].tobytes())
