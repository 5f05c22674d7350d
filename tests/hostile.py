"""Invalid updates by the reason they must be refused for, and an engine that sends them."""

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
    """The array with a value at a random place."""
    new = array.copy()
    new.reshape(-1)[rng.integers(new.size)] = value
    return new


def one_of(rng: Rng, *values: int) -> int:
    return int(values[rng.integers(len(values))])


def in_a_column(u: Updates, rng: Rng, *values: int) -> dict[str, np.ndarray]:
    """Write a value into a non-empty column: not every algorithm sends user rows or dense ones."""
    names = [name for name in ("item_rows", "user_rows", "dense") if u.columns()[name].size]
    name = names[rng.integers(len(names))]
    return {name: written(u.columns()[name], one_of(rng, *values), rng)}


def one_that_differs(
    u: Updates, changes: list[dict[str, np.ndarray]], rng: Rng
) -> dict[str, np.ndarray]:
    """One of some changes that differs from the update; cutting an empty column does not."""
    columns = u.columns()
    real = [
        change
        for change in changes
        if any(not np.array_equal(change[name], columns[name]) for name in change)
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
    """Arrays that NumPy would silently broadcast to the right shape."""
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
    dtype = (np.float32, np.float64, np.uint8, np.uint64)[rng.integers(4)]
    return {name: u.columns()[name].astype(dtype)}


def unknown_user(u: Updates, rng: Rng) -> dict[str, np.ndarray]:
    """An index that does not exist, or that of another user."""
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
    "unknown user": [lambda u, t, n, rng: reply(u, t, **unknown_user(u, rng))],
    "not finite": [lambda u, t, n, rng: reply(u, t, **in_a_column(u, rng, NOT_FINITE))],
    "out of range": [
        lambda u, t, n, rng: reply(
            u, t, **in_a_column(u, rng, TOO_LARGE, -TOO_LARGE, 2**31 - 1, NOT_FINITE + 1)
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
"""Reason of the refusal -> functions of (update, round, number of items, generator)."""
OF_NUMBERS = ("not finite", "out of range")
"""Reasons that an update of item ids alone cannot be refused for."""


def has_numbers(u: Updates) -> bool:
    return bool(u.item_rows.shape[1] or u.user_rows.shape[1] or u.dense.shape[1])


@dataclass
class HostileEngine(Engine):
    """Some users of every cohort send invalid updates, and some valid updates are sent twice.

    Without `attacking` the same users drop out and nothing is repeated: the expected run.
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
        replies = self.engine.call(exchange, message)
        updates = Updates.joined([Updates(**r.columns) for r in replies if r.columns is not None])
        lying = np.zeros(len(updates), bool)
        lying[rng.permutation(len(lying))[: self.liars]] = True
        honest = updates.take(np.flatnonzero(~lying))
        states = PrivateStates(replies)
        if not self.attacking:
            return states.replies([honest], message.round)
        invalid = [
            self._invalid(updates.take(np.array([k])), message.round, rng)
            for k in np.flatnonzero(lying)
        ]
        invalid = [states.attach(reply) for reply in invalid]
        return self._with_repeats(honest, invalid, states, message.round, rng)

    def _invalid(self, update: Updates, t: int, rng: Rng) -> Reply:
        reasons = list(KINDS) if has_numbers(update) else [r for r in KINDS if r not in OF_NUMBERS]
        reason = reasons[rng.integers(len(reasons))]
        self.sent[reason] += 1
        return KINDS[reason][rng.integers(len(KINDS[reason]))](update, t, self.n_items, rng)

    def _with_repeats(
        self, honest: Updates, invalid: list[Reply], states: PrivateStates, t: int, rng: Rng
    ) -> list[Reply]:
        """Repeat updates: half of them within a reply, half as replies of their own."""
        again = rng.permutation(len(honest))[: self.repeats]
        self.sent["duplicate user"] += len(again)
        within = again[: len(again) // 2]
        apart = again[len(again) // 2 :]
        several = honest.take(np.concatenate([np.arange(len(honest)), within]))
        replies = [*states.replies([several], t), *invalid]
        replies = [replies[k] for k in rng.permutation(len(replies))]
        return replies + states.replies([honest.take(np.array([k])) for k in apart], t)


class PrivateStates:
    """The new private state of all users, whose replies are replaced by others."""

    def __init__(self, replies: list[Reply]) -> None:
        users = np.concatenate([reply.selected for reply in replies])
        self.place = {user: k for k, user in enumerate(users.tolist())}
        self.private_state = {
            name: np.concatenate([reply.private_state[name] for reply in replies])
            for name in replies[0].private_state
        }

    def attach(self, reply: Reply) -> Reply:
        places = [self.place[user] for user in reply.selected.tolist()]
        return replace(
            reply, private_state={name: rows[places] for name, rows in self.private_state.items()}
        )

    def replies(self, parts: list[Updates], t: int) -> list[Reply]:
        return [
            self.attach(Reply(np.unique(part.users), t, part.columns()))
            for part in parts
            if len(part)
        ]


def without_item_rows(u: Updates) -> Updates:
    return replace(
        u, items=u.items[:0], item_rows=u.item_rows[:0], offsets=np.zeros_like(u.offsets)
    )
