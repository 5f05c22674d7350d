"""FedBSO: FedFast's clusters, stirred up by ideas of brain storm optimisation so that they do not stay as they are.

Liu. Decentralized recommendation system based on BSO. Undergraduate thesis, Southern University of Science and Technology,
2024.

    Algorithm 2  FedBSO
     1      initialise w_0, P_0, p, G_0
     2      foreach round t = 0, 1, ...
     3          G_t <- ClusterUsersByCenter(K, p, P, G_{t-1})          k-means from the centres of the round before
     4          G_t <- GetBestUser(G_t)                                 the best user of a cluster becomes its centre
     5-9        if r_1 < p5:  a random user replaces the centre of a random cluster
    10-14       if r_2 < p6:  two random clusters swap their centres
    15          foreach cluster c in G_t in parallel
    16              m <- max(ceil(alpha |c|), 1)
    17              C <- m users of c at random
    18-20           foreach user k in C in parallel:  w^k <- ClientUpdate(k)
    21              W[C] <- sum_k n_k w^k / sum_k n_k

Here lines 3 to 14 of round t + 1 run at the end of round t, where P is known. Open in the thesis, and settings here: which
user is best (`best_user`), when a new centre counts (`new_centres`), what a swap does (`swap`), what P is after the first round
(`cluster_by`), whose model an aggregate is (`aggregate`) and over whom it is averaged (`average`), what happens to those
who did not train (`discount`) and to Adam's moments (`moments`). docs/papers/fedbso.md has what each of them is worth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from coterie.algorithms import clustering as clusters
from coterie.algorithms import fedavg, fedfast
from coterie.algorithms.algorithm import Algorithm
from coterie.algorithms.local.learner import Parameters, embeddings
from coterie.algorithms.local.samples import Samples, draw
from coterie.core import streams
from coterie.errors import ConfigError
from coterie.federated.federation import Accepted, Exchange, Federation, NodeData, Sums, World
from coterie.models.gmf_groups import GMFGroups
from coterie.models.recommender import Recommender
from coterie.types import SCALE, Doubles, Floats, Ints, Message, Sizes, Updates

UNHEARD = np.finfo(np.float32).max
MOST_BYTES = 4 << 30


class FedBSO(fedfast.FedFast, fedavg.FedAvg):
    participation: float = Field(0.1, gt=0, le=1)
    """Share of every cluster's users that takes part in a round (alpha), at least one of each."""
    cluster_iterations: int = Field(3, ge=1)
    """Iterations of k-means a round; it goes on from the users that are centres."""
    cluster_by: Literal["embeddings", "statistics"] = "embeddings"
    """What P is after the first round: the users' embeddings, or still the statistics that devices sent before it."""
    average: Literal["all", "touched"] = "touched"
    """Whether rows are averaged over everybody (line 21 literally) or over those users who trained on them."""
    discount: Literal["exp", "inverse", "constant", "none"] = "exp"
    """How much those who did not train follow the delegates of the cluster both were in: exp(-t), 1 / (1 + t), 1, not at all."""
    replacement_rate: float = Field(0.5, ge=0, le=1)
    """How often a random user replaces a centre (p5)."""
    swap_rate: float = Field(0.5, ge=0, le=1)
    """How often two clusters swap their centres (p6)."""
    best_user: Literal["nearest", "loss"] = "nearest"
    """Who becomes the centre: whoever is nearest to the mean, or has the lowest loss, which devices then disclose (gmf)."""
    new_centres: Literal["next", "now"] = "next"
    """When a replaced centre counts: as a start of the next clustering, or at once, everybody joining the nearest centre."""
    swap: Literal["members", "centres"] = "members"
    """What is swapped: the two users, who join each other's cluster, or only their places as starts of the next clustering, which
    renames two clusters and changes nothing else unless each has a model of its own (aggregate=cluster)."""
    aggregate: Literal["global", "cluster"] = "global"
    """Whose model an aggregate is: everybody's, or the cluster's own (gmf)."""

    @model_validator(mode="after")
    def _readings_for_gmf_alone(self) -> FedBSO:
        for name, value in (("best_user", "loss"), ("aggregate", "cluster")):
            if getattr(self, name) == value and self.model != "gmf":
                raise ValueError(
                    f"{name}={value} is for model=gmf, but the model is {self.model}. Set model=gmf"
                )
        return self


