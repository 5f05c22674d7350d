"""One round on one screen: sample, ask, answer, validate, reduce, finish."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from coterie.core import streams
from coterie.data.training_set import TrainingSet
from coterie.errors import ConfigError
from coterie.federated import aggregation, availability
from coterie.federated.aggregation import Aggregate, Limits
from coterie.federated.costs import Costs
from coterie.federated.federation import (
    ClientTask,
    Exchange,
    Federation,
    NodeData,
    PrivateState,
    Relay,
    World,
)
from coterie.federated.secagg import exposure
from coterie.federated.secagg import server as secagg_server
from coterie.federated.secagg.ring import MIN_CLIENTS
from coterie.federated.trainer import Context, Trainer
from coterie.federated.validation import Reply
from coterie.models.recommender import Recommender
from coterie.types import Bools, Ints, Message

OPENING = 255
"""The number of the exchange before the first round."""
DEVICES = "devices"
MOST_USERS = 1 << 17
"""A larger cohort could overflow the integer sums."""


class Engine(Protocol):
    def gather(self, make: Callable[[World, NodeData], PrivateState]) -> PrivateState:
        """What all devices make for themselves, by user."""

    def call(self, exchange: ClientTask, message: Message) -> list[Reply]:
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
) -> tuple[Any, Costs]:
    """One exchange with a cohort. If nobody's update is accepted the state stays as it was.

    The server's functions never see what is private; of that, only rows of users whose update was accepted become new ones.
    """
    keep_it = getattr(engine, "keeps", False)  # nodes do: what is private is not here
    private_state = {} if keep_it else _kept(state, cohort)
    message = replace(
        asked(world, exchange, state, cohort, t, engine),
        exchange=number,
        private_state=private_state,
    )
    server = state.as_seen_by(exchange.role)
    world = world.seen_by(exchange.role)
    if in_rings(world, exchange):
        heard = secagg_server.aggregate_securely(
            world, exchange, server, message, engine.call, absent
        )
    else:
        there = message if absent is None or not absent.any() else message.to(~absent)
        heard = _heard(world, exchange, there, engine, Limits.of(world, exchange, server))
    costs = heard.costs(cohort, message)
    if not costs.accepted:
        return state, costs
    after = state.with_part_of(
        exchange.role, exchange.finish(world, server, heard.sums, heard.delegates, t)
    )
    if not keep_it:
        return _put_back(after, state, heard), costs
    engine.settle(t, number, heard.delegates.users)  # type: ignore[attr-defined]
    return after, costs


def _heard(
    world: World, exchange: Exchange, message: Message, engine: Engine, limits: Limits
) -> Aggregate:
    """In the quickest way that the engine has; all have the same bits."""
    node = _alone(engine)
    added_up = getattr(engine, "added_up", None)
    if not len(message.users):
        return aggregation.hear(world, exchange, message, engine.call, limits)
    if added_up is not None and exchange.together is not None:
        heard: Aggregate = added_up(exchange, message, limits)
        return heard
    fused = exchange.fused(world, message, node) if node else None
    if fused is not None:
        return aggregation.of_fused(fused, limits.sizes)
    return aggregation.hear(world, exchange, message, engine.call, limits)


def play_round(
    federation: Federation, here: World, state: Any, t: int, engine: Engine
) -> tuple[Any, Costs]:
    """All exchanges of a round, with those who are there."""
    cohort, absent = _cohort(federation, here, state.without_private(), t)
    if not len(cohort):
        return state, Costs()
    _refuse_cohort(here, cohort)
    costs = Costs(cohort)
    here = availability.with_over_selection(here)
    for number, exchange in enumerate(federation.exchanges):
        if isinstance(exchange, Relay):
            state = pass_on(here, exchange, state, t, engine)
            continue
        state, later = play(here, exchange, state, cohort, t, engine, number, absent)
        costs = costs.and_then(later)
    return state, costs


def in_rings(world: World, exchange: Exchange) -> bool:
    return world.settings.secure_aggregation == "ring" and exchange.ring is not None


def asked(
    world: World, exchange: Exchange, state: Any, cohort: Ints, t: int, engine: Engine
) -> Message:
    """What all servers that have something to say send the cohort."""
    message = None
    for role, ask in ((exchange.role, exchange.ask), *exchange.beside):
        said = ask(world.seen_by(role), state.as_seen_by(role), cohort, t)
        _write_down(engine, t, role, DEVICES, said.common | said.own)
        message = said if message is None else message.and_from(said)
    assert message is not None
    return message


def pass_on(world: World, relay: Relay, state: Any, t: int, engine: Engine) -> Any:
    """One server tells another; each sees its own part of the state."""
    before, told = relay.tell(world.seen_by(relay.sender), state.as_seen_by(relay.sender), t)
    _write_down(engine, t, relay.sender, relay.receiver, told)
    state = state.with_part_of(relay.sender, before)
    after = relay.hear(world.seen_by(relay.receiver), state.as_seen_by(relay.receiver), told, t)
    return state.with_part_of(relay.receiver, after)


def _write_down(
    engine: Engine, t: int, sender: str, receiver: str, arrays: dict[str, np.ndarray]
) -> None:
    """Of an engine that keeps a transcript."""
    transcript = getattr(engine, "write_down", None)
    if transcript is not None:
        transcript(t, sender, receiver, arrays)


def _kept(state: Any, users: Ints) -> PrivateState:
    return {name: getattr(state, name)[users] for name in state.private}


def _put_back(after: Any, before: Any, heard: Aggregate) -> Any:
    """The next state with what devices keep: of those accepted what they made of the round, of others what they had."""
    if not before.private:
        return after
    private = {name: getattr(before, name).copy() for name in before.private}
    for users, private_state in heard.private_state:
        for name, rows in private_state.items():
            private[name][users] = rows
    return replace(after, **private)


def _alone(engine: Engine) -> NodeData | None:
    """The node that hosts everybody, of an engine that has one and nothing between it and the server."""
    return getattr(engine, "alone", None)


def trainer_on(
    federation: Federation, world: World, engine: Engine, context: Context, by_round: bool = False
) -> Trainer:
    """The same on any engine. `by_round`: a step is a round, whatever the algorithm counts in."""
    exposure.check_and_report(federation, world, context)

    def start() -> tuple[Any, Costs]:
        state = replace(federation.start(world), **engine.gather(federation.devices))
        opening = federation.opening(world)
        if opening is None:
            return state, Costs()
        everybody = np.flatnonzero(world.members).astype(np.int32)
        state, costs = play(world, opening, state, everybody, 0, engine, OPENING)
        if not costs.accepted:
            context.progress.log(f"before the first round: {_why_nothing(costs)}")
        return state, costs

    # many refused rounds in a row are said once
    refused_before = False
    total = n_rounds(federation, world)
    a_step = 1 if by_round else federation.rounds_per_step(world)

    def step(state: Any, n: int) -> tuple[Any, Costs]:
        nonlocal refused_before
        ts = range((n - 1) * a_step, n * a_step)
        node = _alone(engine)
        plain = world.settings.secure_aggregation == "none" and availability.always_available(world)
        turns = federation.sequential(world, node, state, ts) if node and plain else None
        if turns is not None:
            costs = aggregation.tally_of(world, _only(federation), state.without_private(), turns)
            state = turns.state
        else:
            state, costs = play_round(
                federation, availability.with_available(world, ts[0], total), state, ts[0], engine
            )
            for t in ts[1:]:
                state, later = play_round(
                    federation, availability.with_available(world, t, total), state, t, engine
                )
                costs = costs.and_round(later)
        if not costs.accepted and not refused_before:
            context.progress.log(f"round {n}: {_why_nothing(costs)}; the model stays as it was")
        refused_before = not costs.accepted
        return state, costs

    def model(state: Any) -> Recommender:
        made = federation.model(world, state)
        serve = federation.serve
        if serve is None:
            return made
        rows = engine.gather(lambda at, node: serve(at, state, node))
        return replace(made, **rows)

    return Trainer(start, step, model)


def world_of(
    training: TrainingSet, settings: Any, seed: int, federation: Federation | None = None
) -> World:
    """What is there before a federation begins; without one, only what all have in common."""
    members = training.positives.counts > 0
    told = federation and federation.told(training, settings)
    return World(
        settings,
        seed,
        training.n_users,
        training.n_items,
        members,
        training.user_features,
        len(training.positives.items),
        content=told[0] if told else None,
        on_devices=told[1] if told else None,
        presence=training.presence,
    )


def _only(federation: Federation) -> Exchange:
    (exchange,) = federation.exchanges
    assert isinstance(exchange, Exchange)
    return exchange


def _cohort(federation: Federation, world: World, state: Any, t: int) -> tuple[Ints, Bools | None]:
    """Who is asked in a round, and who of them is not heard."""
    if not world.present.any():
        return np.empty(0, np.int32), None
    cohort = federation.sample(availability.with_over_selection(world), state, t)
    enough = (
        len(federation.sample(world, state, t)) if world.settings.over_selection else len(cohort)
    )
    unheard = [
        gone
        for gone in (_absent(world, cohort, t), availability.late_clients(world, cohort, t, enough))
        if gone is not None
    ]
    return cohort, np.logical_or.reduce(unheard) if unheard else None


def n_rounds(federation: Federation, world: World) -> int:
    """All of a training; of an algorithm that counts in epochs, those of all epochs."""
    steps: int = getattr(world.settings, "rounds", 0) or getattr(world.settings, "epochs", 1)
    return steps * federation.rounds_per_step(world)


def _absent(world: World, cohort: Ints, t: int) -> Bools | None:
    """Who of the cohort drops out this round: everybody tosses a coin of its own."""
    rate = world.settings.client_dropout
    if not rate:
        return None
    coins = streams.words(streams.keys(world.seed, "drop-out", t, last=cohort), 0) >> np.uint64(11)
    gone: Bools = coins < np.uint64(rate * 2.0**53)
    return gone


def _why_nothing(costs: Costs) -> str:
    if not costs.refused:
        return "nobody of the cohort answered"
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(costs.refused.items()))
    return f"every update was refused ({reasons})"


def _refuse_cohort(world: World, cohort: Ints) -> None:
    if len(cohort) > MOST_USERS:
        raise ConfigError(
            f"a round of {len(cohort):,} users could overflow integer sums; expected at most {MOST_USERS:,}. Lower participation."
        )
    if world.settings.secure_aggregation == "ring" and len(cohort) < MIN_CLIENTS:
        raise ConfigError(
            f"secure_aggregation is 'ring', and a round of {len(cohort)} {'user' if len(cohort) == 1 else 'users'} cannot hide any of them; "
            f"expected at least {MIN_CLIENTS}. Raise users_per_round or participation, or set secure_aggregation=none."
        )
