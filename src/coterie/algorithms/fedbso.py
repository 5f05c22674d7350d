"""FedBSO: FedFast's clusters, perturbed every round by brain storm optimisation.

Liu. Decentralized recommendation system based on BSO. Undergraduate thesis, Southern University of
Science and Technology, 2024.

    Algorithm 2  FedBSO
     1      initialise w_0, P_0, p, G_0
     2      foreach round t = 0, 1, ...
     3          G_t <- ClusterUsersByCenter(K, p, P, G_{t-1})     k-means from the last centres
     4          G_t <- GetBestUser(G_t)                           the best user becomes the centre
     5-9        if r_1 < p5:  a random user replaces the centre of a random cluster
    10-14       if r_2 < p6:  two random clusters swap their centres
    15          foreach cluster c in G_t in parallel
    16              m <- max(ceil(alpha |c|), 1)
    17              C <- m users of c at random
    18-20           foreach user k in C in parallel:  w^k <- ClientUpdate(k)
    21              W[C] <- sum_k n_k w^k / sum_k n_k

Here lines 3 to 14 of round t + 1 run at the end of round t, where P is known. The thesis leaves
some points open, which are settings here: which user is best (`best_user`), when a new centre
takes effect (`new_centres`), what a swap does (`swap`), what P is after the first round
(`cluster_by`), whose model an aggregate is (`aggregate`) and over whom it is averaged (`average`),
whether w includes the users' rows (`user_rows`), what happens to users who did not train
(`discount`) and to Adam's moments (`moments`). docs/papers/fedbso.md compares them.

The server needs sums over the cohort and every client's user row, as FedFast's does. Two readings
need more, and are refused under secure aggregation: `best_user=loss` and `aggregate=cluster`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from coterie.algorithms import clustering as clusters
from coterie.algorithms import fedavg, fedfast
from coterie.algorithms.algorithm import Algorithm, score_by_sampled_loss
from coterie.algorithms.local.learner import Parameters, embeddings
from coterie.algorithms.local.samples import Samples, draw
from coterie.core import streams
from coterie.errors import ConfigError
from coterie.federated.federation import Accepted, Exchange, Federation, NodeData, Sums, World
from coterie.federated.robust.turns import with_a_turn
from coterie.models.gmf_groups import GMFGroups
from coterie.models.recommender import Recommender
from coterie.types import SCALE, Doubles, Floats, Ints, Message, Sizes, Updates

NO_LOSS = np.finfo(np.float32).max
"""The loss of a user who has not reported any."""
MOST_BYTES = 4 << 30
"""Bytes of item rows in one message, at most."""


class FedBSO(fedfast.Discounted, fedavg.FedAvg):
    participation: float = Field(0.1, gt=0, le=1)
    """Share of the users of every cluster that takes part in a round (alpha), at least one."""
    cluster_iterations: int = Field(3, ge=1)
    """Iterations of k-means per round, starting from the rows of the centres."""
    cluster_by: Literal["embeddings", "statistics"] = "embeddings"
    """What P is after the first round: user embeddings, or the statistics sent before it."""
    average: Literal["all", "touched"] = "touched"
    """Whether rows are averaged over the whole cohort (line 21) or over users who trained on
    them."""
    discount: Literal["exp", "inverse", "constant", "none"] = "exp"
    """How much users who did not train follow the mean change of the users of their cluster who
    did: exp(-t), 1 / (1 + t), 1, not at all."""
    replacement_rate: float = Field(0.5, ge=0, le=1)
    """Probability that a random user replaces a centre (p5)."""
    swap_rate: float = Field(0.5, ge=0, le=1)
    """Probability that two clusters swap their centres (p6)."""
    best_user: Literal["nearest", "loss"] = "nearest"
    """Which user becomes the centre: the nearest to the mean, or the one with the lowest loss,
    which devices then disclose (gmf)."""
    new_centres: Literal["next", "now"] = "next"
    """When a replaced centre takes effect: as a start of the next clustering, or now, by assigning
    all users to the nearest centre."""
    swap: Literal["members", "centres"] = "members"
    """What is swapped: the two users, who join each other's cluster, or only the order of the
    starts of the next clustering. The latter renames two clusters, which matters only if each has
    its own model (aggregate=cluster)."""
    aggregate: Literal["global", "cluster"] = "global"
    """Which model is aggregated: one for all users, or one for each cluster (gmf)."""
    user_rows: Literal["own", "cluster"] = "own"
    """Row of a user after a round: its own, as its client trained it, or one shared by all users of
    a cluster, the mean over its clients by n_k; nobody then follows by `discount`."""

    @model_validator(mode="after")
    def _readings_for_gmf_alone(self) -> FedBSO:
        for name, value in (("best_user", "loss"), ("aggregate", "cluster")):
            if getattr(self, name) == value and self.model != "gmf":
                raise ValueError(
                    f"{name}={value} is for model=gmf, but the model is {self.model}. Set model=gmf"
                )
        return self

    @model_validator(mode="after")
    def _readings_that_need_more_than_sums(self) -> FedBSO:
        if self.secure_aggregation == "none":
            return self
        if self.best_user == "loss":
            raise ValueError(
                "best_user=loss needs every client's own loss, which secure aggregation is to "
                "hide. Set best_user=nearest or secure_aggregation=none"
            )
        if self.aggregate == "cluster":
            raise ValueError(
                "aggregate=cluster needs sums over the few clients of a cluster in a group, often "
                "a single one, which secure aggregation is to hide. "
                "Set aggregate=global or secure_aggregation=none"
            )
        return self


@dataclass(frozen=True, slots=True)
class FedBSOState(Parameters):
    """Parameters, clusters and their centres.

    With `aggregate=cluster`, `item_rows` is (clusters, items, width), and `dense` is
    (clusters, size).
    """

    of_users: ClassVar[tuple[str, ...]] = ("user_rows", "clusters", "profiles", "losses")
    clusters: Ints  # (users,) G; -1 for users who do not take part
    centres: Ints  # (clusters,) the user at the centre of each
    profiles: Floats  # (users, statistics) P, with cluster_by=statistics
    losses: Floats  # (users,) the last loss of each user; NO_LOSS before the first


# Line 1


def initialise(world: World[FedBSO]) -> FedBSOState:
    """w_0, with a copy for every cluster where each has its own model."""
    settings = world.settings
    users = np.flatnonzero(world.members).astype(np.int32)
    w = fedavg.init(world)
    n = min(settings.clusters, len(users))
    if settings.aggregate == "cluster":
        w = replace(w, item_rows=np.tile(w.item_rows, (n, 1, 1)), dense=np.tile(w.dense, (n, 1)))
    return FedBSOState(
        w.user_rows,
        w.item_rows,
        w.dense,
        clusters=np.where(world.members, 0, -1).astype(np.int32),
        centres=users[:n],
        profiles=np.zeros((world.n_users, fedfast.N_STATISTICS), np.float32),
        losses=np.full(world.n_users, NO_LOSS, np.float32),
    )


def first_clusters(
    world: World[FedBSO], state: FedBSOState, sums: Sums, accepted: Accepted, t: int
) -> FedBSOState:
    """G_0 from P_0, and lines 4 to 14 of the first round."""
    profiles = fedfast.profiles(world, accepted)
    labels = clusters.first_clusters(profiles, world.members, world.settings.clusters, world.seed)
    return perturb_clusters(world, replace(state, profiles=profiles), profiles, labels, t)


# Lines 3 to 14


def cluster_anew(world: World[FedBSO], state: FedBSOState, t: int) -> FedBSOState:
    """Lines 3 to 14 of round t."""
    settings = world.settings
    if settings.cluster_by == "statistics":
        rows = state.profiles
    else:
        rows = embeddings(settings, state.user_rows)
    labels = cluster_users_by_center(
        rows, state.clusters, state.centres, settings.cluster_iterations
    )
    return perturb_clusters(world, state, rows, labels, t)


def cluster_users_by_center(rows: Floats, labels: Ints, centres: Ints, iterations: int) -> Ints:
    """Line 3: k-means that starts from the current rows of the users who are centres."""
    labels = labels.copy()
    clusters.assign(rows, rows[centres], labels)
    return clusters.kmeans(rows, labels, len(centres), iterations - 1)


def perturb_clusters(
    world: World[FedBSO], state: FedBSOState, rows: Floats, labels: Ints, t: int
) -> FedBSOState:
    """Lines 4 to 14: the centres of round t and, in some readings, the clusters; `rows` is P."""
    settings = world.settings
    rng = streams.at(world.seed, "brain storm", t)
    losses = state.losses if settings.best_user == "loss" else None
    centres = get_best_user(rows, labels, state.centres, losses)
    users = np.flatnonzero(world.members)
    replaced = replace_center(rng, centres, users, settings.replacement_rate)
    if settings.new_centres == "now" and (replaced != centres).any():
        labels = labels.copy()
        clusters.assign(rows, rows[replaced], labels)
    labels, centres = swap_centers(
        rng, labels, replaced, settings.swap_rate, settings.swap == "members"
    )
    return replace(state, clusters=labels, centres=centres)


def get_best_user(rows: Floats, labels: Ints, centres: Ints, losses: Floats | None = None) -> Ints:
    """Line 4: of every cluster the user nearest to the mean, or with the lowest known loss.

    Ties go to the lowest user index. An empty cluster keeps its centre.
    """
    n = len(centres)
    sums, counts = clusters.totals(rows, labels, n)
    means = sums / np.maximum(counts, 1)[:, None]
    # Single precision: the two users of a cluster of two are equally near, except for rounding.
    distances = ((rows - means[labels]) ** 2).sum(axis=1).astype(np.float32)
    best = _lowest(distances, labels, centres)
    if losses is None:
        return best
    with_loss = np.where(losses < NO_LOSS, labels, -1)
    return _lowest(losses, with_loss, best)


def _lowest(values: Floats, labels: Ints, default: Ints) -> Ints:
    """The first user with the lowest value of every cluster; `default` for an empty one."""
    users = np.flatnonzero(labels >= 0)
    lowest = np.full(len(default), np.inf, np.float32)
    np.minimum.at(lowest, labels[users], values[users])
    users = users[values[users] == lowest[labels[users]]]
    not_empty, first = np.unique(labels[users], return_index=True)
    best = default.copy()
    best[not_empty] = users[first]
    return best


def replace_center(rng: np.random.Generator, centres: Ints, users: np.ndarray, p5: float) -> Ints:
    """Lines 5 to 9. All draws are made in any case, so that p5 does not affect later draws."""
    r1 = rng.random()
    u = users[rng.integers(len(users))]
    c = rng.integers(len(centres))
    changed = centres.copy()
    if r1 < p5:
        changed[c] = u
    return changed


def swap_centers(
    rng: np.random.Generator, labels: Ints, centres: Ints, p6: float, members: bool
) -> tuple[Ints, Ints]:
    """Lines 10 to 14."""
    r2 = rng.random()
    n = len(centres)
    if n < 2 or r2 >= p6:
        return labels, centres
    a, b = rng.choice(n, 2, replace=False)
    labels = labels.copy()
    centres = centres.copy()
    centres[[a, b]] = centres[[b, a]]
    if members:
        labels[centres[a]] = a
        labels[centres[b]] = b
    return labels, centres


# Lines 15 to 20


def sample(world: World[FedBSO], state: FedBSOState, t: int) -> Ints:
    """C of every cluster."""
    groups = clusters.labels_of_present(world.present, state.clusters)
    alpha = world.settings.participation
    m = users_per_cluster(clusters.sizes_of(groups), alpha)
    with_turn = clusters.labels_of_present(with_a_turn(world, alpha, t), groups)
    return clusters.draw(with_turn, m, world.seed, t)


def users_per_cluster(sizes: np.ndarray, alpha: float) -> np.ndarray:
    """m <- max(ceil(alpha |c|), 1), line 16; 0 for an empty cluster."""
    return np.array(
        [max(math.ceil(round(alpha * int(size), 9)), 1) if size else 0 for size in sizes], np.int64
    )


def broadcast(world: World[FedBSO], state: FedBSOState, cohort: Ints, t: int) -> Message:
    """w_t: of all users, or of each user's cluster."""
    if world.settings.aggregate == "global":
        return fedavg.broadcast(world, state, cohort, t)
    cluster = state.clusters[cohort]
    check_memory(len(cohort) * state.item_rows[0].nbytes)
    own = {
        "user_rows": state.user_rows[cohort],
        "item_rows": state.item_rows[cluster],
        "dense": state.dense[cluster],
    }
    return Message(t, cohort, {}, own | {"cluster": cluster})


