"""FedMF, federated matrix factorisation: clients send gradients of item vectors.

Chai, Wang, Chen, Yang. Secure federated matrix factorization. IEEE Intelligent Systems 36(5), 2021
(arXiv:1906.05108). The model is that of ratings:

    J = sum over ratings of (r_ui - p_u . q_i)^2 + lambda sum_u |p_u|^2 + mu sum_i |q_i|^2

    foreach round
        S sends Q to the clients
        each computes with its own ratings     p_u <- p_u - rate dJ/dp_u
        and sends for its items                rate dJ_u/dq_i = -2 rate (r_ui - p_u . q_i) p_u
        S subtracts all of them                q_i <- q_i - rate sum_u dJ_u/dq_i

The paper shows that gradients of two rounds give away ratings, and so encrypts them with Paillier's
homomorphic encryption, whose key all clients share and the server has not. The encryption is left
out. Its purpose is that the server adds up what it cannot read; `--secure-aggregation` does that
without a key in every client's hands.

`updates`: which rows a client sends. `full` is a row for every item, zero for those it has not
rated; `part` is its own items alone, which tells the server what it rated. Results are the same
bits. Under secure aggregation every item has a row in both.

`virtual`: a client adds unrated items with made-up ratings, so that the rows of `part` no longer
say what it rated. That is FedRec (Lin, Liang, Pan, Ming. FedRec: federated recommendation with
explicit feedback. IEEE Intelligent Systems 36(5), 2021), on which FedRec++ builds (Liang, Pan,
Ming. FedRec++: lossless federated recommendation with explicit feedback. AAAI 2021). Made-up
ratings are noise. FedRec++ takes it out again: some clients collect the gradients of the virtual
items of the others, and their sum is subtracted. Clients that are trusted with those are left out:
what the server then has is the sum without virtual items, which secure aggregation gives as well.

What paper and authors' code (Di-Chai/FedMF) leave open, or where they differ:

- `reading`: in the authors' code p_u moves from rating to rating while Q does not change, and the
  gradient of an item has the p_u after its step, and mu q_i for every rating of the item
  (`authors`). Literally p_u moves once, and all gradients are those at the old p_u (`literal`).
- `start`: in the authors' code all entries of all vectors start at 0.01 (`constant`). Then all
  coordinates of a vector stay equal for ever, so that 100 of them are one. `random` is Gaussian.
- Implicit feedback, which the paper does not train on, has targets 1, and 0 for drawn negatives.
- Clients train on their ratings in a random order; the authors' code has them by time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from coterie import kernels
from coterie.algorithms import fedavg
from coterie.algorithms.algorithm import Algorithm
from coterie.algorithms.local.samples import Samples, draw_from
from coterie.algorithms.local.settings import CohortSettings
from coterie.core import parallel, streams
from coterie.core.records import Record
from coterie.core.settings import DataSize, SearchSpace
from coterie.data.training_set import TrainingSet
from coterie.federated.federation import (
    ON_CLIENTS,
    Accepted,
    ClientResult,
    Exchange,
    FastPaths,
    Federation,
    NodeData,
    PrivateState,
    PrivateSum,
    SinglePass,
    Sums,
    World,
    unweighted,
)
from coterie.federated.privacy.clipping import clipped
from coterie.federated.privacy.settings import clipping_kernels
from coterie.models.factors import rows
from coterie.models.new_user import NewUser, targets_and_weights
from coterie.models.private_factors import PrivateFactors
from coterie.types import SCALE, TOO_LARGE, Floats, Ints, Longs, Message, Sizes, Updates

UPDATE_MEMORY = 1 << 27
"""Bytes of full updates that are held in memory at a time, or one update if that is larger."""


class FedMF(CohortSettings):
    search_space: ClassVar[SearchSpace] = {
        "learning_rate": (1e-4, 0.1),
        "reg_user": (1e-4, 0.3),
        "reg_item": (1e-4, 0.3),
        "embedding_size": [8, 16, 32, 64],
    }

    rounds: int = Field(200, ge=1)
    """Rounds of communication; 175 in the authors' code."""
    participation: float = Field(1.0, gt=0, le=1)
    """Share of the users that takes part in a round; all in the paper."""
    embedding_size: int = Field(16, ge=1, le=4096)
    """Length of every user and item vector; 100 in the authors' code."""
    updates: Literal["full", "part"] = "part"
    """Rows that a client sends: of all items, zero for those it has not rated, or of its own."""
    reading: Literal["authors", "literal"] = "authors"
    """Whether a user's vector moves from rating to rating, or once per round."""
    learning_rate: float | None = Field(None, gt=0)
    """Step size (rate), on clients and on the server; 0.001 in the authors' code. By default 5 by
    the number of users, and 0.5 with ratings, but not above 0.02 and 0.002."""
    reg_user: float = Field(0.05, ge=0)
    """Regularisation of user vectors (lambda); 0.0001 in the authors' code."""
    reg_item: float = Field(0.05, ge=0)
    """Regularisation of item vectors (mu); 0.0001 in the authors' code."""
    negatives: int = Field(4, ge=1)
    """Negatives drawn per positive (implicit feedback)."""
    virtual: int = Field(0, ge=0, le=1000)
    """Unrated items that a client adds per rated one, with virtual ratings (explicit feedback)."""
    virtual_items: Literal["fixed", "anew"] = "fixed"
    """Virtual items: the same in all rounds, or drawn in each, when those of two rounds give away
    what was rated."""
    virtual_ratings: Literal["average", "hybrid"] = "average"
    """Virtual ratings: the mean rating of the user, or from round `hybrid_from` on the client's
    own prediction."""
    hybrid_from: int = Field(10, ge=0)
    """First round whose virtual ratings are predictions (`virtual_ratings=hybrid`)."""
    clip: float = Field(0.01, gt=0)
    """Under a privacy budget: the largest L2 norm of an update, a sum of few gradients of the loss;
    longer ones are shortened."""
    start: Literal["random", "constant"] = "random"
    """Initial values: Gaussian, or all equal as in the authors' code."""
    start_scale: float = Field(0.1, gt=0)
    """Standard deviation of the initial values, or the value; 0.01 in the authors' code."""

    def for_data(self, size: DataSize) -> Self:
        if self.learning_rate is not None:
            return self
        # Gradients are summed over users. The error of a rating is that of several probabilities.
        rate = min(5 / size.users, 0.02) * (0.1 if size.rated else 1.0)
        return self.model_copy(update={"learning_rate": rate})

    @property
    def rate(self) -> float:
        """The step size, once the data is known."""
        assert self.learning_rate is not None
        return self.learning_rate


