"""Updates that no honest device sends, by what is wrong with them; and an engine that sends them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from coterie.federated.engine import Engine
from coterie.federated.federation import Exchange, NodeData, PrivateState, World
from coterie.federated.validation import MOST_SAMPLES, Reply
from coterie.types import NOT_FINITE, TOO_LARGE, Message, Updates

Rng = np.random.Generator


def reply(updates: Updates, t: int, **changes: np.ndarray) -> Reply:
    return Reply(updates.users, t, updates.columns() | changes)


def written(array: np.ndarray, value: int, rng: Rng) -> np.ndarray:
    """The array with a value somewhere."""
    new = array.copy()
    new.reshape(-1)[rng.integers(new.size)] = value
    return new


def one_of(rng: Rng, *values: int) -> int:
    return int(values[rng.integers(len(values))])


def somewhere(u: Updates, rng: Rng, *values: int) -> dict[str, np.ndarray]:
    """In a column that has anything in it: not every algorithm sends user rows or dense parameters."""
    names = [name for name in ("item_rows", "user_rows", "dense") if u.columns()[name].size]
    name = names[rng.integers(len(names))]
    return {name: written(u.columns()[name], one_of(rng, *values), rng)}


def one_that_differs(
    u: Updates, lies: list[dict[str, np.ndarray]], rng: Rng
) -> dict[str, np.ndarray]:
    """One of some lies; to cut a column off that has none is not one."""
    real = [
        lie for lie in lies if any(not np.array_equal(lie[name], u.columns()[name]) for name in lie)
    ]
    return real[rng.integers(len(real))]


def wrong_shape(u: Updates, rng: Rng) -> dict[str, np.ndarray]:
    wrong = [
        {"item_rows": np.hstack([u.item_rows, u.item_rows[:, :1]])},
        {"item_rows": u.item_rows[:-1]},
        {"user_rows": u.user_rows[:, :-1]},
        {"user_rows": np.vstack([u.user_rows, u.user_rows])},
        {"dense": u.dense[:, 1:]},
        {"samples": u.samples[:0]},
        {"offsets": u.offsets[:1]},
        {"offsets": u.offsets + 1},
        {"offsets": u.offsets[::-1].copy()},
        {"offsets": np.array([0, len(u.items) - 1])},
        {"offsets": np.array([0, 2**62])},
        {"items": u.items[1:]},
        {"users": u.users[:0]},
    ]
    return one_that_differs(u, wrong, rng)


def broadcastable(u: Updates, rng: Rng) -> dict[str, np.ndarray]:
    """What NumPy would stretch to the right shape without a word."""
    stretched = [
        {"item_rows": np.ones((1, 1), np.int32)},
        {"item_rows": u.item_rows[:, :1]},
        {"item_rows": u.item_rows[0]},
        {"user_rows": u.user_rows[0]},
        {"user_rows": np.ones((1, 1), np.int32)},
        {"dense": u.dense[0]},
        {"dense": u.dense[:, :1]},
        {"dense": np.array(1, np.int32)},
        {"samples": np.array(1, np.int64)},
        {"samples": u.samples[:, None]},
        {"users": np.array(u.users[0])},
        {"items": np.array(0, np.int32)},
    ]
    return one_that_differs(u, stretched, rng)


def wrong_dtype(u: Updates, rng: Rng) -> dict[str, np.ndarray]:
    name = list(u.columns())[rng.integers(7)]
    return {
        name: u.columns()[name].astype(
            (np.float32, np.float64, np.uint8, np.uint64)[rng.integers(4)]
        )
    }


def strange_user(u: Updates, rng: Rng) -> dict[str, np.ndarray]:
    """Nobody, or somebody else."""
    return {
        "users": np.array([one_of(rng, -1, 2**31 - 1, -(2**31), int(u.users[0]) + 1)], np.int32)
    }


def repeated(u: Updates, rng: Rng) -> dict[str, np.ndarray]:
    """The same row counted twice."""
    return {
        "items": np.append(u.items, u.items[-1:]),
        "item_rows": np.vstack([u.item_rows, u.item_rows[-1:]]),
        "offsets": np.array([0, len(u.items) + 1]),
    }


def malformed(u: Updates, t: int, rng: Rng) -> Reply:
    columns = u.columns()
    lost = list(columns)[rng.integers(7)]
    missing = {name: a for name, a in columns.items() if name != lost}
    return Reply(u.users, t, (None, {}, missing, columns | {"more": u.dense})[rng.integers(4)])


KINDS: dict[str, list[Callable[[Updates, int, int, Rng], Reply]]] = {
    "wrong shape": [
        lambda u, t, n, rng: reply(u, t, **wrong_shape(u, rng)),
        lambda u, t, n, rng: reply(u, t, **broadcastable(u, rng)),
    ],
    "wrong dtype": [lambda u, t, n, rng: reply(u, t, **wrong_dtype(u, rng))],
    "unknown item": [
        lambda u, t, n, rng: reply(
            u, t, items=written(u.items, one_of(rng, n, -1, 2**31 - 1, -(2**31)), rng)
        )
    ],
    "repeated item": [lambda u, t, n, rng: reply(u, t, **repeated(u, rng))],
    "unknown user": [lambda u, t, n, rng: reply(u, t, **strange_user(u, rng))],
    "not finite": [lambda u, t, n, rng: reply(u, t, **somewhere(u, rng, NOT_FINITE))],
    "out of range": [
        lambda u, t, n, rng: reply(
            u, t, **somewhere(u, rng, TOO_LARGE, -TOO_LARGE, 2**31 - 1, NOT_FINITE + 1)
        )
    ],
    "bad sample count": [
        lambda u, t, n, rng: reply(
            u,
            t,
            samples=np.array([one_of(rng, -1, 0, MOST_SAMPLES + 1, 2**63 - 1, -(2**63))], np.int64),
        )
    ],
    "stale round": [lambda u, t, n, rng: reply(u, t + one_of(rng, -1, 1, 7, -t - 1))],
    "malformed": [lambda u, t, n, rng: malformed(u, t, rng)],
}
"""By the reason they must be refused for, given (update, round, number of items, chance)."""


@dataclass
class HostileEngine(Engine):
    """Some users of every cohort answer with what no honest device sends, and some honest updates come twice.

    Without `attacking` the same users are silent and nothing comes twice: the run as it must come out.
    """

    engine: Engine
    n_items: int
    target: Exchange
    liars: int
    repeats: int = 0
    attacking: bool = True
    sent: Counter[str] = field(default_factory=Counter)

    def gather(self, make: Callable[[World, NodeData], PrivateState]) -> PrivateState:
        return self.engine.gather(make)

    def call(self, exchange: Exchange, message: Message) -> list[Reply]:
        if exchange is not self.target:
            return self.engine.call(exchange, message)
        rng = np.random.default_rng([99, message.round])
        answers = self.engine.call(exchange, message)
        everybody = Updates.joined([Updates(**a.columns) for a in answers if a.columns is not None])
        lying = np.zeros(len(everybody), bool)
        lying[rng.permutation(len(lying))[: self.liars]] = True
        honest = everybody.take(np.flatnonzero(~lying))
        private_state = Keeping(answers)
        if not self.attacking:
            return private_state.replies([honest], message.round)
        lies = [
            self._lie(everybody.take(np.array([k])), message.round, rng)
            for k in np.flatnonzero(lying)
        ]
        return self._with_repeats(
            honest, [private_state.beside(lie) for lie in lies], private_state, message.round, rng
        )

    def _lie(self, one: Updates, t: int, rng: Rng) -> Reply:
        reason = list(KINDS)[rng.integers(len(KINDS))]
        self.sent[reason] += 1
        return KINDS[reason][rng.integers(len(KINDS[reason]))](one, t, self.n_items, rng)

    def _with_repeats(
        self, honest: Updates, lies: list[Reply], private_state: Keeping, t: int, rng: Rng
    ) -> list[Reply]:
        """Half of them within a reply, half as a reply that comes again; everything in any order."""
        again = rng.permutation(len(honest))[: self.repeats]
        self.sent["duplicate user"] += len(again)
        within = again[: len(again) // 2]
        apart = again[len(again) // 2 :]
        several = honest.take(np.concatenate([np.arange(len(honest)), within]))
        replies = [*private_state.replies([several], t), *lies]
        replies = [replies[k] for k in rng.permutation(len(replies))]
        return replies + private_state.replies([honest.take(np.array([k])) for k in apart], t)


class Keeping:
    """What devices make of a round for themselves, a liar's too: it counts only if the update does."""

    def __init__(self, answers: list[Reply]) -> None:
        asked = np.concatenate([answer.selected for answer in answers])
        self.place = {user: k for k, user in enumerate(asked.tolist())}
        self.private_state = {
            name: np.concatenate([answer.private_state[name] for answer in answers])
            for name in answers[0].private_state
        }

    def beside(self, reply: Reply) -> Reply:
        places = [self.place[user] for user in reply.selected.tolist()]
        return replace(
            reply, private_state={name: rows[places] for name, rows in self.private_state.items()}
        )

    def replies(self, parts: list[Updates], t: int) -> list[Reply]:
        return [
            self.beside(Reply(np.unique(part.users), t, part.columns()))
            for part in parts
            if len(part)
        ]


def without_item_rows(u: Updates) -> Updates:
    return replace(
        u, items=u.items[:0], item_rows=u.item_rows[:0], offsets=np.zeros_like(u.offsets)
    )