@dataclass(frozen=True, slots=True)
class FedBSOState(Parameters):
    """The parameters; where an aggregate is the cluster's own (`aggregate=cluster`), `item_rows` is
    (clusters, items, width) and `dense` is (clusters, size)."""

    clusters: Ints  # (users,) G; -1 for those who do not take part
    centres: Ints  # (clusters,) the user in the middle of each
    profiles: Floats  # (users, statistics) P where it stays what it was
    losses: Floats  # (users,) what a user last said; UNHEARD before that


# Line 1


def initialise(world: World[FedBSO]) -> FedBSOState:
    """w_0, with a copy for every cluster where clusters have models of their own."""
    settings = world.settings
    people = np.flatnonzero(world.members).astype(np.int32)
    w = fedavg.init(world)
    n = min(settings.clusters, len(people))
    if settings.aggregate == "cluster":
        w = replace(w, item_rows=np.tile(w.item_rows, (n, 1, 1)), dense=np.tile(w.dense, (n, 1)))
    return FedBSOState(
        w.user_rows,
        w.item_rows,
        w.dense,
        clusters=np.where(world.members, 0, -1).astype(np.int32),
        centres=people[:n],
        profiles=np.zeros((world.n_users, fedfast.N_STATISTICS), np.float32),
        losses=np.full(world.n_users, UNHEARD, np.float32),
    )


def first_clusters(
    world: World[FedBSO], state: FedBSOState, sums: Sums, delegates: Accepted, t: int
) -> FedBSOState:
    """G_0 from P_0, and lines 4 to 14 of the first round."""
    profiles = fedfast.profiles(world, delegates)
    labels = clusters.first_clusters(profiles, world.members, world.settings.clusters, world.seed)
    return stir(world, replace(state, profiles=profiles), profiles, labels, t)


# Lines 3 to 14


def cluster_anew(world: World[FedBSO], state: FedBSOState, t: int) -> FedBSOState:
    """Line 3 of round t, then the rest."""
    settings = world.settings
    rows = (
        state.profiles
        if settings.cluster_by == "statistics"
        else embeddings(settings, state.user_rows)
    )
    labels = cluster_users_by_center(
        rows, state.clusters, state.centres, settings.cluster_iterations
    )
    return stir(world, state, rows, labels, t)


def cluster_users_by_center(rows: Floats, labels: Ints, centres: Ints, iterations: int) -> Ints:
    """k-means whose first centres are the rows of given users, as these rows are now."""
    labels = labels.copy()
    clusters.assign(rows, rows[centres], labels)
    return clusters.kmeans(rows, labels, len(centres), iterations - 1)


def stir(
    world: World[FedBSO], state: FedBSOState, rows: Floats, labels: Ints, t: int
) -> FedBSOState:
    """Lines 4 to 14: the centres of round t and, where a reading says so, who belongs to them; `rows` is P."""
    settings = world.settings
    rng = streams.at(world.seed, "brain storm", t)
    centres = get_best_user(
        rows, labels, state.centres, state.losses if settings.best_user == "loss" else None
    )
    replaced = replace_center(
        rng, centres, np.flatnonzero(world.members), settings.replacement_rate
    )
    if settings.new_centres == "now" and (replaced != centres).any():
        labels = labels.copy()
        clusters.assign(rows, rows[replaced], labels)
    labels, centres = swap_centers(
        rng, labels, replaced, settings.swap_rate, settings.swap == "members"
    )
    return replace(state, clusters=labels, centres=centres)