@dataclass(frozen=True, slots=True)
class FedMFState(Record):
    private: ClassVar[tuple[str, ...]] = ("user_rows",)
    item_rows: Floats  # Q
    user_rows: Floats  # p, on the clients


def init(world: World[FedMF]) -> FedMFState:
    s = world.settings
    shape = (world.n_items, s.embedding_size)
    if s.start == "constant":
        return FedMFState(np.full(shape, s.start_scale, np.float32), ON_CLIENTS)
    return FedMFState(rows(*shape, world.seed, "items", s.start_scale), ON_CLIENTS)


def init_clients(world: World[FedMF], node: NodeData) -> PrivateState:
    """The initial vector of every user."""
    s = world.settings
    if s.start == "constant":
        shape = (len(node.users), s.embedding_size)
        return {"user_rows": np.full(shape, s.start_scale, np.float32)}
    keys = streams.keys(node.seed, "start users", last=node.users)
    drawn = streams.normal(keys, s.embedding_size) * s.start_scale
    return {"user_rows": drawn.astype(np.float32)}


def broadcast(world: World[FedMF], state: FedMFState, cohort: Ints, t: int) -> Message:
    return Message(t, cohort, {"item_rows": state.item_rows}, {})


# Clients move their own vector, and send gradients


def gradients(
    world: World[FedMF], message: Message, node: NodeData
) -> tuple[Updates, PrivateState]:
    """-rate dJ_u/dq_i of the items that a client trained on, and its next vector."""
    s = world.settings
    keys = streams.keys(node.seed, "samples", message.round, last=message.users)
    before = message.private_state["user_rows"]
    if s.virtual and node.training.ratings is not None:
        samples = with_virtual_ratings(world, message, node, keys)
    else:
        samples = draw_from(node.training, node.positions(message.users), s.negatives, 1, keys)
    after = np.empty_like(before)
    changes = np.empty((len(samples.items), s.embedding_size), np.int32)
    kernel = kernels.load("fedmf").train
    parallel.over(
        lambda first, last: kernel(
            samples.offsets,
            samples.items,
            samples.starts,
            samples.places,
            samples.targets,
            before,
            message.common["item_rows"],
            s.rate,
            s.reg_user,
            s.reg_item,
            s.reading == "literal",
            first,
            last,
            after,
            changes,
        ),
        samples.starts,
    )
    n = len(message.users)
    none = np.empty((n, 0), np.int32)
    updates = Updates(
        users=message.users,
        samples=np.ones(n, np.int64),
        offsets=samples.offsets,
        items=samples.items,
        item_rows=changes,
        user_rows=none,
        dense=none,
    )
    return updates, {"user_rows": after}


