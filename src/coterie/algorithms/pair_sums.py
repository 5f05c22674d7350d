"""The rounds of FedEASE and FedSLIM: every client sends its pairs of items once, to be added up.

    each client sends once              h h^T / n^(2 p), to be added up

h is a client's history of n items as zeros and ones, and p the length_exponent of the settings.
FedSLIM's is 0: its sum is G = X^T X.

One round is enough where all clients reply in it. Later rounds select the clients that have not
been added yet: those who were away, or who were not selected.

What a client sends. Under secure aggregation: h h^T / n^(2 p) on and above the diagonal,
items * (items + 1) / 2 words of 32 bits where their sum fits, else of 64, which the server sees
only added up. Sums over few clients still reveal histories: see docs/privacy.md. In the clear: the
ids of its items, which is its whole history.

A client that never replies is missing from the sum; it can still be served.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from pydantic import Field

from coterie.algorithms import clustering, fedavg, private_pairs
from coterie.algorithms.local.cooccurrence import (
    FixedPoint,
    fixed_point,
    n_pairs,
    sum_pairs,
    weights,
)
from coterie.algorithms.local.settings import CohortSettings
from coterie.algorithms.private_pairs import Scales
from coterie.core.records import Record
from coterie.errors import ConfigError
from coterie.federated.federation import (
    Accepted,
    AnyWorld,
    Exchange,
    FastPaths,
    NodeData,
    PrivateState,
    PrivateSum,
    SecureSum,
    SinglePass,
    Sums,
    World,
)
from coterie.federated.privacy.plan import plan_for, with_noise
from coterie.federated.secagg.ring import MIN_CLIENTS
from coterie.models.history_bits import packed
from coterie.types import Bools, Ints, Longs, Message, Rows, Sizes, Updates


class PairSumSettings(CohortSettings):
    trial_steps: ClassVar[int | None] = 1

    rounds: int = Field(1, ge=1)
    """Rounds of communication. A client sends in one of them."""
    participation: float = Field(1.0, gt=0, le=1)
    """Share of the users that is selected in a round, among those who have not sent yet."""
    max_memory: float = Field(8.0, gt=0)
    """GiB that the item-by-item matrices may take."""
    max_upload: float = Field(500.0, gt=0)
    """MB that a client may have to send under secure aggregation."""


@dataclass(frozen=True, slots=True)
class PairSums(Record):
    """The state of the server."""

    of_users: ClassVar[tuple[str, ...]] = ("added",)
    pairs: Longs  # sum h h^T / n^(2 p), on and above the diagonal
    added: Bools  # (users,) whether the client is in the sum
    items: Longs  # (items,) sum h / sqrt n under a privacy budget; else empty
    noise: Longs  # (1,) how many draws of noise are in the sums


def no_sums(world: World[PairSumSettings]) -> PairSums:
    return PairSums(
        pairs=np.zeros(n_pairs(world.n_items), np.int64),
        added=np.zeros(world.n_users, bool),
        items=np.zeros(world.n_items if world.settings.epsilon else 0, np.int64),
        noise=np.zeros(1, np.int64),
    )


def check_sizes(world: World[PairSumSettings], name: str, needed: float) -> None:
    """Refuse a catalogue that is too large before any client computes something.

    `name` is the algorithm in the message; `needed` are GiB on the server.
    """
    s = world.settings
    if needed > s.max_memory:
        raise ConfigError(
            f"{name} needs about {needed:.1f} GiB on the server for {world.n_items:,} items; "
            f"max_memory allows {s.max_memory:g}. Use fedals, raise it with "
            "--set max_memory=GIB, or filter items with --set core=5."
        )
    upload = n_pairs(world.n_items) * precision(world).word / 8 / 1e6
    if s.secure_aggregation != "none" and upload > s.max_upload:
        raise ConfigError(
            f"{name} has every client send {upload:,.0f} MB under secure aggregation for "
            f"{world.n_items:,} items; max_upload allows {s.max_upload:g}. Use fedals, raise it "
            "with --set max_upload=MB, or filter items with --set core=5."
        )


def precision(world: AnyWorld) -> FixedPoint:
    return fixed_point(world.n_users, world.n_items, world.settings.length_exponent)


FIXED_USERS = "the precision of its sums depends on the number of users"

# Each client sends once


def sample(world: World[PairSumSettings], state: PairSums, t: int) -> Ints:
    """Clients that have not been added."""
    missing = world.present & ~state.added
    n_missing = int(np.count_nonzero(missing))
    # The last few clients would be seen alone: they stay out of the sum.
    if n_missing < world.settings.fewest_clients:
        return np.empty(0, np.int32)
    size = fedavg.cohort_size(world)
    if n_missing - size < max(MIN_CLIENTS, world.settings.fewest_clients):
        size = n_missing
    return clustering.draw_users(missing, size, world.seed, t)


def broadcast(world: World[PairSumSettings], state: PairSums, cohort: Ints, t: int) -> Message:
    return Message(t, cohort, {}, {})


def client_update(world: World[PairSumSettings], message: Message, node: NodeData) -> Updates:
    history = node.training.positives.of_users(node.positions(message.users))
    n = len(message.users)
    none = np.empty((n, 0), np.int32)
    return Updates(
        users=message.users,
        samples=np.ones(n, np.int64),
        offsets=history.offsets,
        items=history.items,
        item_rows=np.empty((len(history.items), 0), np.int32),
        user_rows=none,
        dense=none,
    )


def sizes(world: World[PairSumSettings], state: PairSums) -> Sizes:
    return Sizes(world.n_items, 0, 0, 0)


def add_up(world: World[PairSumSettings], message: Message, updates: Updates) -> Sums:
    """sum h h^T / n^(2 p)"""
    return sums_of(world, Rows(updates.offsets, updates.items))


def sums_of(world: AnyWorld, histories: Rows) -> Sums:
    exponent = world.settings.length_exponent
    private = private_scales(world)
    if private is not None:
        return private_pairs.private_sums(histories, world.n_items, exponent, private)
    weight = weights(histories.counts, exponent, precision(world).scale)
    return {"pairs": sum_pairs(histories, world.n_items, weight)}


def private_scales(world: AnyWorld) -> Scales | None:
    """The integers that stand for one under a privacy budget; None where there is none."""
    plan = plan_for(world, PRIVATE_SUM)
    return None if plan is None else private_pairs.scales(plan, world.n_users, world.n_items)


def collect(
    world: World[PairSumSettings], state: PairSums, sums: Sums, accepted: Accepted, t: int
) -> PairSums:
    added = state.added.copy()
    added[accepted.users] = True
    draws = 0
    if world.settings.epsilon is not None:
        draws = 1 if world.settings.noise == "central" else len(accepted.users)
    return PairSums(
        pairs=state.pairs + sums["pairs"],
        added=added,
        items=state.items + sums.get("items", 0),
        noise=state.noise + draws,
    )


# The exchange in a single pass


def single_pass(world: World[PairSumSettings], message: Message, node: NodeData) -> SinglePass:
    """The same sums; a history of the node is valid as it is."""
    history = node.training.positives.of_users(node.positions(message.users))
    n = len(message.users)
    return SinglePass(
        sums=sums_of(world, history),
        accepted=Accepted(message.users, np.ones(n, np.int64), np.empty((n, 0), np.int32)),
        n_rows=history.counts,
        private_state={},
    )


def own_histories(world: World[PairSumSettings], state: PairSums, node: NodeData) -> PrivateState:
    return {"history_bits": packed(node.training.positives, world.n_items)}


PRIVATE_SUM = PrivateSum(releases=lambda world: 1, cohort_size=fedavg.cohort_size)
"""A client sends once, so that its data enters one sum however many rounds there are."""

EXCHANGE = Exchange(
    broadcast=broadcast,
    client_update=client_update,
    aggregate=add_up,
    server_update=collect,
    sizes=sizes,
    fast=FastPaths(single_pass=single_pass),
    secure_sum=with_noise(
        SecureSum(
            word=lambda world: 32 if precision(world).word == 32 else 64,
            max_entry=lambda world: precision(world).scale,
            reveals="an item of one client in a group gives away that client's history",
        ),
        PRIVATE_SUM,
    ),
    private_sum=PRIVATE_SUM,
)
