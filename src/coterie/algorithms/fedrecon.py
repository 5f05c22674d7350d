"""FedRecon: clients rebuild their user row in every round, and store nothing.

Singhal, Sidahmed, Garrett, Wu, Rush, Prakash. Federated reconstruction: partially local federated
learning. NeurIPS 2021, Algorithm 1, for matrix factorisation. Global parameters g are the item
rows; local parameters l are the row of a user.

    foreach round t = 0, 1, ...
        S^(t) <- m clients at random
        each client i of S^(t), sent g^(t):
            D_s, D_q <- a support set and a query set of its data
            l   <- R(D_s, L, g^(t))         reconstruct: SGD on l from its start, g frozen
            g_i <- U(D_q, L, l, g^(t))      update: SGD on g, l frozen
            sends g_i - g^(t), and n_i = |D_q|
        g^(t+1) <- ServerUpdate(g^(t), sum_i (n_i / n) (g_i - g^(t))),   n = sum_i n_i

l is never sent and never stored. A user row is needed again to recommend: it is then reconstructed
from the user's whole history, and so is the row of a new user, by the same steps.

What the paper and the authors' code (google-research/federated, reconstruction) leave open, or
what differs here:

- The loss is half the squared error, so that our learning rates are twice theirs. Implicit
  feedback, which the paper does not train on, has cross-entropy over drawn negatives.
- `support_split`: in the authors' code halves are the even and the odd batches of an order that is
  drawn once (`fixed`). We draw them in every round (`anew`); `none` uses all data twice.
- `average`: the formula divides by n of the whole cohort (`all`), so that a row moves by the share
  of the cohort that touched it. `touched` averages over those who did, as our FedAvg does.
- `weights`: n_i in the paper (`samples`), which the server then sees of every client. Equal weights
  (`users`) leave it nothing but sums.
- `biases`: none in the paper's figures; the authors' code has them as an option. Their global bias
  is left out: the bias of a user, rebuilt in every round, contains it.
- `user_start`: random in the authors' code. From zero, one history always gives one row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from coterie import kernels
from coterie.algorithms import fedavg
from coterie.algorithms.algorithm import Algorithm
from coterie.algorithms.local.samples import Samples, draw_from
from coterie.algorithms.server_optimiser import Optimised, ServerOptimiser, server_step
from coterie.core import parallel, streams
from coterie.core.records import Record
from coterie.core.settings import DataSize, SearchSpace
from coterie.data.training_set import TrainingSet
from coterie.federated.federation import (
    NO_LIMIT,
    ON_CLIENTS,
    Accepted,
    Exchange,
    Federation,
    NodeData,
    PrivateState,
    SecureSum,
    Sums,
    World,
)
from coterie.models.factors import rows
from coterie.models.new_user import NewUser
from coterie.models.private_factors import PrivateFactors
from coterie.types import SCALE, Bools, Doubles, Floats, Ints, Message, Rows, Sizes, Updates


class FedRecon(ServerOptimiser):
    search_space: ClassVar[SearchSpace] = {
        "learning_rate": (0.01, 2.0),
        "reconstruction_rate": (0.01, 1.0),
        "reconstruction_epochs": [1, 2, 5, 10],
        "reg": (1e-4, 0.1),
        "start_scale": [0.03, 0.1, 0.3],
        "embedding_size": [8, 16, 32, 64],
    }

    embedding_size: int = Field(16, ge=1, le=4096)
    """Length of every user and item row, without biases; 50 in the paper."""
    biases: bool = True
    """Whether users and items have a bias; not in the paper's figures."""
    support_split: Literal["anew", "fixed", "none"] = "anew"
    """Support and query set: halves drawn in every round, halves drawn once, or all data twice."""
    reconstruction_epochs: int = Field(5, ge=1)
    """Passes over the support set that reconstruct the user row."""
    reconstruction_steps: int = Field(0, ge=0)
    """Most steps of a reconstruction; 50 in the paper. 0 sets no limit."""
    reconstruction_rate: float = Field(0.2, gt=0)
    """Learning rate of the user row."""
    user_start: Literal["zero", "random"] = "zero"
    """Where a reconstruction starts: from zero, or from a random row."""
    local_epochs: int = Field(1, ge=1)
    """Passes over the query set that update item rows."""
    update_steps: int = Field(0, ge=0)
    """Most steps on item rows; 50 in the paper. 0 sets no limit."""
    learning_rate: float | None = Field(None, gt=0)
    """Learning rate of the clients' item rows; by default 1, and 0.1 with ratings."""
    batch_size: int = Field(5, ge=1)
    """Samples per step (their mean gradient)."""
    reg: float = Field(0.005, ge=0)
    """Regularisation of rows and biases; none in the paper."""
    negatives: int = Field(4, ge=1)
    """Negatives drawn per positive (implicit feedback)."""
    average: Literal["all", "touched"] = "touched"
    """Rows are averaged over the clients that trained on them, or over the whole cohort."""
    weights: Literal["users", "samples"] = "users"
    """What a client counts in averages: 1, or its number of query samples, which it then sends."""
    start_scale: float = Field(0.1, ge=0)
    """Standard deviation of the initial values."""

    def for_data(self, size: DataSize) -> Self:
        if self.learning_rate is not None:
            return self
        # The error of a rating is several times that of a probability.
        return self.model_copy(update={"learning_rate": 0.1 if size.rated else 1.0})

    @property
    def update_rate(self) -> float:
        """The learning rate of item rows, once the data is known."""
        assert self.learning_rate is not None
        return self.learning_rate

    @property
    def width(self) -> int:
        """Numbers of a row."""
        return self.embedding_size + self.biases