def with_virtual_ratings(
    world: World[FedMF], message: Message, node: NodeData, keys: NDArray[np.uint64]
) -> Samples:
    """A client's ratings, each followed by unrated items that it makes up ratings for."""
    s = world.settings
    users = node.positions(message.users)
    if s.virtual_items == "fixed":
        keys = streams.keys(node.seed, "virtual items", last=message.users)
    unrated = replace(node.training, ratings=None)
    samples = draw_from(unrated, users, s.virtual, 1, keys)
    client = np.repeat(np.arange(len(users)), samples.counts)
    items = samples.items[samples.offsets[client] + samples.places]
    real = samples.targets > 0
    ratings = known_ratings(node.training, users[client[real]], items[real])
    total = np.bincount(client[real], ratings, len(users))
    mean = total / np.maximum(np.bincount(client[real], minlength=len(users)), 1)
    targets = mean[client].astype(np.float32)
    if s.virtual_ratings == "hybrid" and message.round >= s.hybrid_from:
        p = message.private_state["user_rows"][client]
        q = message.common["item_rows"][items]
        targets = (p * q).sum(axis=1).astype(np.float32)
    targets[real] = ratings
    return replace(samples, targets=targets)


def known_ratings(training: TrainingSet, users: Longs, items: Ints) -> Floats:
    """The ratings of pairs of users and items of a training set."""
    assert training.ratings is not None
    pairs = training.users.astype(np.int64) * training.n_items + training.positives.items
    found: Floats = training.ratings[np.searchsorted(pairs, users * training.n_items + items)]
    return found


def client_update(world: World[FedMF], message: Message, node: NodeData) -> ClientResult:
    updates, private_state = gradients(world, message, node)
    if world.settings.updates == "full":
        updates = with_zero_rows(updates, world.n_items)
    return updates, private_state


def with_zero_rows(part: Updates, n_items: int) -> Updates:
    """The same updates with a row for every item."""
    n = len(part)
    user = np.repeat(np.arange(n), np.diff(part.offsets))
    full = np.zeros((n, n_items, part.item_rows.shape[1]), np.int32)
    full[user, part.items] = part.item_rows
    return replace(
        part,
        offsets=np.arange(n + 1) * n_items,
        items=np.tile(np.arange(n_items, dtype=np.int32), n),
        item_rows=full.reshape(n * n_items, -1),
    )


