"""Shortcuts of an algorithm (`FastPaths`) that an engine can take instead of sending messages."""

from __future__ import annotations

from coterie.federated import aggregation
from coterie.federated.aggregation import Aggregate, Limits
from coterie.federated.costs import Costs
from coterie.federated.engine import Engine
from coterie.federated.federation import (
    AlgorithmSettings,
    Exchange,
    Federation,
    State,
    World,
)
from coterie.federated.robust.defence import is_defended
from coterie.types import Ints, Message


def whole_round(
    federation: Federation[State, AlgorithmSettings],
    world: World[AlgorithmSettings],
    state: State,
    cohort: Ints,
    t: int,
    engine: Engine,
) -> tuple[State, Costs] | None:
    """All exchanges in one call; None where the algorithm or the engine cannot, or where updates
    are protected."""
    exchange = federation.exchanges[0]
    if engine.only_node is None or not isinstance(exchange, Exchange):
        return None
    if not world.settings.is_unprotected:
        return None
    return exchange.fast.whole_round(world, engine.only_node, state, cohort, t)


def aggregate(
    world: World[AlgorithmSettings],
    exchange: Exchange[State, AlgorithmSettings],
    message: Message,
    engine: Engine,
    limits: Limits,
) -> Aggregate:
    """Use the fastest path the engine offers; results are bit-identical."""
    summed_early = len(message.users) > 0 and not is_defended(world)
    if summed_early and exchange.fast.combine is not None:
        on_nodes = engine.aggregate(exchange, message, limits)
        if on_nodes is not None:
            return on_nodes
    if summed_early and engine.only_node is not None:
        single = exchange.fast.single_pass(world, message, engine.only_node)
        if single is not None:
            return aggregation.from_single_pass(single, limits.sizes)
    return aggregation.aggregate(world, exchange, message, engine.call, limits)
