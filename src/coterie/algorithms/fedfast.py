"""FedFast: clusters of users decide who trains (ActvSAMP) and share what was learned (ActvAGG).

Muhammad, Wang, O'Reilly-Morgan, Tragos, Smyth, Hurley, Geraci, Lawlor. FedFast: going beyond
average for faster training of federated recommender systems. KDD 2020.

    Algorithm 1  FedFast
     1  initialise w_0, P_0, p                     P_0: statistics of profiles, made on the device
     2  G_0 <- ClusterUsers(K, p, P_0)
     3  foreach round t = 0, 1, ...
     4      m <- max(ceil(alpha K), 1)
     5      S_t <- ActvSAMP(K, m, G_t)
     6-8    foreach client k in S_t in parallel:  w^k, n_k <- ClientUpdate(k, w_t)
     9      gamma <- exp(-t)
    10      w_{t+1}, G_{t+1} <- ActvAGG(S_t, w^k, w_t, n_k, p, gamma)

    Algorithm 2  ActvSAMP: one user of each cluster in turn, at random, until there are m

    Algorithm 3  ActvAGG
     3      w[N] <- sum_k (n_k / n_sigma) w^k[N]
     5-12   w[i] <- sum_k q^k[i] w^k[i] / sum_k q^k[i],   q^k = |w^k - w_0|,
            for every component of an item row
    14-16   w[U_k] <- w^k[U_k] for delegates k
    18      G <- ClusterUsers(K, p, w[U])
    19-30   w[U_s] <- w_0[U_s] + gamma * mean of (w^k[U_k] - w_0[U_k])
            over the delegates of s's new cluster

Not given by the paper: alpha, optimiser, learning rate, batch size, local epochs, negatives. With
Adam, lines 5 to 12 say nothing of its moments: they are averaged by n_k like w[N], over the
delegates that sent the row (`moment_weights`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from coterie import kernels
from coterie.algorithms import clustering as clusters
from coterie.algorithms import fedavg
from coterie.algorithms.algorithm import Algorithm, score_by_sampled_loss
from coterie.algorithms.local import learner
from coterie.algorithms.local.learner import Parameters, embeddings, n_values
from coterie.algorithms.local.settings import Federated
from coterie.core import parallel
from coterie.data.training_set import TrainingSet
from coterie.errors import UnknownName
from coterie.federated.federation import (
    Accepted,
    AnyFederation,
    Exchange,
    Federation,
    NodeData,
    SecureSum,
    Sums,
    World,
)
from coterie.federated.robust.multiples import Multiples
from coterie.federated.robust.turns import with_a_turn
from coterie.types import SCALE, Doubles, Floats, Ints, Message, Sizes, Updates

N_STATISTICS = 3


class Clustered(Federated):
    clusters: int = Field(20, ge=1, le=10_000)
    """Number of clusters (p)."""
    cluster_by: str = "embeddings"
    """How users are clustered: by embeddings (k-means), or by a user feature such as region, whose
    clusters never change."""
    cluster_iterations: int = Field(3, ge=1)
    """Iterations of k-means per round, starting from the clusters of the round before."""


class Discounted(Clustered):
    """Settings of algorithms in which users who did not train follow those who did."""

    discount: Literal["exp", "inverse", "constant", "none"] = "exp"
    """How gamma decreases with t: exp(-t) as in the paper, 1 / (1 + t), always 1, always 0."""


class FedFast(Discounted):
    moment_weights: Literal["samples", "change"] = "samples"
    """Weights of Adam's moments of item rows, with moments=averaged: samples is n_k, as for all
    that is not an item row's value; change is |change|, as for its values."""


@dataclass(frozen=True, slots=True)
class FedFastState(Parameters):
    of_users: ClassVar[tuple[str, ...]] = ("user_rows", "clusters")
    clusters: Ints  # (users,) G; -1 for users who do not take part


# Algorithm 1