def sizes(world: World[FedMF], state: FedMFState) -> Sizes:
    return Sizes(world.n_items, state.item_rows.shape[1], 0, 0)


def chunk_size(world: World[FedMF], state: FedMFState) -> int:
    """Full updates are as large as the catalogue: those of a cohort may not fit into memory."""
    update_bytes = 4 * world.n_items * (1 + int(state.item_rows.shape[1]))
    return max(UPDATE_MEMORY // update_bytes, 1)


# S adds up, and takes the step


def add_up(world: World[FedMF], message: Message, updates: Updates) -> Sums:
    """-rate sum_u dJ_u/dq_i"""
    return {"items": fedavg.weigh_by_samples(world, message, updates)["items"]}


def descend(
    world: World[FedMF], state: FedMFState, sums: Sums, accepted: Accepted, t: int
) -> FedMFState:
    """q_i <- q_i - rate dJ/dq_i. Literally, mu q_i is part of it once."""
    s = world.settings
    keep = 1 - 2 * s.rate * s.reg_item if s.reading == "literal" else 1.0
    after = keep * state.item_rows + sums["items"] / SCALE
    return replace(state, item_rows=after.astype(np.float32))


def single_pass(world: World[FedMF], message: Message, node: NodeData) -> SinglePass | None:
    """The same sums, without rows of zeros."""
    updates, private_state = gradients(world, message, node)
    rows = updates.item_rows
    if rows.min(initial=0) <= -TOO_LARGE or rows.max(initial=0) >= TOO_LARGE:
        return None
    n_rows: Longs = np.diff(updates.offsets)
    if world.settings.updates == "full":
        n_rows = np.full(len(updates), world.n_items)
    return SinglePass(
        sums=add_up(world, message, updates),
        accepted=Accepted(updates.users, updates.samples, updates.user_rows),
        n_rows=n_rows,
        private_state=private_state,
    )


def model(world: World[FedMF], state: FedMFState) -> PrivateFactors:
    return PrivateFactors(state.user_rows, state.item_rows, np.zeros(world.n_items, np.float32))


def score_new_user(model: PrivateFactors, user: NewUser, settings: FedMF) -> Floats:
    """A new user solves for the vector with the least squared error, and sends nothing.

    Targets are those of implicit feedback, all other items having the weight of drawn negatives.
    """
    if not len(user.items):
        return model.score_row(model.average_row())
    Q = model.item_rows.astype(np.float64)
    target, weight = targets_and_weights(len(Q), user.items, settings.negatives)
    ridge = max(settings.reg_user, 1e-6) * weight.sum()
    system = (Q * weight[:, None]).T @ Q + ridge * np.eye(Q.shape[1])
    p = np.linalg.solve(system, Q.T @ (weight * target))
    return model.score_row(p.astype(np.float32))


EXCHANGE = clipped(
    Exchange(
        broadcast=broadcast,
        client_update=client_update,
        aggregate=add_up,
        server_update=descend,
        sizes=sizes,
        fast=FastPaths(chunk_size=chunk_size, single_pass=single_pass),
        secure_sum=unweighted(by_item=("items",)),
    ),
    PrivateSum(
        releases=lambda world: world.settings.rounds,
        cohort_size=fedavg.cohort_size,
        drawn_anew=True,
    ),
)

ALGORITHM = Algorithm(
    "matrix factorisation; clients send gradients of item vectors, which the server adds up",
    FedMF,
    Federation(
        init=init,
        sample=fedavg.sample,
        exchanges=(EXCHANGE,),
        model=model,
        init_clients=init_clients,
    ),
    state=FedMFState,
    kernels=lambda settings: ("fedmf", "samples", "sums", "clusters", *clipping_kernels(settings)),
    explicit=True,
    paper="Chai et al. 2021",
    score_new_user=score_new_user,
    popularity_prior=1.0,
    in_the_clear="gradients of the items it trained on, two rounds of which give away its ratings",
)
