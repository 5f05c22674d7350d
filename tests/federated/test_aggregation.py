"""A cohort that is heard in parts: every part is asked for as many users as may be held, and nothing else is different."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from small_federation import ON_KERNELS, histories, sha256, world_for

from coterie.algorithms import registry
from coterie.core.progress import SILENT
from coterie.engines.local import LocalEngine
from coterie.federated import aggregation, trainer
from coterie.federated.aggregation import Aggregate
from coterie.federated.engine import Engine
from coterie.federated.federation import (
    Accepted,
    Exchange,
    Federation,
    NodeData,
    PrivateState,
    World,
)
from coterie.federated.trainer import Context
from coterie.federated.validation import Reply
from coterie.federated.wire import reply_sizes
from coterie.types import Message, Sizes, Updates

NOT_IN_PARTS = {"sfpl", "sfpl+", "pfpl", "pfpl+"}
"""Whose sums are of the items that somebody sent alone, and cannot be added."""


class Counting(Engine):
    """An engine that notes how many users it is asked for at a time."""

    def __init__(self, engine: LocalEngine) -> None:
        self.engine = engine
        self.asked: list[int] = []

    def gather(self, make: Callable[[World, NodeData], PrivateState]) -> PrivateState:
        return self.engine.gather(make)

    def call(self, exchange: Exchange, message: Message) -> list[Reply]:
        self.asked.append(len(message.users))
        return self.engine.call(exchange, message)


def play(
    name: str, chunk_size: int, nodes: int, **changes: Any
) -> tuple[list[str], list[Any], list[int]]:
    """Digests of states, what rounds cost, and how many were asked at a time."""
    training = histories(3, n_users=30)
    world = world_for(name, training, participation=0.7, **changes)
    federation = registry.algorithm(name).train
    assert isinstance(federation, Federation)
    exchanges = tuple(
        replace(e, fast=replace(e.fast, chunk_size=lambda world, state: chunk_size))
        if isinstance(e, Exchange)
        else e
        for e in federation.exchanges
    )
    engine = Counting(LocalEngine.over(world, training, nodes))
    work = trainer.federated_trainer(
        replace(federation, exchanges=exchanges), world, engine, Context(0, SILENT)
    )
    state, _ = work.start()
    engine.asked.visible()  # an exchange before the first round is one of its own
    states = [sha256(state)]
    tallies = []
    for n in range(1, 5):
        state, costs = work.step(state, n)
        states.append(sha256(state))
        tallies.append(
            (costs.users.tolist(), costs.accepted, costs.dropped, costs.bytes_up, costs.bytes_down)
        )
    return states, tallies, engine.asked


@pytest.mark.parametrize("name", [name for name in ON_KERNELS if name not in NOT_IN_PARTS])
@pytest.mark.parametrize("client_dropout", [0.0, 0.4])
def test_parts_give_the_bits_and_the_costs_of_the_whole(name, client_dropout):
    states, costs, asked = play(name, 1000, 1, client_dropout=client_dropout)
    assert len(set(states)) == 5
    for at_once, nodes in ((4, 1), (7, 3)):
        parts = play(name, at_once, nodes, client_dropout=client_dropout)
        assert parts[:2] == (states, costs)
        assert max(parts[2]) == at_once
        assert sum(parts[2]) == sum(asked)
        assert len(parts[2]) >= 2 * len(asked)


def heard(users: list[int], total: int | None, refused: dict[str, int]) -> Aggregate:
    n = len(users)
    rows = np.zeros((n, 2), np.int32)
    delegates = Accepted(np.array(users, np.int32), np.ones(n, np.int64), rows)
    private_state = ((delegates.users, {"rows": rows}),) if users else ()
    return Aggregate(
        {} if total is None else {"items": np.array([total])},
        delegates,
        10 * n,
        Counter(refused),
        private_state,
    )


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (1, 2, 0)])
def test_parts_in_which_nobody_was_accepted_add_nothing(order):
    parts = [
        heard([1, 2], 5, {"malformed": 1}),
        heard([], None, {"malformed": 2}),
        heard([7], -3, {"not finite": 1}),
    ]
    first, second, third = (parts[k] for k in order)
    both = first.joined(second).joined(third)
    assert both.sums["items"].tolist() == [2]
    assert sorted(both.accepted.users.tolist()) == [1, 2, 7]
    assert (both.bytes_up, both.refused) == (30, Counter({"malformed": 3, "not finite": 1}))
    assert sum(len(users) for users, _ in both.private_state) == 3


@pytest.mark.parametrize("sizes", [Sizes(9, 4, 0, 0), Sizes(9, 3, 5, 2)])
def test_bytes_of_rows_that_never_were(sizes):
    """As many as of the same updates in full."""
    n_rows = np.array([3, 1, 8])
    users = np.array([2, 5, 6], np.int32)
    there = Updates(
        users,
        np.ones(3, np.int64),
        np.array([0, 3, 4, 12]),
        np.zeros(12, np.int32),
        np.ones((12, sizes.item_width), np.int32),
        np.zeros((3, sizes.user_width), np.int32),
        np.zeros((3, sizes.dense), np.int32),
    )
    assert aggregation.bytes_of(users, n_rows, sizes) == reply_sizes(there).sum()