def initialise(world: World[Clustered]) -> FedFastState:
    """w_0, and G_0 where clusters are those of a feature; otherwise `first_partition` makes G_0."""
    w = learner(world.settings.model).start(world)
    if world.settings.cluster_by == "embeddings":
        groups = np.where(world.members, 0, -1).astype(np.int32)
    else:
        groups = by_metadata(world)
    return FedFastState(w.user_rows, w.item_rows, w.dense, groups)


def discount(world: World[Discounted], t: int) -> float:
    """gamma, line 9."""
    gammas = {"exp": math.exp(-t), "inverse": 1 / (1 + t), "constant": 1.0, "none": 0.0}
    return gammas[world.settings.discount]


# P_0: an exchange with all clients before the first round


def request_statistics(world: World[Clustered], state: object, cohort: Ints, t: int) -> Message:
    return Message(t, cohort, {}, {})


def profile_statistics(world: World[Clustered], message: Message, node: NodeData) -> Updates:
    """The number of interactions of each user, and the mean and entropy of its profile.

    A profile is the user's ratings, or its 0/1 row over all items.
    """
    positions = node.positions(message.users)
    statistics = statistics_of(node.training)[positions]
    n = len(message.users)
    return Updates(
        users=message.users,
        samples=node.training.positives.counts_of(positions),
        offsets=np.zeros(n + 1, np.int64),
        items=np.empty(0, np.int32),
        item_rows=np.empty((0, 0), np.int32),
        user_rows=np.rint(statistics * SCALE).astype(np.int32),
        dense=np.empty((n, 0), np.int32),
    )


def sizes_of_statistics(world: World[Clustered], state: object) -> Sizes:
    return Sizes(0, 0, N_STATISTICS, 0)


def statistics_of(history: TrainingSet) -> Doubles:
    """(users, 3), scaled so that every entry is below 8, the limit of fixed point."""
    counts = history.positives.counts
    if history.ratings is None:
        mean = counts / history.n_items
        entropy = -(_x_log_x(mean) + _x_log_x(1 - mean))
    else:
        mean, entropy = _mean_and_entropy(history)
    return np.stack([np.log1p(counts) / 8, mean / (1 + np.abs(mean)), entropy / 4], axis=1)


def setup(world: World[Clustered]) -> Exchange[FedFastState, Clustered] | None:
    """Clients send statistics only where clusters are made from them."""
    return SETUP if world.settings.cluster_by == "embeddings" else None


def first_partition(
    world: World[Clustered], state: FedFastState, sums: Sums, accepted: Accepted, t: int
) -> FedFastState:
    """G_0 <- ClusterUsers(K, p, P_0), line 2."""
    groups = clusters.first_clusters(
        profiles(world, accepted), world.members, world.settings.clusters, world.seed
    )
    return replace(state, clusters=groups)


def profiles(world: World[Clustered], accepted: Accepted) -> Floats:
    """P_0 (users, statistics), standardised; zeros for users whose statistics are not known."""
    statistics = accepted.user_rows / SCALE
    deviation = statistics.std(axis=0)
    rows = np.zeros((world.n_users, statistics.shape[1]), np.float32)
    centred = statistics - statistics.mean(axis=0)
    rows[accepted.users] = centred / np.where(deviation > 0, deviation, 1)
    return rows


# ClusterUsers


def cluster_users(world: World[Clustered], user_rows: Floats, groups: Ints) -> Ints:
    """ClusterUsers(K, p, w[U]): k-means from the last partition on; clusters of a feature stay."""
    settings = world.settings
    if settings.cluster_by != "embeddings":
        return groups
    n_clusters = min(settings.clusters, world.n_members)
    return clusters.kmeans(
        embeddings(settings, user_rows), groups, n_clusters, settings.cluster_iterations
    )