def client_update(world: World[FedBSO], message: Message, node: NodeData) -> Updates:
    """ClientUpdate(k), cluster by cluster where each has its own model."""
    if world.settings.aggregate == "global":
        return train_and_report_loss(world, message, node)
    parts = []
    cluster = message.own["cluster"]
    for c in np.unique(cluster).tolist():
        members = np.flatnonzero(cluster == c)
        common = {name: message.own[name][members[0]] for name in ("item_rows", "dense")}
        own = {"user_rows": message.own["user_rows"][members]}
        part = Message(message.round, message.users[members], common, own)
        parts.append(train_and_report_loss(world, part, node))
    return Updates.joined(parts)


def check_memory(size: int) -> None:
    """Refuse a message that holds too many copies of the item rows, one for each client."""
    if size > MOST_BYTES:
        raise ConfigError(
            "aggregate=cluster sends every client of a round its own item rows, "
            f"{size / 2**30:.1f} GiB together; expected at most {MOST_BYTES / 2**30:.0f}. "
            "Lower participation or embedding_size, or set aggregate=global."
        )


def train_and_report_loss(world: World[FedBSO], message: Message, node: NodeData) -> Updates:
    """FedAvg's ClientUpdate(k); with `best_user=loss`, the loss is appended to the user's row."""
    samples = draw(world, message.users, message.round, node)
    updates = fedavg.train_on(samples, world, message, node)
    if world.settings.best_user != "loss":
        return updates
    loss = mean_losses(world, message, samples, node.training.ratings is not None)
    # x / (1 + x) keeps the order of losses, and is below 1 for any data.
    reported = np.rint(loss / (1 + loss) * SCALE).astype(np.int32)
    return replace(updates, user_rows=np.column_stack([updates.user_rows, reported]))


