"""Training as steps over a state that can be saved; and how a federation becomes a trainer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np

from coterie.core.progress import Progress
from coterie.data.training_set import TrainingSet
from coterie.errors import BudgetSpent
from coterie.federated import aggregation, availability, contract, rounds
from coterie.federated.costs import Costs
from coterie.federated.engine import Engine
from coterie.federated.federation import (
    AlgorithmSettings,
    AnyFederation,
    Exchange,
    Federation,
    NodeData,
    PrivateState,
    State,
    World,
    exchanges_with_clients,
)
from coterie.federated.privacy import statement
from coterie.federated.privacy.budget import BudgetStop, budget_stop
from coterie.federated.secagg import exposure
from coterie.models.recommender import Recommender
from coterie.types import Sizes

SETUP = 255
"""The number of the exchange before the first round."""

StepState = TypeVar("StepState")


@dataclass(frozen=True, slots=True)
class Context:
    """What a training run is given in addition to its data and settings."""

    seed: int
    progress: Progress


@dataclass(frozen=True, slots=True)
class Trainer(Generic[StepState]):
    """Training as functions over a state that can be saved after any step."""

    start: Callable[[], tuple[StepState, Costs]]
    step: Callable[[StepState, int], tuple[StepState, Costs]]
    """(state, n) -> the state after step n = 1, 2, ..."""
    model: Callable[[StepState], Recommender]
    finish: Callable[[StepState], None] = lambda state: None
    """state after the last step -> nothing: computes what `model` then remembers."""
    stop: BudgetStop | None = None
    """Where training ends because of its privacy budget; None if it does not."""
    update_sizes: Callable[[StepState], tuple[Sizes, ...]] = lambda state: ()
    """state -> the sizes of a client's update in every exchange, the setup's first."""

    def n_steps(self, planned: int) -> int:
        """How many of the planned steps are played."""
        return planned if self.stop is None else min(planned, self.stop.step)


def federated_trainer(
    federation: Federation[State, AlgorithmSettings],
    world: World[AlgorithmSettings],
    engine: Engine,
    context: Context,
    by_round: bool = False,
) -> Trainer[State]:
    """A federation on an engine. Step n is round t = n - 1 of the paper, or an epoch of rounds.

    `by_round`: a step is one round, whatever the algorithm counts in.
    """
    exposure.check_and_report(federation, world, context.progress)
    statement.check_and_report(federation, world, context.progress)
    total = n_rounds(federation, world)
    rounds_per_step = 1 if by_round else federation.rounds_per_step(world)
    stop = budget_stop(federation, world, total, rounds_per_step)
    refused_before = False  # many refused rounds in a row are logged once

    def start() -> tuple[State, Costs]:
        # The server first: it refuses runs whose private state would not fit into memory.
        state = federation.init(world)
        private = engine.gather(federation.init_clients)
        if not engine.stores_private_state:
            contract.check_initial_private_state(state, private)
        state = replace(state, **private)
        setup = federation.setup(world)
        if setup is None:
            return state, Costs()
        all_users = np.flatnonzero(world.members).astype(np.int32)
        state, costs = rounds.play_exchange(world, setup, state, all_users, 0, engine, SETUP)
        if not costs.accepted:
            context.progress.warn(f"before the first round: {_why_nothing(costs)}")
        return state, costs

    def step(state: State, n: int) -> tuple[State, Costs]:
        nonlocal refused_before
        if stop is not None and n > stop.step:
            raise BudgetSpent(stop.text)
        ts = range((n - 1) * rounds_per_step, n * rounds_per_step)
        state, costs = _play_rounds(federation, world, state, ts, total, engine)
        if not costs.accepted and not refused_before:
            context.progress.warn(f"round {n}: {_why_nothing(costs)}; the model stays as it was")
        refused_before = not costs.accepted
        return state, costs

    def model(state: State) -> Recommender:
        made = federation.model(world, state)
        client_model = federation.client_model
        if client_model is None:
            return made

        def on_node(node_world: World[AlgorithmSettings], node: NodeData) -> PrivateState:
            return client_model(node_world, state, node)

        return replace(made, **engine.gather(on_node))

    def finish(state: State) -> None:
        solve = federation.final_solve(world)
        if solve:
            context.progress.log(solve)
            federation.model(world, state)

    def update_sizes(state: State) -> tuple[Sizes, ...]:
        exchanges = exchanges_with_clients(federation, world)
        return tuple(exchange.sizes(world, state) for exchange in exchanges)

    return Trainer(start, step, model, finish, stop, update_sizes)


def _play_rounds(
    federation: Federation[State, AlgorithmSettings],
    world: World[AlgorithmSettings],
    state: State,
    ts: range,
    total: int,
    engine: Engine,
) -> tuple[State, Costs]:
    """The rounds of a step; in one kernel call where the algorithm and the engine can."""
    plain = world.settings.is_unprotected and availability.always_available(world)
    exchange = federation.exchanges[0]
    if engine.only_node is not None and plain and isinstance(exchange, Exchange):
        at_once = exchange.fast.sequential_rounds(world, engine.only_node, state, ts)
        if at_once is not None:
            before = state.without_private()
            return at_once.state, aggregation.sequential_costs(world, exchange, before, at_once)
    costs = None
    for t in ts:
        now = availability.with_available(world, t, total)
        state, more = rounds.play_round(federation, now, state, t, engine)
        costs = more if costs is None else costs.and_round(more)
    return state, costs or Costs()


def n_rounds(federation: AnyFederation, world: World[AlgorithmSettings]) -> int:
    """Rounds of the whole training, those of all epochs where the algorithm counts in epochs."""
    return world.settings.n_steps * federation.rounds_per_step(world)


def world_of(
    training: TrainingSet,
    settings: AlgorithmSettings,
    seed: int,
    federation: AnyFederation | None = None,
) -> World[AlgorithmSettings]:
    """What is known before training starts; without a federation, only what is common to all."""
    contents = None if federation is None else federation.content(training, settings)
    return World(
        settings.for_data(training.size),
        seed,
        training.n_users,
        training.n_items,
        members=training.positives.counts > 0,
        user_features=training.user_features,
        n_positives=len(training.positives.items),
        rated=training.ratings is not None,
        content=contents[0] if contents else None,
        client_content=contents[1] if contents else None,
        presence=training.presence,
    )


def _why_nothing(costs: Costs) -> str:
    if not costs.refused:
        return "no client of the cohort replied"
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(costs.refused.items()))
    return f"every update was refused ({reasons})"
