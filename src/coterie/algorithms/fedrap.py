"""FedRAP: the sum of an item table of all users and one of a client's own.

Li, Long, Zhou. Federated recommendation with additive personalization. ICLR 2024 (Section 3,
Algorithm 1). y_ui = w_u . (d_ui + c_i) + b_u. The score function (w_u, b_u) and the table D_u stay
on the client, C is on the server. A client minimises

    cross-entropy - lambda_t mean (D_u - C)^2 + mu_t mean |C|

where the second term keeps the two tables apart and the third makes C sparse. The weights grow with
the rounds: lambda_t = lambda tanh(t / 10), the same for mu (`curriculum`).

    foreach round t = 0, 1, ...
        S_t <- a share of the users
        S sends C to S_t
        foreach client u in S_t in parallel
            several epochs of SGD on w_u, b_u, D_u and its own copy C_u of C
            u uploads C_u
        C <- mean of C_u over S_t

The authors' code (repository mtics/FedRAP) decides what the paper leaves open, and differs from it
in one point: it computes lambda_t and mu_t and then trains with lambda and mu
(`curriculum=constant`). It also shrinks all rows at every step (`reg`), reduces both learning rates
after every step (`step_decay`) and every round (`round_decay`), and ends a client's epochs when its
loss changes by less than `tolerance`. docs/personal.md has the figures.

D_u is private state with a row for every item: users * items * d numbers in a simulation, and no
fewer, because drawn negatives soon touch every row (`max_memory`).

Deviation: the batches of a client are the same in all epochs of a round. The default of 2,048
samples exceeds what most users have.
Deviation: updates are changes in fixed point, in units that follow from the item learning rate
(`item_tables.unit_for`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from coterie import kernels
from coterie.algorithms import fedavg
from coterie.algorithms.algorithm import Algorithm
from coterie.algorithms.local import item_tables
from coterie.algorithms.local.item_tables import (
    TableSettings,
    check_memory,
    draw_samples,
    score_new_user,
    start_rows,
    start_score_function,
    unit_for,
    updates_of,
)
from coterie.algorithms.local.samples import Samples
from coterie.core import parallel
from coterie.core.records import Record
from coterie.core.settings import SearchSpace
from coterie.federated.federation import (
    ON_CLIENTS,
    Accepted,
    ClientResult,
    Exchange,
    Federation,
    NodeData,
    PrivateState,
    Sums,
    World,
    unweighted,
)
from coterie.models.additive_scores import AdditiveScores
from coterie.types import SCALE, Floats, Ints, Message, Sizes, Updates


class FedRAP(TableSettings):
    search_space: ClassVar[SearchSpace] = {
        "learning_rate": (1e-4, 1.0),
        "item_learning_rate": (1.0, 1000.0),
        "apart_weight": (1e-4, 0.3),
        "sparse_weight": (1e-4, 0.3),
        "local_epochs": [1, 3, 10],
        "negatives": [2, 4, 8],
        "start_scale": [0.1, 0.3, 1.0],
    }
    trial_steps: ClassVar[int | None] = 100  # as many as the authors train

    rounds: int = Field(100, ge=1)
    """Communication rounds."""
    local_epochs: int = Field(10, ge=1)
    """Passes of a client over its own data in a round, at most."""
    tolerance: float = Field(1e-4, ge=0, lt=1)
    """A client stops when its loss changes by a smaller share from one epoch to the next."""
    batch_size: int = Field(2048, ge=1)
    """Samples per local step (their mean gradient)."""
    learning_rate: float = Field(0.5, gt=0)
    """Learning rate of the score function."""
    item_learning_rate: float = Field(30.0, gt=0)
    """Learning rate of both item tables; 200 or 1000 in the authors' code."""
    step_decay: float = Field(0.95, gt=0, le=1)
    """Factor of both learning rates after every local step; they start anew in every round."""
    round_decay: float = Field(0.97, gt=0, le=1)
    """Factor of both learning rates after every round."""
    apart_weight: float = Field(0.01, ge=0)
    """Weight of the term that keeps the tables apart (lambda); 0.1 in the authors' code. The term
    has no bound: with much more, tables of users with few items grow without end."""
    sparse_weight: float = Field(1e-3, ge=0)
    """Weight of the term that makes the server's table sparse (mu)."""
    curriculum: Literal["tanh", "sin", "square", "frac", "constant"] = "tanh"
    """How both weights follow the round: tanh grows to one (the paper), constant is what the
    authors' code trains with; sin, square and frac are the paper's other curves."""
    reg: float = Field(1e-6, ge=0)
    """Regularisation of all parameters."""
    negatives: int = Field(4, ge=1)
    """Negatives drawn per positive; the same in all epochs of a round."""

    def weight_at(self, t: int) -> float:
        """The share of both weights in round t = 0, 1, ..."""
        if self.curriculum == "tanh":
            return math.tanh(t / 10)
        if self.curriculum == "sin":
            return (math.sin(t / 10) + 1) / 2
        if self.curriculum == "square":
            return float(t // 5 % 2 == 0)
        if self.curriculum == "frac":
            return 1 / (t + 1)
        return 1.0


@dataclass(frozen=True, slots=True)
class FedRAPState(Record):
    private: ClassVar[tuple[str, ...]] = ("score_functions", "personal_rows", "own_scores")
    item_rows: Floats  # (items, d) C
    score_functions: Floats  # (users, d + 1) w_u and b_u, on the clients
    personal_rows: Floats  # (users, items, d) D_u, on the clients
    own_scores: Floats  # (users, items) w_u . d_ui + b_u, on the clients


def init(world: World[FedRAP]) -> FedRAPState:
    per_item = world.settings.embedding_size
    check_memory(world, "the clients' own tables", per_item, "lower embedding_size")
    return FedRAPState(start_rows(world, "items"), ON_CLIENTS, ON_CLIENTS, ON_CLIENTS)


def init_clients(world: World[FedRAP], node: NodeData) -> PrivateState:
    """The same score function and table on every client, as in the authors' code."""
    n = len(node.users)
    w = start_score_function(world.settings.embedding_size, world.seed)
    D = start_rows(world, "personal items")
    return {
        "score_functions": np.tile(w, (n, 1)),
        "personal_rows": np.tile(D, (n, 1, 1)),
        "own_scores": np.tile(D @ w[:-1] + w[-1], (n, 1)),
    }


# S sends C


def broadcast(world: World[FedRAP], state: FedRAPState, cohort: Ints, t: int) -> Message:
    return Message(t, cohort, {"item_rows": state.item_rows}, {})


# Several epochs of SGD


def client_update(world: World[FedRAP], message: Message, node: NodeData) -> ClientResult:
    s = world.settings
    n = len(message.users)
    samples = draw_once(world, message, node)
    before = message.private_state
    after = {name: np.empty_like(array) for name, array in before.items()}
    changes = np.empty((len(samples.items), s.embedding_size), np.int32)
    shrinkage = np.empty((n, 1), np.int32)
    decayed = s.round_decay**message.round
    weight = s.weight_at(message.round)
    kernel = kernels.load("fedrap").train
    parallel.over(
        lambda first, last: kernel(
            samples.offsets,
            samples.items,
            samples.starts,
            samples.places,
            samples.targets,
            before["score_functions"],
            before["personal_rows"],
            message.common["item_rows"],
            s.learning_rate * decayed,
            s.item_learning_rate * decayed,
            s.step_decay,
            s.reg,
            s.apart_weight * weight,
            s.sparse_weight * weight,
            s.local_epochs,
            s.batch_size,
            s.tolerance,
            unit(world),
            first,
            last,
            after["score_functions"],
            after["personal_rows"],
            after["own_scores"],
            changes,
            shrinkage,
        ),
        samples.starts,
    )
    return updates_of(message, samples, changes, shrinkage), after


def draw_once(world: World[FedRAP], message: Message, node: NodeData) -> Samples:
    """The samples of a round, which all epochs share."""
    one_epoch = world.settings.model_copy(update={"local_epochs": 1})
    return draw_samples(replace(world, settings=one_epoch), message, node)


def unit(world: World[FedRAP]) -> float:
    """What 1.0 stands for in the item rows of an update."""
    return unit_for(world.settings.item_learning_rate)


def sizes(world: World[FedRAP], state: FedRAPState) -> Sizes:
    return Sizes(world.n_items, state.item_rows.shape[1], 0, 1)


# C <- mean of C_u


def add_up(world: World[FedRAP], message: Message, updates: Updates) -> Sums:
    """sum over clients of C_u - s_u C on the rows of their samples, and of s_u - 1.

    Regularisation shrinks all other rows by a client's own factor s_u.
    """
    shrinkage = updates.dense.sum(axis=0, dtype=np.int64)
    return item_tables.add_up(world, message, updates) | {"shrinkage": shrinkage}


def average(
    world: World[FedRAP], state: FedRAPState, sums: Sums, accepted: Accepted, t: int
) -> FedRAPState:
    """C <- (mean of s_u) C + sum over clients of (C_u - s_u C) / |S_t|"""
    n = len(accepted.users)
    shrunk = state.item_rows * (1 + sums["shrinkage"][0] / SCALE / n)
    change = sums["items"] * (unit(world) / SCALE / n)
    return replace(state, item_rows=(shrunk + change).astype(np.float32))


def model(world: World[FedRAP], state: FedRAPState) -> AdditiveScores:
    return AdditiveScores(state.own_scores, state.score_functions, state.item_rows)


ALGORITHM = Algorithm(
    "the sum of an item table of all users and one of a client's own",
    FedRAP,
    Federation(
        init=init,
        sample=fedavg.sample,
        exchanges=(
            Exchange(
                broadcast=broadcast,
                client_update=client_update,
                aggregate=add_up,
                server_update=average,
                sizes=sizes,
                secure_sum=unweighted(by_item=("items", "touched")),
            ),
        ),
        model=model,
        init_clients=init_clients,
    ),
    state=FedRAPState,
    kernels=("fedrap", "samples", "sums", "clusters"),
    paper="Li et al. 2024",
    score_new_user=score_new_user,
    in_the_clear="the items it trained on, and the changes of their rows",
)