def mean_losses(world: World[FedBSO], message: Message, samples: Samples, rated: bool) -> Doubles:
    """The mean loss of every user on its samples, with the parameters it was sent."""
    p = embeddings(world.settings, message.own["user_rows"])
    q = message.common["item_rows"][:, : p.shape[1]]
    h = message.common["dense"]
    user = np.repeat(np.arange(len(message.users)), samples.counts)
    items = samples.items[samples.offsets[user] + samples.places]
    y = ((p * h[: p.shape[1]])[user] * q[items]).sum(axis=1, dtype=np.float64) + h[p.shape[1]]
    each = (y - samples.targets) ** 2 / 2 if rated else np.logaddexp(0, y) - samples.targets * y
    return np.add.reduceat(each, samples.starts[:-1]) / samples.counts


def sizes(world: World[FedBSO], state: FedBSOState) -> Sizes:
    width = state.item_rows.shape[-1]
    loss_width = int(world.settings.best_user == "loss")
    user_width = state.user_rows.shape[1] + loss_width
    return Sizes(world.n_items, width, user_width, state.dense.shape[-1])


# Line 21


def weigh_by_samples(world: World[FedBSO], message: Message, updates: Updates) -> Sums:
    """FedAvg's sums; stacked by cluster where each has its own model."""
    if world.settings.aggregate == "global":
        return fedavg.weigh_by_samples(world, message, updates)
    cluster = message.own["cluster"][np.searchsorted(message.users, updates.users)]
    parts = [
        fedavg.weigh_by_samples(world, message, updates.take(np.flatnonzero(cluster == c)))
        for c in range(cluster.max() + 1)
    ]
    return {name: np.stack([part[name] for part in parts]) for name in parts[0]}


