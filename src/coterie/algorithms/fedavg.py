"""FedAvg: random users train copies of the model, which are averaged by their numbers of samples.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas. Communication-efficient learning of deep networks
from decentralized data. AISTATS 2017; as FedFast (Section 3.4, Eq. 1) states it for recommenders:

    foreach round t = 0, 1, ...
        m <- max(ceil(alpha K), 1)
        S_t <- m users at random
        foreach user k in S_t in parallel:  w^k, n_k <- ClientUpdate(k, w_t)
        w_{t+1} <- sum_k (n_k / n_sigma) w^k,   n_sigma = sum_k n_k

Literally (`average=all`), w is all parameters: a row that user k did not train on counts with its
old value, and so does the row of every other user. The second reading (`average=touched`) averages
a row over the users who trained on it; a user's own row is then replaced by the trained one. It is
the default: under the literal reading a row moves by the share of the cohort that touched it, so
that on sparse data training ends where it began (benchmarks/defaults.py).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal, TypeVar

import numpy as np

from coterie import kernels
from coterie.algorithms import clustering as clusters
from coterie.algorithms.algorithm import Algorithm, score_by_sampled_loss
from coterie.algorithms.local import learner
from coterie.algorithms.local.learner import Parameters
from coterie.algorithms.local.objective import LocalObjective
from coterie.algorithms.local.samples import Samples, draw
from coterie.algorithms.local.settings import CohortSettings, Federated
from coterie.core import parallel
from coterie.core.row_versions import next_version
from coterie.federated.federation import (
    Accepted,
    AnyWorld,
    Exchange,
    FastPaths,
    Federation,
    NodeData,
    SecureSum,
    SinglePass,
    Sums,
    World,
)
from coterie.models.recommender import Recommender
from coterie.types import SCALE, Floats, Ints, Longs, Message, Sizes, Updates

BLOCK = 1024
SomeParameters = TypeVar("SomeParameters", bound=Parameters)


class FedAvg(Federated):
    average: Literal["all", "touched"] = "touched"
    """Rows are averaged over the users who trained on them, or over the whole cohort (Eq. 1)."""


def init(world: World[Federated]) -> Parameters:
    return learner(world.settings.model).start(world)


def sample(world: World[CohortSettings], state: object, t: int) -> Ints:
    """S_t: m users at random."""
    return clusters.draw_users(world.present, cohort_size(world), world.seed, t)


def cohort_size(world: World[CohortSettings]) -> int:
    """m <- max(ceil(alpha K), 1)"""
    alpha: float = world.settings.participation
    # Rounding first: 0.07 * 100 is a little more than 7 in binary.
    return max(math.ceil(round(alpha * world.n_members, 9)), 1)


def broadcast(world: World[Federated], state: Parameters, cohort: Ints, t: int) -> Message:
    """w_t without the rows of other users."""
    return Message(
        t,
        cohort,
        {"item_rows": state.item_rows, "dense": state.dense},
        {"user_rows": state.user_rows[cohort]},
    )


def client_update(world: World[Federated], message: Message, node: NodeData) -> Updates:
    """ClientUpdate(k, w_t) for all users of a node: changes in fixed point, and n_k."""
    return train_on(draw(world, message.users, message.round, node), world, message, node)


def train_on(
    samples: Samples,
    world: World[Federated],
    message: Message,
    node: NodeData,
    objective: LocalObjective | None = None,
) -> Updates:
    """Train on given samples, with the learning rate of the round.

    `objective` adds a term to the local loss.
    """
    trained, w, rated = training_of(world, message, node)
    changes = learner(world.settings.model).train(trained, w, samples, rated, objective)
    return Updates(
        users=message.users,
        samples=samples.counts,
        offsets=samples.offsets,
        items=samples.items,
        item_rows=changes.item_rows,
        user_rows=changes.user_rows,
        dense=changes.dense,
    )


def training_of(
    world: World[Federated], message: Message, node: NodeData
) -> tuple[World[Federated], Parameters, bool]:
    """The world with the learning rate of the round, w_t, and whether targets are ratings."""
    w = Parameters(message.own["user_rows"], message.common["item_rows"], message.common["dense"])
    learning_rate = world.settings.learning_rate_at(message.round)
    settings = world.settings.model_copy(update={"learning_rate": learning_rate})
    return replace(world, settings=settings), w, node.training.ratings is not None


def single_pass(world: World[Federated], message: Message, node: NodeData) -> SinglePass | None:
    """Train and weigh by samples in one kernel call, where the model can."""
    model = learner(world.settings.model)
    if not model.sums_up(world.settings):
        return None
    samples = draw(world, message.users, message.round, node)
    trained, w, rated = training_of(world, message, node)
    summed = model.train_and_sum(trained, w, samples, rated)
    if summed is None:
        return None
    no_entries = np.empty((len(samples.items), 0), np.int32)
    of_items = sum_items(world.n_items, samples.offsets, samples.items, no_entries, samples.counts)
    return SinglePass(
        of_items | {"items": summed.items} | dense_sums(samples.counts, summed.dense),
        Accepted(message.users, samples.counts, summed.user_rows),
        np.diff(samples.offsets),
        {},
    )


def sizes(world: World[Federated], state: Parameters) -> Sizes:
    return Sizes(
        world.n_items, state.item_rows.shape[1], state.user_rows.shape[1], len(state.dense)
    )


def weigh_by_samples(world: AnyWorld, message: Message, updates: Updates) -> Sums:
    """sum_k n_k q_k over items and w[N], and n_sigma over all users and over those of each item."""
    of_items = sum_items(
        world.n_items, updates.offsets, updates.items, updates.item_rows, updates.samples
    )
    return of_items | dense_sums(updates.samples, updates.dense)


def sum_items(n_items: int, offsets: Longs, items: Ints, rows: Ints, weights: Longs) -> Sums:
    """The weighted sum of the users' rows of every item, and that of their weights."""
    total = np.zeros((n_items, rows.shape[1]), np.int64)
    touched = np.zeros(n_items, np.int64)
    kernel = kernels.load("sums").by_samples
    parallel.over(
        lambda low, high: kernel(offsets, items, rows, weights, low, high, total, touched), n_items
    )
    return {"items": total, "touched": touched}


