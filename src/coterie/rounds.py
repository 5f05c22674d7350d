"""One round on one screen: sample, ask, answer, validate, reduce, finish."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from coterie import streams
from coterie.algorithm import Context, Tally, Trainer
from coterie.errors import ConfigError
from coterie.federation import Delegates, Exchange, Federation, Kept, World
from coterie.runtime.local import LocalEngine
from coterie.runtime.wire import message_size, reply_sizes
from coterie.types import Bools, Ints, Message, Training
from coterie.validation import NOT_OF_THE_COHORT, Expected, Reply, validate

OPENING = 255
"""The number of the exchange before the first round."""
MOST_USERS = 1 << 17
"""A larger cohort could overflow the integer sums."""


class Engine(Protocol):
    def begin(self, federation: Federation) -> Kept:
        """What all devices begin with, by user."""

    def call(self, exchange: Exchange, message: Message) -> list[Reply]:
        """Messages out, replies in."""


def play(
    world: World,
    exchange: Exchange,
    state: Any,
    cohort: Ints,
    t: int,
    engine: Engine,
    number: int = 0,
    absent: Bools | None = None,
) -> tuple[Any, Tally]:
    """One exchange with a cohort. If nobody's update is accepted the state stays as it was.

    The server's functions never see what is private; of that, only rows of users whose update was accepted become new ones.
    """
    server = state.without_private()
    message = replace(exchange.ask(world, server, cohort, t), exchange=number, kept=_kept(state, cohort))
    there = message if absent is None or not absent.any() else message.to(~absent)
    replies = engine.call(exchange, there) if len(there.users) else []
    updates, refused = validate(replies, Expected.of(there, exchange.sizes(world, server)))
    own = refused.total() - sum(refused[fault] for fault in NOT_OF_THE_COHORT)
    tally = Tally(
        cohort,
        accepted=len(updates),
        dropped=max(len(cohort) - len(updates) - own, 0),
        refused=refused,
        bytes_up=int(reply_sizes(updates).sum()),
        bytes_down=message_size(message) * len(cohort),
    )
    if not len(updates):
        return state, tally
    sums = exchange.reduce(world, there, updates)
    delegates = Delegates(updates.users, updates.samples, updates.user_rows)
    return _put_back(exchange.finish(world, server, sums, delegates, t), state, replies, updates.users), tally


def _kept(state: Any, users: Ints) -> Kept:
    return {name: getattr(state, name)[users] for name in state.private}


def _put_back(after: Any, before: Any, replies: list[Reply], accepted: Ints) -> Any:
    """The next state with what devices keep: of those accepted what they made of the round, of others what they had."""
    if not before.private:
        return after
    private = {name: getattr(before, name).copy() for name in before.private}
    for reply in replies:
        good = np.isin(reply.asked, accepted)
        for name, rows in reply.kept.items():
            private[name][reply.asked[good]] = rows[good]
    return replace(after, **private)


def trainer(federation: Federation, training: Training, settings: Any, context: Context) -> Trainer:
    """A federated algorithm as steps: step n is round t = n - 1 of the paper."""
    world = world_of(training, settings, context.seed)
    return trainer_on(federation, world, LocalEngine.over(world, training, settings.nodes), context)


def trainer_on(federation: Federation, world: World, engine: Engine, context: Context) -> Trainer:
    """The same on any engine."""

    def start() -> tuple[Any, Tally]:
        state, opening = replace(federation.start(world), **engine.begin(federation)), federation.opening(world)
        if opening is None:
            return state, Tally()
        everybody = np.flatnonzero(world.members).astype(np.int32)
        state, tally = play(world, opening, state, everybody, 0, engine, OPENING)
        if not tally.accepted:
            context.watch.say(f"before the first round: {_why_nothing(tally)}")
        return state, tally

    refused_before = False  # many such rounds in a row are said once

    def step(state: Any, n: int) -> tuple[Any, Tally]:
        nonlocal refused_before
        cohort = federation.sample(world, state.without_private(), n - 1)
        _refuse_huge(cohort)
        tally, absent = Tally(cohort), _absent(world, cohort, n - 1)
        for number, exchange in enumerate(federation.exchanges):
            state, costs = play(world, exchange, state, cohort, n - 1, engine, number, absent)
            tally = tally.and_then(costs)
        if not tally.accepted and not refused_before:
            context.watch.say(f"round {n}: {_why_nothing(tally)}; the model stays as it was")
        refused_before = not tally.accepted
        return state, tally

    return Trainer(start, step, lambda state: federation.model(world, state))


def world_of(training: Training, settings: Any, seed: int) -> World:
    members = training.positives.counts > 0
    return World(settings, seed, training.n_users, training.n_items, members, training.user_features)


def _absent(world: World, cohort: Ints, t: int) -> Bools | None:
    """Who of the cohort drops out this round: everybody tosses a coin of its own."""
    rate = world.settings.drop_out
    if not rate:
        return None
    coins = streams.words(streams.keys(world.seed, "drop-out", t, last=cohort), 0) >> np.uint64(11)
    gone: Bools = coins < np.uint64(rate * 2.0**53)
    return gone


def _why_nothing(tally: Tally) -> str:
    if not tally.refused:
        return "nobody of the cohort answered"
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(tally.refused.items()))
    return f"every update was refused ({reasons})"


def _refuse_huge(cohort: Ints) -> None:
    if len(cohort) > MOST_USERS:
        raise ConfigError(
            f"a round of {len(cohort):,} users could overflow integer sums; expected at most {MOST_USERS:,}. Lower participation."
        )