@dataclass(frozen=True, slots=True)
class FedReconState(Record):
    global_rows: Floats  # g, (items, width): q, then b_i
    first_moment: Floats  # of the server's optimiser, as g
    second_moment: Floats


def init(world: World[FedRecon]) -> FedReconState:
    s = world.settings
    g = np.zeros((world.n_items, s.width), np.float32)
    g[:, : s.embedding_size] = rows(
        world.n_items, s.embedding_size, world.seed, "items", s.start_scale
    )
    return FedReconState(*Optimised.begin(g))


def broadcast(world: World[FedRecon], state: FedReconState, cohort: Ints, t: int) -> Message:
    """g^(t)"""
    return Message(t, cohort, {"global_rows": state.global_rows}, {})


# Support set and query set


def halves(history: TrainingSet, keys: NDArray[np.uint64]) -> tuple[TrainingSet, TrainingSet]:
    """D_s and D_q: each user's interactions in a random order, cut in two.

    The support set has the odd one. A single interaction is in both.
    """
    user = history.users
    counts = history.positives.counts
    place = np.arange(len(user)) - np.repeat(history.positives.offsets[:-1], counts)
    word = streams.mix_array(keys[user] ^ (place.astype(np.uint64) + np.uint64(streams.GOLDEN)))
    rank = np.empty(len(user), np.int64)
    # Users ascend, so that the k-th of a user in this order has the place k.
    rank[np.lexsort((word, user))] = place
    n = counts[user]
    in_support = rank < (n + 1) // 2
    return only(history, in_support), only(history, ~in_support | (n == 1))


def only(history: TrainingSet, kept: Bools) -> TrainingSet:
    """The interactions of a mask. Negatives still exclude all of them."""
    counts = np.bincount(history.users[kept], minlength=history.n_users)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return TrainingSet(
        history.n_users,
        history.n_items,
        Rows(offsets, history.positives.items[kept]),
        history.excluded,
        None if history.ratings is None else history.ratings[kept],
    )


# R: reconstruct the row of a user


def reconstruct(
    support: TrainingSet, g: Floats, settings: FedRecon, keys: NDArray[np.uint64]
) -> Floats:
    """l of every user of the support set."""
    s = settings
    everyone = np.arange(support.n_users)
    samples = draw_from(support, everyone, s.negatives, s.reconstruction_epochs, keys)
    local = start_rows(s, keys)
    kernel = kernels.load("fedrecon").reconstruct
    parallel.over(
        lambda first, last: kernel(
            samples.offsets,
            samples.items,
            samples.starts,
            samples.places,
            samples.targets,
            g,
            support.ratings is not None,
            s.biases,
            s.reconstruction_rate,
            s.reg,
            s.batch_size,
            s.reconstruction_steps or NO_LIMIT,
            first,
            last,
            local,
        ),
        samples.starts,
    )
    return local


def start_rows(settings: FedRecon, keys: NDArray[np.uint64]) -> Floats:
    """l before its reconstruction."""
    local = np.zeros((len(keys), settings.width), np.float32)
    if settings.user_start == "random":
        drawn = streams.normal(streams.mix_array(keys), settings.embedding_size)
        local[:, : settings.embedding_size] = drawn * settings.start_scale
    return local


# U: update the rows of the query set's items


class Query(NamedTuple):
    """The samples of the query sets, and the changes of their item rows."""

    samples: Samples
    changes: Ints  # (rows of the samples, width)


def update(
    query: TrainingSet, local: Floats, g: Floats, settings: FedRecon, keys: NDArray[np.uint64]
) -> Query:
    """g_i - g of the items that each user trains on, in fixed point."""
    s = settings
    everyone = np.arange(query.n_users)
    samples = draw_from(query, everyone, s.negatives, s.local_epochs, keys)
    changes = np.empty((len(samples.items), s.width), np.int32)
    kernel = kernels.load("fedrecon").update
    parallel.over(
        lambda first, last: kernel(
            samples.offsets,
            samples.items,
            samples.starts,
            samples.places,
            samples.targets,
            local,
            g,
            query.ratings is not None,
            s.biases,
            s.update_rate,
            s.reg,
            s.batch_size,
            s.update_steps or NO_LIMIT,
            first,
            last,
            changes,
        ),
        samples.starts,
    )
    return Query(samples, changes)


