"""Put an attack into a federation: the colluders' clients send what the attack returns.

Only `client_update` changes. Validation, aggregation and the server's formula are the run's own,
and so are the updates of all other clients. Paths that train without `client_update` are left out;
that changes no bit.

Colluders of one node share what they see. In the simulator one node hosts all users.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from coterie.attacks.poisoning.colluders import Colluders
from coterie.attacks.poisoning.contract import AttackView, Memory, PoisoningAttack
from coterie.attacks.poisoning.surface import surface_of
from coterie.core import streams
from coterie.data.training_set import TrainingSet
from coterie.errors import ConfigError
from coterie.federated.federation import (
    AlgorithmSettings,
    AnyExchange,
    AnyFederation,
    AnyWorld,
    ClientResult,
    Exchange,
    FastPaths,
    Federation,
    NodeData,
    PrivateState,
    State,
    World,
)
from coterie.federated.trainer import SETUP
from coterie.types import Bools, Ints, Message, Rows, Updates


class MemorySlot:
    """Where colluders store their memory between the rounds of a run."""

    def __init__(self) -> None:
        self.memory: Memory = {}
        self.round = -1

    def clear(self) -> None:
        self.memory = {}
        self.round = -1


def poisoned(
    federation: Federation[State, AlgorithmSettings], attack: PoisoningAttack, colluders: Colluders
) -> Federation[State, AlgorithmSettings]:
    """The federation in which the colluders attack. It serves one run after the other."""
    slot = MemorySlot()

    def init(world: World[AlgorithmSettings]) -> State:
        refuse(federation, attack, world)
        slot.clear()
        return federation.init(world)

    def setup(world: World[AlgorithmSettings]) -> Exchange[State, AlgorithmSettings] | None:
        exchange = federation.setup(world)
        if exchange is None:
            return None
        return poisoned_exchange(exchange, attack, colluders, slot)

    exchanges = tuple(
        poisoned_exchange(each, attack, colluders, slot) if isinstance(each, Exchange) else each
        for each in federation.exchanges
    )
    return replace(federation, init=init, setup=setup, exchanges=exchanges)


def refuse(federation: AnyFederation, attack: PoisoningAttack, world: AnyWorld) -> None:
    """Raise if the attack makes no sense for the algorithm."""
    reason = attack.kind.refusal(surface_of(federation, world))
    if reason:
        raise ConfigError(
            f"attack {attack.name!r} does not apply to this algorithm: {reason}. "
            "Choose another attack; docs/poisoning.md lists them."
        )


def poisoned_exchange(
    exchange: Exchange[State, AlgorithmSettings],
    attack: PoisoningAttack,
    colluders: Colluders,
    slot: MemorySlot,
) -> Exchange[State, AlgorithmSettings]:
    """The exchange in which colluders send what the attack returns."""

    def client_update(
        world: World[AlgorithmSettings], message: Message, node: NodeData
    ) -> ClientResult:
        result = exchange.client_update(world, message, node)
        updates, private_state = _both(result)
        attacking = attacking_users(attack, colluders, message)
        sending = np.isin(updates.users, attacking.users)
        away = np.isin(updates.users, attacking.away)
        if not sending.any() and not away.any():
            return result
        _remember(slot, attack, message)
        parts = honest_parts(updates, sending | away)
        if sending.any():
            honest = updates.take(np.flatnonzero(sending))
            view = _view(exchange, world, message, node, honest, colluders, slot.memory)
            sent = _sent(attack, view)
            parts += [sent.between(k, k + 1) for k in range(len(sent))]
        # In order, so that a cohort's updates, which may be large, are copied once.
        in_order = sorted(parts, key=lambda part: int(part.users[0]))
        joined = Updates.joined(in_order) if in_order else updates.between(0, 0)
        return joined if isinstance(result, Updates) else (joined, private_state)

    fast: FastPaths[State, AlgorithmSettings] = FastPaths(
        chunk_size=exchange.fast.chunk_size, combine=exchange.fast.combine
    )
    return replace(exchange, client_update=client_update, fast=fast)


def honest_parts(updates: Updates, which: Bools) -> list[Updates]:
    """The updates between those of some clients; all of them if there are no such clients."""
    ends = [-1, *np.flatnonzero(which).tolist(), len(updates)]
    parts = [updates.between(first + 1, last) for first, last in pairwise(ends)]
    return [part for part in parts if len(part)]


class Attacking(NamedTuple):
    """The colluders of a message who attack in it, and those who stay away."""

    users: Ints
    away: Ints


def attacking_users(attack: PoisoningAttack, colluders: Colluders, message: Message) -> Attacking:
    """Each colluder attacks in a share of the rounds, by a coin of its own."""
    here = message.users[np.isin(message.users, colluders.users)]
    none = np.empty(0, np.int32)
    if message.exchange == SETUP:
        return Attacking(here if attack.kind.poison_setup is not None else none, none)
    keys = streams.keys(colluders.seed, "attack rounds", message.round, last=here)
    attacks = streams.uniform(keys) < attack.settings.active
    away = here[~attacks] if attack.settings.otherwise == "away" else none
    return Attacking(here[attacks], away)


def _both(result: ClientResult) -> tuple[Updates, PrivateState]:
    return (result, {}) if isinstance(result, Updates) else result


def _remember(slot: MemorySlot, attack: PoisoningAttack, message: Message) -> None:
    """Once a round, before the attack: a cohort may be trained in chunks."""
    if message.exchange != SETUP and message.round != slot.round:
        slot.memory = attack.kind.remember(slot.memory, message)
        slot.round = message.round


def _sent(attack: PoisoningAttack, view: AttackView) -> Updates:
    is_setup = view.message.exchange == SETUP
    poison = attack.kind.poison_setup if is_setup else attack.kind.poison
    assert poison is not None  # in the setup, others are not attacking
    return poison(view, attack.settings)


def _view(
    exchange: AnyExchange,
    world: AnyWorld,
    message: Message,
    node: NodeData,
    honest: Updates,
    colluders: Colluders,
    memory: Memory,
) -> AttackView:
    which: Bools = np.isin(message.users, honest.users)
    to_colluders = message.to(which)
    positions = node.positions(to_colluders.users)
    t = message.round
    return AttackView(
        world=world,
        message=to_colluders,
        honest=honest,
        histories=node.training.positives.of_users(positions),
        colluders=colluders,
        memory=memory,
        rng=streams.at(colluders.seed, "attack", t, message.exchange, int(honest.users[0])),
        train_on=_trainer_on(exchange, world, to_colluders, node),
    )


def _trainer_on(
    exchange: AnyExchange, world: AnyWorld, message: Message, node: NodeData
) -> Callable[[Rows], Updates]:
    """Trains the colluders on other histories than their own."""

    def train_on(histories: Rows) -> Updates:
        training = node.training.of_users(node.positions(message.users).astype(np.int32))
        own = replace(node, users=message.users, training=with_histories(training, histories))
        updates, _ = _both(exchange.client_update(world, message, own))
        return updates

    return train_on


def with_histories(training: TrainingSet, histories: Rows) -> TrainingSet:
    """The training data with other histories. New items get the highest rating there is."""
    ratings = None
    if training.ratings is not None:
        ratings = np.full(len(histories.items), training.ratings.max(), np.float32)
    return replace(
        training, positives=histories, excluded=histories, ratings=ratings, preferences=None
    )