def finish(
    world: World[FedBSO], state: FedBSOState, sums: Sums, accepted: Accepted, t: int
) -> FedBSOState:
    """Line 21, the users who did not train, and lines 3 to 14 of the next round."""
    if world.settings.best_user == "loss":
        state, accepted = store_losses(state, accepted)
    after = aggregate(world, state, sums, accepted, t)
    if world.settings.user_rows == "cluster":
        after = replace(after, user_rows=share_rows(state.user_rows, state.clusters, accepted))
    else:
        gamma = fedfast.discount(world, t)
        fedfast.update_subordinates(after.user_rows, state.clusters, accepted, gamma)
    return cluster_anew(world, after, t + 1)


def share_rows(user_rows: Floats, groups: Ints, accepted: Accepted) -> Floats:
    """Line 21 for the users' rows: every user of a cluster gets the mean of those trained in it.

    Users of a cluster without an accepted client do not change.
    """
    trained = user_rows[accepted.users] + accepted.user_rows / SCALE
    n = np.zeros(int(groups.max()) + 1, np.int64)
    totals = np.zeros((len(n), user_rows.shape[1]))
    np.add.at(n, groups[accepted.users], accepted.samples)
    np.add.at(totals, groups[accepted.users], accepted.samples[:, None] * trained)
    means = (totals / np.maximum(n, 1)[:, None]).astype(np.float32)
    sharing = (groups >= 0) & (n[groups] > 0)
    return np.where(sharing[:, None], means[groups], user_rows)