def client_update(world: World[FedRecon], message: Message, node: NodeData) -> Updates:
    """Reconstruct, then update, for all clients of a node."""
    s = world.settings
    users = message.users
    g = message.common["global_rows"]
    history = node.training.of_users(node.positions(users))
    support = query = history
    if s.support_split != "none":
        drawn_in = message.round if s.support_split == "anew" else 0
        halving = streams.keys(node.seed, "support and query", drawn_in, last=users)
        support, query = halves(history, halving)
    local = reconstruct(
        support, g, s, streams.keys(node.seed, "reconstruct", message.round, last=users)
    )
    samples, changes = update(
        query, local, g, s, streams.keys(node.seed, "samples", message.round, last=users)
    )
    n = len(users)
    none = np.empty((n, 0), np.int32)
    return Updates(
        users=users,
        samples=samples.counts if s.weights == "samples" else np.ones(n, np.int64),
        offsets=samples.offsets,
        items=samples.items,
        item_rows=changes,
        user_rows=none,
        dense=none,
    )


def sizes(world: World[FedRecon], state: FedReconState) -> Sizes:
    return Sizes(world.n_items, world.settings.width, 0, 0)


# ServerUpdate


def add_up(world: World[FedRecon], message: Message, updates: Updates) -> Sums:
    """sum_i n_i (g_i - g), and n over all clients and over those of each item."""
    sums = fedavg.weigh_by_samples(world, message, updates)
    return {name: sums[name] for name in ("items", "touched", "samples")}


def server_update(
    world: World[FedRecon], state: FedReconState, sums: Sums, accepted: Accepted, t: int
) -> FedReconState:
    before = Optimised(state.global_rows, state.first_moment, state.second_moment)
    return FedReconState(*server_step(world.settings, before, mean_change(world, sums)))


def mean_change(world: World[FedRecon], sums: Sums) -> Doubles:
    """sum_i (n_i / n) (g_i - g); n is that of the cohort, or of each item's clients."""
    n = sums["touched"][:, None] if world.settings.average == "touched" else sums["samples"]
    change: Doubles = sums["items"] / np.maximum(n, 1) / SCALE
    return change


# The model. User rows are reconstructed whenever they are needed.


def model(world: World[FedRecon], state: FedReconState) -> PrivateFactors:
    s = world.settings
    q = state.global_rows[:, : s.embedding_size]
    if not s.biases:
        return PrivateFactors(ON_CLIENTS, q, np.zeros(world.n_items, np.float32))
    if world.rated:
        # b_u is part of a predicted rating, and none of a ranking.
        q = np.concatenate([q, np.ones((world.n_items, 1), np.float32)], axis=1)
    return PrivateFactors(ON_CLIENTS, q, state.global_rows[:, s.embedding_size].copy())


def own_rows(world: World[FedRecon], state: FedReconState, node: NodeData) -> PrivateState:
    """Every client reconstructs its row from its whole history."""
    local = reconstruct(
        node.training, state.global_rows, world.settings, same_keys(len(node.users))
    )
    return {"user_rows": local if world.rated else local[:, : world.settings.embedding_size].copy()}


def same_keys(n: int) -> NDArray[np.uint64]:
    """One stream for all users: a row that is not trained on depends on the history alone."""
    return np.full(n, streams.key(0, "reconstruct to recommend"), np.uint64)


def score_new_user(model: PrivateFactors, user: NewUser, settings: FedRecon) -> Floats:
    """A new user reconstructs a row as a client does; without items, they get the average row."""
    if not len(user.items):
        return model.score_row(model.average_row())
    history = Rows(np.array([0, len(user.items)]), user.items)
    n_items, width = model.item_rows.shape
    g = model.item_rows[:, : settings.embedding_size]
    if settings.biases:
        g = np.concatenate([g, model.item_bias[:, None]], axis=1)
    support = TrainingSet(1, n_items, history, history, None)
    local = reconstruct(support, np.ascontiguousarray(g), settings, same_keys(1))
    return model.score_row(local[0, :width])


EXCHANGE: Exchange[FedReconState, FedRecon] = Exchange(
    broadcast=broadcast,
    client_update=client_update,
    aggregate=add_up,
    server_update=server_update,
    sizes=sizes,
    secure_sum=SecureSum(by_item=("items", "touched")),
    visible="how many samples they have",
    hides_visible=lambda world: world.settings.weights == "users",
)

ALGORITHM = Algorithm(
    "clients reconstruct their user row in every round and store nothing",
    FedRecon,
    Federation(
        init=init,
        sample=fedavg.sample,
        exchanges=(EXCHANGE,),
        model=model,
        client_model=own_rows,
        client_model_needs=("global_rows",),
    ),
    state=FedReconState,
    kernels=("fedrecon", "samples", "sums", "clusters"),
    explicit=True,
    paper="Singhal et al. 2021",
    score_new_user=score_new_user,
    popularity_prior=1.0,
    in_the_clear="the items it trained on, and the changes of their rows",
)