def dense_sums(samples: Longs, dense: Ints) -> Sums:
    """sum_k n_k q_k[N] and n_sigma."""
    weighted = np.zeros(dense.shape[1], np.int64)
    # In blocks: the products of all users at once would double the memory.
    for first in range(0, len(samples), BLOCK):
        part = slice(first, first + BLOCK)
        weighted += (samples[part, None] * dense[part]).sum(axis=0)
    return {"dense": weighted, "samples": samples.sum(keepdims=True)}


def average(
    world: World[FedAvg], state: SomeParameters, sums: Sums, accepted: Accepted, t: int
) -> SomeParameters:
    """w <- sum_k (n_k / n_sigma) w^k, as w + sum_k n_k (w^k - w) / n_sigma.

    Users who did not train on a row add nothing to it.
    """
    n_sigma = max(int(sums["samples"][0]), 1)
    touched = world.settings.average == "touched"
    weights = sums["touched"] if touched else np.full(world.n_items, n_sigma)
    own = 1.0 if touched else accepted.samples[:, None] / n_sigma
    user_rows = next_version(state.user_rows, accepted.users)
    user_rows[accepted.users] = moved(user_rows[accepted.users], own * accepted.user_rows)
    return replace(
        state,
        user_rows=user_rows,
        item_rows=move_items(state.item_rows, sums["items"], weights[:, None]),
        dense=moved(state.dense, sums["dense"] / n_sigma),
    )


def moved(before: Floats, change: np.ndarray) -> Floats:
    """Parameters after a change in fixed point."""
    return (before + change / SCALE).astype(np.float32)


def move_items(item_rows: Floats, total: Longs, weights: Longs) -> Floats:
    """Item rows after weighted changes in fixed point; rows of weight zero do not change."""
    after = np.empty_like(item_rows)
    kernel = kernels.load("sums").move
    parallel.over(
        lambda low, high: kernel(item_rows, total, weights, low, high, after), len(item_rows), BLOCK
    )
    return after


def model(world: World[Federated], state: Parameters) -> Recommender:
    return learner(world.settings.model).model(
        world, Parameters(state.user_rows, state.item_rows, state.dense)
    )


VISIBLE = "their row of the model, and how many samples they have"
"""What the server sees of every client, even under secure aggregation."""
IN_THE_CLEAR = "the items it trained on, the changes of their rows, its own row, its sample count"
EXCHANGE: Exchange[Parameters, FedAvg] = Exchange(
    broadcast=broadcast,
    client_update=client_update,
    aggregate=weigh_by_samples,
    server_update=average,
    sizes=sizes,
    fast=FastPaths(single_pass=single_pass),
    secure_sum=SecureSum(by_item=("items", "touched")),
    visible=VISIBLE,
)

ALGORITHM = Algorithm(
    "federated averaging",
    FedAvg,
    Federation(init=init, sample=sample, exchanges=(EXCHANGE,), model=model),
    state=Parameters,
    kernels=lambda settings: (*learner(settings.model).kernels(settings), "clusters"),
    explicit=True,
    paper="McMahan et al. 2017",
    score_new_user=score_by_sampled_loss,
    popularity_prior=1.0,
    in_the_clear=IN_THE_CLEAR,
)
