"""Aggregation in chunks: each has at most the allowed number of clients; results are the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from small_federation import ON_KERNELS, SENT_ONCE, histories, sha256, world_for

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

NOT_IN_PARTS = {"gpfedrec", "sfpl", "sfpl+", "pfpl", "pfpl+", *SENT_ONCE}
"""FPL sums only over the items that were sent: sums of chunks have different shapes. FedEASE
and FedSLIM select nobody twice, so that later rounds have no clients. GPFedRec compares clients."""


class Counting(Engine):
    """An engine that records how many clients each call has."""

    def __init__(self, engine: LocalEngine) -> None:
        self.engine = engine
        self.chunks: list[int] = []

    def gather(self, make: Callable[[World, NodeData], PrivateState]) -> PrivateState:
        return self.engine.gather(make)

    def call(self, exchange: Exchange, message: Message) -> list[Reply]:
        self.chunks.append(len(message.users))
        return self.engine.call(exchange, message)


def play(
    name: str, chunk_size: int, nodes: int, **changes: Any
) -> tuple[list[str], list[Any], list[int]]:
    """Digests of states, the costs of rounds, and the sizes of chunks."""
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
    engine.chunks.clear()  # the exchange before the first round is not of interest
    states = [sha256(state)]
    all_costs = []
    for n in range(1, 5):
        state, costs = work.step(state, n)
        states.append(sha256(state))
        all_costs.append(
            (costs.users.tolist(), costs.accepted, costs.dropped, costs.bytes_up, costs.bytes_down)
        )
    return states, all_costs, engine.chunks


@pytest.mark.parametrize("name", [name for name in ON_KERNELS if name not in NOT_IN_PARTS])
@pytest.mark.parametrize("client_dropout", [0.0, 0.4])
def test_chunks_do_not_change_bits_or_costs(name, client_dropout):
    states, costs, whole = play(name, 1000, 1, client_dropout=client_dropout)
    assert len(set(states)) == 5
    for chunk_size, nodes in ((4, 1), (7, 3)):
        *same, chunks = play(name, chunk_size, nodes, client_dropout=client_dropout)
        assert same == [states, costs]
        assert max(chunks) == chunk_size
        assert sum(chunks) == sum(whole)
        assert len(chunks) >= 2 * len(whole)


def chunk(users: list[int], total: int | None, refused: dict[str, int]) -> Aggregate:
    n = len(users)
    rows = np.zeros((n, 2), np.int32)
    accepted = Accepted(np.array(users, np.int32), np.ones(n, np.int64), rows)
    return Aggregate(
        sums={} if total is None else {"items": np.array([total])},
        accepted=accepted,
        bytes_up=10 * n,
        refused=Counter(refused),
        private_state=((accepted.users, {"rows": rows}),) if users else (),
    )


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (1, 2, 0)])
def test_a_chunk_without_accepted_clients_adds_nothing(order):
    chunks = [
        chunk([1, 2], 5, {"malformed": 1}),
        chunk([], None, {"malformed": 2}),
        chunk([7], -3, {"not finite": 1}),
    ]
    first, second, third = (chunks[k] for k in order)
    both = first.joined(second).joined(third)
    assert both.sums["items"].tolist() == [2]
    assert sorted(both.accepted.users.tolist()) == [1, 2, 7]
    assert (both.bytes_up, both.refused) == (30, Counter({"malformed": 3, "not finite": 1}))
    assert sum(len(users) for users, _ in both.private_state) == 3


@pytest.mark.parametrize("sizes", [Sizes(9, 4, 0, 0), Sizes(9, 3, 5, 2)])
def test_bytes_of_updates_that_were_never_written(sizes):
    """As many as of the same updates in full."""
    n_rows = np.array([3, 1, 8])
    users = np.array([2, 5, 6], np.int32)
    updates = Updates(
        users,
        np.ones(3, np.int64),
        np.array([0, 3, 4, 12]),
        np.zeros(12, np.int32),
        np.ones((12, sizes.item_width), np.int32),
        np.zeros((3, sizes.user_width), np.int32),
        np.zeros((3, sizes.dense), np.int32),
    )
    assert aggregation.update_bytes(n_rows, sizes) == reply_sizes(updates).sum()