def get_best_user(rows: Floats, labels: Ints, centres: Ints, losses: Floats | None = None) -> Ints:
    """Line 4: the nearest to the mean, or the lowest loss where one is known; the first of equals. An empty cluster keeps its."""
    n = len(centres)
    sums, counts = clusters.totals(rows, labels, n)
    means = sums / np.maximum(counts, 1)[:, None]
    away = (
        ((rows - means[labels]) ** 2).sum(axis=1).astype(np.float32)
    )  # two alone are equally near, but for rounding
    best = _least(away, labels, centres)
    if losses is None:
        return best
    told = np.where(losses < UNHEARD, labels, -1)
    return _least(losses, told, best)


def _least(values: Floats, labels: Ints, otherwise: Ints) -> Ints:
    """Per cluster, the first user with the least value."""
    people = np.flatnonzero(labels >= 0)
    least = np.full(len(otherwise), np.inf, np.float32)
    np.minimum.at(least, labels[people], values[people])
    people = people[values[people] == least[labels[people]]]
    found, first = np.unique(labels[people], return_index=True)
    best = otherwise.copy()
    best[found] = people[first]
    return best


def replace_center(rng: np.random.Generator, centres: Ints, people: np.ndarray, p5: float) -> Ints:
    """Lines 5 to 9. Every draw is made, whatever comes of it, so that no rate changes another's luck."""
    r1 = rng.random()
    u = people[rng.integers(len(people))]
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
    return clusters.draw(
        groups,
        users_a_cluster(clusters.sizes_of(groups), world.settings.participation),
        world.seed,
        t,
    )


def users_a_cluster(sizes: np.ndarray, alpha: float) -> np.ndarray:
    """m <- max(ceil(alpha |c|), 1), line 16; nobody of an empty cluster."""
    return np.array(
        [max(math.ceil(round(alpha * int(size), 9)), 1) if size else 0 for size in sizes], np.int64
    )


def broadcast(world: World[FedBSO], state: FedBSOState, cohort: Ints, t: int) -> Message:
    """w_t: everybody's, or each user's cluster's."""
    if world.settings.aggregate == "global":
        return fedavg.broadcast(world, state, cohort, t)
    mine = state.clusters[cohort]
    refuse_huge(len(cohort) * state.item_rows[0].nbytes)
    own = {
        "user_rows": state.user_rows[cohort],
        "item_rows": state.item_rows[mine],
        "dense": state.dense[mine],
    }
    return Message(t, cohort, {}, own | {"cluster": mine})


def client_update(world: World[FedBSO], message: Message, node: NodeData) -> Updates:
    if world.settings.aggregate == "global":
        return train_and_tell(world, message, node)
    parts = []
    of = message.own["cluster"]
    for c in np.unique(of).tolist():
        here = np.flatnonzero(of == c)
        common = {name: message.own[name][here[0]] for name in ("item_rows", "dense")}
        own = {"user_rows": message.own["user_rows"][here]}
        parts.append(
            train_and_tell(world, Message(message.round, message.users[here], common, own), node)
        )
    return Updates.joined(parts)


def refuse_huge(size: int) -> None:
    """Everybody of a round gets a table; here they are all in one place."""
    if size > MOST_BYTES:
        raise ConfigError(
            f"aggregate=cluster sends everybody of a round item rows of its own, {size / 2**30:.1f} GiB together; expected at most "
            f"{MOST_BYTES / 2**30:.0f}. Lower participation or embedding_size, or set aggregate=global."
        )


def train_and_tell(world: World[FedBSO], message: Message, node: NodeData) -> Updates:
    """FedAvg's ClientUpdate(k); where the best user is the one with the lowest loss, behind the user's row stands its own."""
    samples = draw(world, message.users, message.round, node)
    updates = fedavg.train_on(samples, world, message, node)
    if world.settings.best_user != "loss":
        return updates
    mean_losses = losses(world, message, samples, node.training.ratings is not None)
    told = np.rint(mean_losses / (1 + mean_losses) * SCALE).astype(
        np.int32
    )  # in the same order, and below 1 whatever the data
    return replace(updates, user_rows=np.column_stack([updates.user_rows, told]))