def by_metadata(world: World[Clustered]) -> Ints:
    """One cluster for every value of a feature that the server knows, such as region."""
    name = world.settings.cluster_by
    if name not in world.user_features:
        raise UnknownName(
            "feature of users", name, ("embeddings", *world.user_features), " for cluster_by"
        )
    values = np.array([str(value) for value in world.user_features[name]])
    _, groups = np.unique(values, return_inverse=True)
    return np.where(world.members, groups, -1).astype(np.int32)


# Algorithm 2


def actv_samp(world: World[Clustered], state: FedFastState, t: int) -> Ints:
    """S_t: users at random, one of each cluster in turn, until there are m."""
    present = with_a_turn(world, world.settings.participation, t)
    groups = clusters.labels_of_present(present, state.clusters)
    quotas = clusters.round_robin(
        clusters.sizes_of(groups), fedavg.cohort_size(world), world.seed, t
    )
    return clusters.draw(groups, quotas, world.seed, t)


# Algorithm 3


def weigh_by_change(world: World[FedFast], message: Message, updates: Updates) -> Sums:
    """Lines 5 to 12: sum_k q^k (w^k - w_0) and sum_k q^k, for every component of an item row.

    Adam's moments have q^k = n_k, unless they are weighed as the values are.
    """
    width = updates.item_rows.shape[1]
    n_by_change = components_by_change(world.settings, width)
    total = np.zeros((world.n_items, width), np.int64)
    weight = np.zeros((world.n_items, width), np.int64)
    kernel = kernels.load("sums").by_change
    parallel.over(
        lambda low, high: kernel(
            updates.offsets,
            updates.items,
            updates.item_rows,
            updates.samples,
            n_by_change,
            low,
            high,
            total,
            weight,
        ),
        world.n_items,
    )
    return {"items": total, "weights": weight} | fedavg.dense_sums(updates.samples, updates.dense)


def components_by_change(settings: FedFast, width: int) -> int:
    """How many components of an item row are weighed by |change|: the first ones, its values."""
    if settings.moments == "averaged" and settings.moment_weights == "samples":
        return n_values(width)
    return width


def actv_agg(
    world: World[FedFast], state: FedFastState, sums: Sums, delegates: Accepted, t: int
) -> FedFastState:
    # Line 3
    dense = fedavg.moved(state.dense, sums["dense"] / max(int(sums["samples"][0]), 1))
    # Line 11
    item_rows = fedavg.move_items(state.item_rows, sums["items"], sums["weights"])
    # Line 15
    user_rows = state.user_rows.copy()
    user_rows[delegates.users] = fedavg.moved(user_rows[delegates.users], delegates.user_rows)
    # Line 18
    groups = cluster_users(world, user_rows, state.clusters)
    # Lines 19 to 30
    update_subordinates(user_rows, groups, delegates, discount(world, t))
    return FedFastState(user_rows, item_rows, dense, groups)


def update_subordinates(user_rows: Floats, groups: Ints, delegates: Accepted, gamma: float) -> None:
    """Lines 19 to 30; writes user_rows. Members of a cluster without a delegate do not change."""
    if gamma == 0:
        return
    changes = (delegates.user_rows / SCALE).astype(np.float32)
    sums, counts = clusters.totals(changes, groups[delegates.users], int(groups.max()) + 1)
    moves = gamma * sums / np.maximum(counts, 1)[:, None]
    is_delegate = np.zeros(len(user_rows), bool)
    is_delegate[delegates.users] = True
    clusters.move_along(user_rows, groups, is_delegate, moves.astype(np.float32))


def average_and_recluster(
    world: World[FedAvgActvSamp], state: FedFastState, sums: Sums, delegates: Accepted, t: int
) -> FedFastState:
    """FedAvg's formula, then the clusters for ActvSAMP from the averaged w[U], or G_0 for ever."""
    averaged: FedFastState = fedavg.average(world, state, sums, delegates, t)
    if world.settings.clusters_follow == "profiles":
        return averaged
    return replace(averaged, clusters=cluster_users(world, averaged.user_rows, state.clusters))


