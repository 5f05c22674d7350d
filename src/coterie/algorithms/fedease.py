"""FedEASE: EASE, computed exactly from one message of every client.

Steck. Embarrassingly shallow autoencoders for sparse data. WWW 2019. The closed form
(`local/cooccurrence.py`) needs the histories in a single sum over users:

    each client sends once              h h^T / n^(2 p), to be added up
    S inverts                           G = sum h h^T / n^(2 p)
                                        P = (G + reg diag(G)^nu)^-1
                                        B = -P / diag(P), zero on the diagonal

One round is enough where all clients reply in it. Later rounds select the clients that have not
been added yet: those who were away, or who were not selected.

What a client sends. Under secure aggregation: h h^T / n^(2 p) on and above the diagonal,
items * (items + 1) / 2 words of 32 bits where their sum fits, else of 64, which the server sees
only added up. Sums over few clients still reveal histories: see docs/privacy.md. In the clear: the
ids of its items, which is its whole history.

What a client receives. All of B, to score for itself: items^2 numbers, and nobody learns anything.
Or only the rows of the items of its history, a fraction of that, which tells the server the
history.

A client that never replies is missing from the sum; it can still be served.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pydantic import Field

from coterie.algorithms import clustering, fedavg
from coterie.algorithms.algorithm import Algorithm, score_history
from coterie.algorithms.local.cooccurrence import (
    FixedPoint,
    ItemPairs,
    fixed_point,
    gigabytes,
    item_weights,
    n_pairs,
    sum_pairs,
    weights,
)
from coterie.algorithms.local.settings import CohortSettings
from coterie.core.records import Record
from coterie.core.weak_cache import WeakCache
from coterie.errors import ConfigError
from coterie.federated.federation import (
    ON_CLIENTS,
    Accepted,
    AnyWorld,
    Exchange,
    FastPaths,
    Federation,
    NodeData,
    PrivateState,
    SecureSum,
    SinglePass,
    Sums,
    World,
)
from coterie.federated.secagg.ring import MIN_CLIENTS
from coterie.models.linear import PrivateItemWeights, packed
from coterie.types import Bools, Ints, Longs, Message, Rows, Sizes, Updates


class FedEASE(ItemPairs, CohortSettings):
    reg: float = Field(3.0, gt=0)
    """Regularisation of the item-to-item weights."""
    length_exponent: float = Field(0.5, ge=0, le=1)
    """A history of n items is divided by n to this power (p); 0 does not divide it."""
    rounds: int = Field(1, ge=1)
    """Rounds of communication. A client sends in one of them."""
    participation: float = Field(1.0, gt=0, le=1)
    """Share of the users that is selected in a round, among those who have not sent yet."""
    max_upload: float = Field(500.0, gt=0)
    """MB that a client may have to send under secure aggregation."""


@dataclass(frozen=True, slots=True)
class FedEASEState(Record):
    pairs: Longs  # sum h h^T / n^(2 p), on and above the diagonal
    added: Bools  # (users,) whether the client is in the sum


def init(world: World[FedEASE]) -> FedEASEState:
    check_sizes(world)
    return FedEASEState(np.zeros(n_pairs(world.n_items), np.int64), np.zeros(world.n_users, bool))


def check_sizes(world: World[FedEASE]) -> None:
    """Refuse a catalogue that is too large before any client computes something."""
    s = world.settings
    needed = gigabytes(world.n_items)
    if needed > s.max_memory:
        raise ConfigError(
            f"FedEASE needs about {needed:.1f} GiB on the server for {world.n_items:,} items; "
            f"max_memory allows {s.max_memory:g}. Use fedals, raise it with "
            "--set max_memory=GIB, or filter items with --set core=5."
        )
    upload = n_pairs(world.n_items) * precision(world).word / 8 / 1e6
    if s.secure_aggregation != "none" and upload > s.max_upload:
        raise ConfigError(
            f"FedEASE has every client send {upload:,.0f} MB under secure aggregation for "
            f"{world.n_items:,} items; max_upload allows {s.max_upload:g}. Use fedals, raise it "
            "with --set max_upload=MB, or filter items with --set core=5."
        )


def precision(world: AnyWorld) -> FixedPoint:
    return fixed_point(world.n_users, world.n_items, world.settings.length_exponent)


# Each client sends once


def sample(world: World[FedEASE], state: FedEASEState, t: int) -> Ints:
    """Clients that have not been added."""
    missing = np.where(world.present & ~state.added, 0, -1).astype(np.int32)
    n_missing = int((missing == 0).sum())
    # The last one or two clients would be seen alone: they stay out of the sum.
    if n_missing < (MIN_CLIENTS if world.settings.secure_aggregation == "ring" else 1):
        return np.empty(0, np.int32)
    size = fedavg.cohort_size(world)
    if n_missing - size < MIN_CLIENTS:
        size = n_missing
    return clustering.draw(missing, np.array([size]), world.seed, t)


def broadcast(world: World[FedEASE], state: FedEASEState, cohort: Ints, t: int) -> Message:
    return Message(t, cohort, {}, {})


def client_update(world: World[FedEASE], message: Message, node: NodeData) -> Updates:
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


def sizes(world: World[FedEASE], state: FedEASEState) -> Sizes:
    return Sizes(world.n_items, 0, 0, 0)


def add_up(world: World[FedEASE], message: Message, updates: Updates) -> Sums:
    """sum h h^T / n^(2 p)"""
    return {"pairs": pairs_of(world, Rows(updates.offsets, updates.items))}


def pairs_of(world: World[FedEASE], histories: Rows) -> Longs:
    scale = precision(world).scale
    weight = weights(histories.counts, world.settings.length_exponent, scale)
    return sum_pairs(histories, world.n_items, weight)


def collect(
    world: World[FedEASE], state: FedEASEState, sums: Sums, accepted: Accepted, t: int
) -> FedEASEState:
    added = state.added.copy()
    added[accepted.users] = True
    return FedEASEState(state.pairs + sums["pairs"], added)


# The exchange in a single pass


def single_pass(world: World[FedEASE], message: Message, node: NodeData) -> SinglePass:
    """The same sums; a history of the node is valid as it is."""
    history = node.training.positives.of_users(node.positions(message.users))
    n = len(message.users)
    return SinglePass(
        sums={"pairs": pairs_of(world, history)},
        accepted=Accepted(message.users, np.ones(n, np.int64), np.empty((n, 0), np.int32)),
        n_rows=history.counts,
        private_state={},
    )


# S inverts


def model(world: World[FedEASE], state: FedEASEState) -> PrivateItemWeights:
    settings = world.settings
    inverted = _inverted.get(state.pairs)
    if inverted is None or inverted[0] != settings:
        scale = precision(world).scale
        inverted = settings, item_weights(state.pairs, world.n_items, scale, settings)
        _inverted.put(state.pairs, inverted)
    return PrivateItemWeights(inverted[1], ON_CLIENTS)


_inverted = WeakCache()
"""(settings, B) of the last sums: an evaluation asks for the model several times."""


def own_histories(world: World[FedEASE], state: FedEASEState, node: NodeData) -> PrivateState:
    return {"history_bits": packed(node.training.positives, world.n_items)}


EXCHANGE = Exchange(
    broadcast=broadcast,
    client_update=client_update,
    aggregate=add_up,
    server_update=collect,
    sizes=sizes,
    fast=FastPaths(single_pass=single_pass),
    secure_sum=SecureSum(
        word=lambda world: 32 if precision(world).word == 32 else 64,
        max_entry=lambda world: precision(world).scale,
        reveals="an item of one client in a ring gives away that client's history",
    ),
)

ALGORITHM = Algorithm(
    "EASE computed exactly from one message of every client",
    FedEASE,
    Federation(
        init=init,
        sample=sample,
        exchanges=(EXCHANGE,),
        model=model,
        client_model=own_histories,
    ),
    state=FedEASEState,
    kernels=("cooccurrence", "sums", "clusters"),
    paper="Steck 2019",
    item_based=True,
    score_new_user=score_history,
    in_the_clear="its whole history",
)