def losses(world: World[FedBSO], message: Message, samples: Samples, rated: bool) -> Doubles:
    """Every user's mean loss on its samples, by the parameters it was sent."""
    p = embeddings(world.settings, message.own["user_rows"])
    q = message.common["item_rows"][:, : p.shape[1]]
    h = message.common["dense"]
    person = np.repeat(np.arange(len(message.users)), samples.counts)
    items = samples.items[samples.offsets[person] + samples.places]
    y = ((p * h[: p.shape[1]])[person] * q[items]).sum(axis=1, dtype=np.float64) + h[p.shape[1]]
    each = (y - samples.targets) ** 2 / 2 if rated else np.logaddexp(0, y) - samples.targets * y
    return np.add.reduceat(each, samples.starts[:-1]) / samples.counts


def sizes(world: World[FedBSO], state: FedBSOState) -> Sizes:
    width = state.item_rows.shape[-1]
    told = int(world.settings.best_user == "loss")
    return Sizes(world.n_items, width, state.user_rows.shape[1] + told, state.dense.shape[-1])


# Line 21


def weigh_by_samples(world: World[FedBSO], message: Message, updates: Updates) -> Sums:
    """FedAvg's sums; one after the other for every cluster where clusters have models of their own."""
    if world.settings.aggregate == "global":
        return fedavg.weigh_by_samples(world, message, updates)
    of = message.own["cluster"][np.searchsorted(message.users, updates.users)]
    parts = [
        fedavg.weigh_by_samples(world, message, updates.take(np.flatnonzero(of == c)))
        for c in range(of.max() + 1)
    ]
    return {name: np.stack([part[name] for part in parts]) for name in parts[0]}


def finish(
    world: World[FedBSO], state: FedBSOState, sums: Sums, delegates: Accepted, t: int
) -> FedBSOState:
    if world.settings.best_user == "loss":
        state, delegates = hear_losses(state, delegates)
    after = aggregate(world, state, sums, delegates, t)
    fedfast.update_subordinates(
        after.user_rows, state.clusters, delegates, fedfast.discount(world, t)
    )
    return cluster_anew(world, after, t + 1)


def hear_losses(state: FedBSOState, delegates: Accepted) -> tuple[FedBSOState, Accepted]:
    known = state.losses.copy()
    told = delegates.user_rows[:, -1]
    known[delegates.users] = np.where(
        told >= 0, told / SCALE, UNHEARD
    )  # no loss is negative: whoever says so said nothing
    return replace(state, losses=known), delegates._replace(user_rows=delegates.user_rows[:, :-1])


def aggregate(
    world: World[FedBSO], state: FedBSOState, sums: Sums, delegates: Accepted, t: int
) -> FedBSOState:
    """W[C] for everybody, or for each cluster in turn."""
    if world.settings.aggregate == "global":
        averaged: FedBSOState = fedavg.average(world, state, sums, delegates, t)
        return averaged
    w = Parameters(state.user_rows, state.item_rows, state.dense)
    of = state.clusters[delegates.users]
    item_rows = state.item_rows.copy()
    dense = state.dense.copy()
    for c in np.unique(of).tolist():
        mine = Accepted(*(column[of == c] for column in delegates))
        table = replace(w, item_rows=w.item_rows[c], dense=w.dense[c])
        after = fedavg.average(
            world, table, {name: part[c] for name, part in sums.items()}, mine, t
        )
        w = replace(w, user_rows=after.user_rows)
        item_rows[c] = after.item_rows
        dense[c] = after.dense
    return replace(state, user_rows=w.user_rows, item_rows=item_rows, dense=dense)


def model(world: World[FedBSO], state: FedBSOState) -> Recommender:
    if world.settings.aggregate == "global":
        return fedavg.model(world, state)
    w: Any = Parameters(state.user_rows, state.item_rows, state.dense)
    w = w.without_moments() if world.settings.moments == "averaged" else w
    groups = np.maximum(
        state.clusters, 0
    )  # who does not take part is shown what the first cluster is
    return GMFGroups(
        w.user_rows, w.item_rows, w.dense[:, :-1].copy(), w.dense[:, -1].copy(), groups
    )


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
)

ALGORITHM = Algorithm(
    "FedFast's clusters, stirred up by brain storm optimisation",
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
)