def _x_log_x(x: Doubles) -> Doubles:
    return np.where(x > 0, x * np.log(np.where(x > 0, x, 1)), 0)


def _mean_and_entropy(history: TrainingSet) -> tuple[Doubles, Doubles]:
    """Mean of every user's ratings, and the entropy of their distribution over rating values."""
    assert history.ratings is not None
    counts = np.maximum(history.positives.counts, 1)
    mean = np.bincount(history.users, history.ratings, history.n_users) / counts
    order = np.lexsort((history.ratings, history.users))
    users = history.users[order]
    ratings = history.ratings[order]
    begins = np.flatnonzero(
        (np.diff(users, prepend=-1) > 0) | (np.diff(ratings, prepend=-np.inf) > 0)
    )
    share = np.diff(np.append(begins, len(users))) / counts[users[begins]]
    negative_entropy = np.bincount(users[begins], _x_log_x(share), history.n_users)
    return mean, np.abs(negative_entropy.astype(np.float64))


SETUP: Exchange[FedFastState, Clustered] = Exchange(
    broadcast=request_statistics,
    client_update=profile_statistics,
    aggregate=lambda world, message, updates: {},
    server_update=first_partition,
    sizes=sizes_of_statistics,
    visible="statistics of their history, once",
)
ACTVAGG: Exchange[FedFastState, FedFast] = Exchange(
    broadcast=fedavg.broadcast,
    client_update=fedavg.client_update,
    aggregate=weigh_by_change,
    server_update=actv_agg,
    sizes=fedavg.sizes,
    secure_sum=SecureSum(by_item=("items", "weights")),
    # The own row of a delegate moves other users. A weight of |change| lets the longest row of an
    # item decide where it moves, so that no client's row may be much longer than all others.
    bounds=lambda world: Multiples(own_row=1.0, agreeing=0.014, fewest_agreeing=3),
    visible=fedavg.VISIBLE,
)
AVERAGE: Exchange[FedFastState, FedAvgActvSamp] = Exchange(
    broadcast=fedavg.broadcast,
    client_update=fedavg.client_update,
    aggregate=fedavg.weigh_by_samples,
    server_update=average_and_recluster,
    sizes=fedavg.sizes,
    secure_sum=fedavg.EXCHANGE.secure_sum,
    visible=fedavg.VISIBLE,
)


class FedAvgActvSamp(Clustered, fedavg.FedAvg):
    """Settings of FedAvg with ActvSAMP."""

    clusters_follow: Literal["rows", "profiles"] = "rows"
    """What clusters are made of after the first round: the averaged user rows in every round, or
    the statistics of profiles, once (G_0). The paper does not say."""


def _algorithm(summary: str, settings: type[Federated], federation: AnyFederation) -> Algorithm:
    return Algorithm(
        summary,
        settings,
        federation,
        state=FedFastState,
        kernels=fedavg.ALGORITHM.kernels,
        explicit=True,
        paper="Muhammad et al. 2020",
        score_new_user=score_by_sampled_loss,
        popularity_prior=1.0,
        in_the_clear=fedavg.IN_THE_CLEAR,
    )


ALGORITHM = _algorithm(
    "active sampling and aggregation by clusters of users",
    FedFast,
    Federation(
        init=initialise,
        sample=actv_samp,
        exchanges=(ACTVAGG,),
        model=fedavg.model,
        setup=setup,
    ),
)
ACTVSAMP_ALONE = _algorithm(
    "FedFast's sampling with FedAvg's average",
    FedAvgActvSamp,
    Federation(
        init=initialise,
        sample=actv_samp,
        exchanges=(AVERAGE,),
        model=fedavg.model,
        setup=setup,
    ),
)
ACTVAGG_ALONE = _algorithm(
    "random sampling with FedFast's aggregation",
    FedFast,
    Federation(
        init=initialise,
        sample=fedavg.sample,
        exchanges=(ACTVAGG,),
        model=fedavg.model,
        setup=setup,
    ),
)
