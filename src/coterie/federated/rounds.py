"""One round: select a cohort, then for every exchange broadcast, train, aggregate and update.

    1  the server selects the cohort                                       selection.select
    2  every server with something to send adds it to the message          broadcast
    3  clients train on their own data and reply                           engine.call
    4  replies are validated and summed, openly or by secure aggregation   aggregation, secagg
    5  the server computes its next state from the sums                    exchange.server_update
    6  the private state of accepted clients becomes the new one          simulated_private_state

The server's functions never see private state. A client whose update is not accepted is as it was
before the round.
"""

from __future__ import annotations

from dataclasses import replace

from coterie.federated import availability, fast_paths, selection, simulated_private_state
from coterie.federated.aggregation import Limits
from coterie.federated.contract import check_next_state
from coterie.federated.costs import Costs
from coterie.federated.engine import Engine
from coterie.federated.federation import (
    AlgorithmSettings,
    Exchange,
    Federation,
    Relay,
    State,
    World,
)
from coterie.federated.privacy import noise
from coterie.federated.secagg import server as secagg
from coterie.types import Bools, Ints, Message

CLIENTS = "clients"
"""Sender and receiver of what clients send and receive, in transcripts."""


def play_round(
    federation: Federation[State, AlgorithmSettings],
    world: World[AlgorithmSettings],
    state: State,
    t: int,
    engine: Engine,
) -> tuple[State, Costs]:
    """All exchanges of round t with one cohort."""
    cohort, dropped = selection.select(federation, world, state.without_private(), t)
    if not len(cohort):
        return state, Costs()
    selection.check_size(world, cohort)
    if dropped is None:
        at_once = fast_paths.whole_round(federation, world, state, cohort, t, engine)
        if at_once is not None:
            return at_once
    costs = Costs(cohort)
    world = availability.with_over_selection(world)
    for number, exchange in enumerate(federation.exchanges):
        if isinstance(exchange, Relay):
            state = relay(world, exchange, state, t, engine)
            continue
        state, more = play_exchange(world, exchange, state, cohort, t, engine, number, dropped)
        costs = costs.and_exchange(more)
    return state, costs


def play_exchange(
    world: World[AlgorithmSettings],
    exchange: Exchange[State, AlgorithmSettings],
    state: State,
    cohort: Ints,
    t: int,
    engine: Engine,
    number: int = 0,
    dropped: Bools | None = None,
) -> tuple[State, Costs]:
    """One exchange with a cohort. The state stays as it was if no update is accepted."""
    rows = {} if engine.stores_private_state else simulated_private_state.rows_of(state, cohort)
    message = broadcast(world, exchange, state, cohort, t, engine)
    message = replace(message, exchange=number, private_state=rows)
    server_state = state.as_seen_by(exchange.role)
    world = world.seen_by(exchange.role)
    if world.settings.secure_aggregation != "none" and exchange.secure_sum is not None:
        result = secagg.aggregate_securely(
            world, exchange, server_state, message, engine.call, dropped
        )
    else:
        replying = message if dropped is None or not dropped.any() else message.to(~dropped)
        limits = Limits.of(world, exchange, server_state)
        result = fast_paths.aggregate(world, exchange, replying, engine, limits)
        result = replace(result, sums=noise.release(world, exchange, message, result.sums))
    engine.commit(t, number, result.accepted.users)
    costs = result.costs(cohort, message)
    if not costs.accepted:
        return state, costs
    after = exchange.server_update(world, server_state, result.sums, result.accepted, t)
    after = state.with_part_of(exchange.role, check_next_state(server_state, after))
    if not engine.stores_private_state:
        after = simulated_private_state.renewed(after, state, result.private_state)
    return after, costs


def broadcast(
    world: World[AlgorithmSettings],
    exchange: Exchange[State, AlgorithmSettings],
    state: State,
    cohort: Ints,
    t: int,
    engine: Engine,
) -> Message:
    """The message to the cohort, from every server with something to send."""
    message = None
    for role, part_of in ((exchange.role, exchange.broadcast), *exchange.other_broadcasts):
        part = part_of(world.seen_by(role), state.as_seen_by(role), cohort, t)
        engine.record(t, role, CLIENTS, part.common | part.own)
        message = part if message is None else message.and_from(part)
    assert message is not None
    return message


def relay(
    world: World[AlgorithmSettings],
    step: Relay[State, AlgorithmSettings],
    state: State,
    t: int,
    engine: Engine,
) -> State:
    """One server sends arrays to another. Each sees its own part of the state."""
    after, arrays = step.send(world.seen_by(step.sender), state.as_seen_by(step.sender), t)
    engine.record(t, step.sender, step.receiver, arrays)
    state = state.with_part_of(step.sender, after)
    after = step.receive(world.seen_by(step.receiver), state.as_seen_by(step.receiver), arrays, t)
    return state.with_part_of(step.receiver, after)
