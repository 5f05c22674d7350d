"""One round on one screen: sample, ask, answer, validate, reduce, finish."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from coterie import fusing, streams
from coterie.algorithm import Context, Trainer
from coterie.errors import ConfigError
from coterie.federation import Exchange, Federation, Histories, Kept, World
from coterie.fusing import Heard
from coterie.runtime.local import LocalEngine
from coterie.tally import Tally
from coterie.types import Bools, Ints, Message, Training
from coterie.validation import Reply

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
    node = _alone(engine)
    fused = exchange.fused(world, there, node) if node and len(there.users) else None
    if fused is None:
        heard = fusing.hear(world, exchange, server, there, engine.call)
    else:
        heard = fusing.of_fused(fused, exchange.sizes(world, server))
    tally = heard.tally(cohort, message)
    if not tally.accepted:
        return state, tally
    return _put_back(exchange.finish(world, server, heard.sums, heard.delegates, t), state, heard), tally


def _kept(state: Any, users: Ints) -> Kept:
    return {name: getattr(state, name)[users] for name in state.private}


def _put_back(after: Any, before: Any, heard: Heard) -> Any:
    """The next state with what devices keep: of those accepted what they made of the round, of others what they had."""
    if not before.private:
        return after
    private = {name: getattr(before, name).copy() for name in before.private}
    for users, kept in heard.kept:
        for name, rows in kept.items():
            private[name][users] = rows
    return replace(after, **private)


def _alone(engine: Engine) -> Histories | None:
    """The node that hosts everybody, of an engine that has one and nothing between it and the server."""
    return getattr(engine, "alone", None)


def trainer(federation: Federation, training: Training, settings: Any, context: Context) -> Trainer:
    """A federated algorithm as steps: step n is round t = n - 1 of the paper, or an epoch of rounds."""
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

    refused_before, a_step = False, federation.rounds_a_step(world)  # many refused rounds in a row are said once

    def one_round(state: Any, t: int) -> tuple[Any, Tally]:
        cohort = federation.sample(world, state.without_private(), t)
        _refuse_huge(cohort)
        tally, absent = Tally(cohort), _absent(world, cohort, t)
        for number, exchange in enumerate(federation.exchanges):
            state, costs = play(world, exchange, state, cohort, t, engine, number, absent)
            tally = tally.and_then(costs)
        return state, tally

    def step(state: Any, n: int) -> tuple[Any, Tally]:
        nonlocal refused_before
        ts = range((n - 1) * a_step, n * a_step)
        node = _alone(engine)
        turns = federation.in_turn(world, node, state, ts) if node else None
        if turns is not None:
            tally = fusing.tally_of(world, federation.exchanges[0], state.without_private(), turns)
            state = turns.state
        else:
            state, tally = one_round(state, ts[0])
            for t in ts[1:]:
                state, costs = one_round(state, t)
                tally = tally.and_round(costs)
        if not tally.accepted and not refused_before:
            context.watch.say(f"round {n}: {_why_nothing(tally)}; the model stays as it was")
        refused_before = not tally.accepted
        return state, tally

    return Trainer(start, step, lambda state: federation.model(world, state))


def world_of(training: Training, settings: Any, seed: int) -> World:
    members = training.positives.counts > 0
    return World(
        settings,
        seed,
        training.n_users,
        training.n_items,
        members,
        training.user_features,
        len(training.positives.items),
    )


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
