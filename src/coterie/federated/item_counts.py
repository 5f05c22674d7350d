"""How many users have each item, added up over the clients in one round.

Clients that hold items back (disclosure rates, private items) count only what they disclose. The
counts are meant for secure aggregation, where the server sees those of whole groups. In the clear
it would see the items that each client counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie.core import streams
from coterie.core.records import Record
from coterie.federated.disclosure import Disclosing, hidden, rates
from coterie.federated.federation import (
    Accepted,
    AnyWorld,
    Exchange,
    Federation,
    NodeData,
    SecureSum,
    Sums,
)
from coterie.federated.settings import FederationSettings
from coterie.models.popular import ItemCounts
from coterie.types import Ints, Longs, Message, Rows, Sizes, Updates


@dataclass(frozen=True, slots=True)
class CountState(Record):
    counts: Longs  # (items,)


def init(world: AnyWorld) -> CountState:
    return CountState(np.zeros(world.n_items, np.int64))


def server_receives(world: AnyWorld) -> str:
    """What a server sees of counting: it is under secure aggregation, whatever the run is."""
    most = world.settings.protected().largest_group
    return f"counts of items as sums over at most {most} clients, once"


def everybody(world: AnyWorld, state: CountState, t: int) -> Ints:
    return np.flatnonzero(world.present).astype(np.int32)


def broadcast(world: AnyWorld, state: CountState, cohort: Ints, t: int) -> Message:
    return Message(t, cohort, {}, {})


def counted_items(world: AnyWorld, users: Ints, node: NodeData) -> Rows:
    """The items of each user that it counts: its history, less what it does not disclose."""
    positions = node.positions(users)
    history = node.training.positives.of_users(positions)
    if not isinstance(world.settings, Disclosing):
        return history
    rows, items = history.take(np.arange(len(users), dtype=np.int32))
    rate = rates(world.settings, node, users, np.ones(len(users), np.int64))
    pairs = users[rows].astype(np.int64) << 32 | items
    words = streams.words(streams.keys(node.seed, "counted items", last=pairs), 0)
    drawn = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
    kept = drawn < rate[rows]
    private = hidden(node)
    if len(private):
        kept &= ~private[node.training.positives.places(positions)]
    return Rows.build(rows[kept].astype(np.int32), items[kept], len(users))


def count(world: AnyWorld, message: Message, node: NodeData) -> Updates:
    """A row of width zero for every item that a client counts."""
    counted = counted_items(world, message.users, node)
    n = len(message.users)
    none = np.empty((n, 0), np.int32)
    return Updates(
        users=message.users,
        samples=np.ones(n, np.int64),
        offsets=counted.offsets,
        items=counted.items,
        item_rows=np.empty((len(counted.items), 0), np.int32),
        user_rows=none,
        dense=none,
    )


def add_up(world: AnyWorld, message: Message, updates: Updates) -> Sums:
    return {"counts": np.bincount(updates.items, minlength=world.n_items).astype(np.int64)}


def collect(
    world: AnyWorld, state: CountState, sums: Sums, accepted: Accepted, t: int
) -> CountState:
    return CountState(state.counts + sums["counts"])


ITEM_COUNTS: Federation[CountState, FederationSettings] = Federation(
    init=init,
    sample=everybody,
    exchanges=(
        Exchange(
            broadcast=broadcast,
            client_update=count,
            aggregate=add_up,
            server_update=collect,
            sizes=lambda world, state: Sizes(world.n_items, 0, 0, 0),
            secure_sum=SecureSum(
                by_item=("counts",), word=lambda world: 32, max_entry=lambda world: 1
            ),
        ),
    ),
    model=lambda world, state: ItemCounts(state.counts.astype(np.float32)),
)
"""One round in which every available client replies."""