def store_losses(state: FedBSOState, accepted: Accepted) -> tuple[FedBSOState, Accepted]:
    """The state with the reported losses, and the accepted updates without them."""
    losses = state.losses.copy()
    reported = accepted.user_rows[:, -1]
    # A loss cannot be negative: a negative report is ignored.
    losses[accepted.users] = np.where(reported >= 0, reported / SCALE, NO_LOSS)
    without = accepted._replace(user_rows=accepted.user_rows[:, :-1])
    return replace(state, losses=losses), without


def aggregate(
    world: World[FedBSO], state: FedBSOState, sums: Sums, accepted: Accepted, t: int
) -> FedBSOState:
    """W[C] for all users, or for one cluster after the other."""
    if world.settings.aggregate == "global":
        averaged: FedBSOState = fedavg.average(world, state, sums, accepted, t)
        return averaged
    w = Parameters(state.user_rows, state.item_rows, state.dense)
    cluster = state.clusters[accepted.users]
    item_rows = state.item_rows.copy()
    dense = state.dense.copy()
    for c in np.unique(cluster).tolist():
        of_cluster = accepted.take(np.flatnonzero(cluster == c))
        cluster_sums = {name: part[c] for name, part in sums.items()}
        cluster_model = replace(w, item_rows=w.item_rows[c], dense=w.dense[c])
        after = fedavg.average(world, cluster_model, cluster_sums, of_cluster, t)
        w = replace(w, user_rows=after.user_rows)
        item_rows[c] = after.item_rows
        dense[c] = after.dense
    return replace(state, user_rows=w.user_rows, item_rows=item_rows, dense=dense)


def model(world: World[FedBSO], state: FedBSOState) -> Recommender:
    if world.settings.aggregate == "global":
        return fedavg.model(world, state)
    w = Parameters(state.user_rows, state.item_rows, state.dense)
    if world.settings.moments == "averaged":
        w = w.without_moments()
    # Users who do not take part get the model of the first cluster.
    groups = np.maximum(state.clusters, 0)
    h = w.dense[:, :-1].copy()
    bias = w.dense[:, -1].copy()
    return GMFGroups(w.user_rows, w.item_rows, h, bias, groups)


SETUP: Exchange[FedBSOState, FedBSO] = Exchange(
    broadcast=fedfast.request_statistics,
    client_update=fedfast.profile_statistics,
    aggregate=fedfast.SETUP.aggregate,
    server_update=first_clusters,
    sizes=fedfast.sizes_of_statistics,
    visible=fedfast.SETUP.visible,
)
EXCHANGE: Exchange[FedBSOState, FedBSO] = Exchange(
    broadcast=broadcast,
    client_update=client_update,
    aggregate=weigh_by_samples,
    server_update=finish,
    sizes=sizes,
    # With aggregate=global, whose sums are FedAvg's; the settings refuse other readings.
    secure_sum=fedavg.EXCHANGE.secure_sum,
    visible=fedavg.VISIBLE,
)

ALGORITHM = Algorithm(
    "FedFast's clusters, perturbed by brain storm optimisation",
    FedBSO,
    Federation(
        init=initialise,
        sample=sample,
        exchanges=(EXCHANGE,),
        model=model,
        setup=lambda world: SETUP,
    ),
    state=FedBSOState,
    kernels=fedavg.ALGORITHM.kernels,
    explicit=True,
    paper="Liu 2024",
    score_new_user=score_by_sampled_loss,
    popularity_prior=1.0,
    in_the_clear=fedavg.IN_THE_CLEAR,
)
