"""CoLR, correlated low-rank structure: clients send a few numbers an item instead of a row.

Nguyen, Nguyen, Nguyen, Hoang, Le, Wong. Towards efficient communication and secure federated
recommendation system via low-rank training. WWW 2024 (arXiv:2401.03748). The model is matrix
factorisation with cross-entropy; the row of a user is the client's own.

    foreach round t
        S draws B^(t), (rank, d), from a seed that the clients know, and sends Q^(t)
        each client of the round sets A_u <- 0 and trains, on its positives and drawn negatives,
            its own row p_u and A_u, (items, rank); the row of item i is Q_i + A_ui B; Q and B stay
        and sends A_u
        S adds up, with C_i the clients that trained on item i
            Q_i^(t+1) <- Q_i^(t) + (sum_u A_ui / |C_i|) B^(t)

All clients of a round share B, so that the sum of their low-rank updates is low-rank too, and is
found by adding up: under secure aggregation or homomorphic encryption as well. That is not so for
updates that every client compresses by itself (SVD, top-k). `rank` is the dial: up goes a share of
rank / d of what matrix factorisation sends. With `rank=embedding_size` it is matrix factorisation.

What paper and authors' code (NNHieu/CoLR-FedRec) leave open, or what differs here:

- What goes down. A client that knows Q^(t) needs only the mean of A to know Q^(t+1), and the paper
  counts that. A client that missed rounds needs all of Q, which is what we send and count.
  `basis=once` draws one B for all rounds: then Q is known from the seed and the sum of all means,
  so that `rank` numbers an item go down as well; but Q never leaves the span of B.
- `directions`: the rows of B are orthonormal times sqrt(d / rank) in the authors' runs; their code
  also has Gaussian entries of variance 1 / rank.
- `scaled_steps`: the authors' code multiplies gradients by A with sqrt(rank / d).
- `average`: over the clients that trained on an item in the authors' code (`touched`), by a count
  that is summed like A; over the whole cohort (`all`).
- The authors' client trains in batches of 256 with a learning rate of 0.5, the mean gradient of an
  item being that over its own samples in the batch. Ours takes sample by sample by default.
- Their clients take turns; ours are drawn at random.
- SCoLR, in which slow clients train on fewer rows of B, is left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from coterie import kernels
from coterie.algorithms import fedavg
from coterie.algorithms.algorithm import Algorithm, score_by_sampled_loss
from coterie.algorithms.local.samples import draw
from coterie.algorithms.local.settings import CohortSettings
from coterie.core import parallel, streams
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
from coterie.models.factors import rows
from coterie.models.private_gmf import PrivateGMF
from coterie.types import SCALE, Floats, Ints, Message, Sizes, Updates


class CoLR(CohortSettings):
    search_space: ClassVar[SearchSpace] = {
        "learning_rate": (0.005, 0.5),
        "reg": (1e-4, 0.1),
        "negatives": [2, 4, 8],
        "start_scale": [0.03, 0.1, 0.3],
        "local_epochs": [1, 2, 5],
    }

    rank: int = Field(4, ge=1, le=4096)
    """Numbers an item that a client sends, at most `embedding_size`; 1 to 32 of 64 in the paper."""
    embedding_size: int = Field(32, ge=1, le=4096)
    """Length of every user and item row (d); 64 in the paper on MovieLens, 16 on Pinterest."""
    basis: Literal["anew", "once"] = "anew"
    """Whether B is drawn in every round, as in the paper, or once. Then `rank` numbers an item are
    enough in the message to clients too."""
    directions: Literal["orthonormal", "gaussian"] = "orthonormal"
    """Rows of B: orthonormal times sqrt(d / rank), or of Gaussian entries of variance 1 / rank."""
    scaled_steps: bool = True
    """Whether steps on A are shortened by sqrt(rank / d), as in the authors' code."""
    local_epochs: int = Field(2, ge=1)
    """Passes of a client over its own data in a round; 2 in the authors' code."""
    batch_size: int = Field(1, ge=1)
    """Samples per local step; 256 in the authors' code on MovieLens."""
    learning_rate: float = Field(0.2, gt=0)
    """Learning rate of the clients; 0.5 in the authors' code, with its batches."""
    reg: float = Field(0.003, ge=0)
    """Regularisation of user and item rows; twice 0.0005 in the authors' code on MovieLens."""
    negatives: int = Field(4, ge=1)
    """Negatives drawn per positive."""
    average: Literal["all", "touched"] = "touched"
    """A is averaged over the clients that trained on the item, or over the whole cohort."""
    start_scale: float = Field(0.1, ge=0)
    """Standard deviation of the initial values; 1 / sqrt(d) in the authors' code."""

    @model_validator(mode="after")
    def _rank_is_at_most_the_size(self) -> CoLR:
        if self.rank > self.embedding_size:
            raise ValueError(
                f"setting 'rank' is {self.rank}, and 'embedding_size' {self.embedding_size}; "
                f"expected a rank up to that size. Set rank={self.embedding_size} or less"
            )
        return self

    @property
    def item_rate(self) -> float:
        """Learning rate of A."""
        shortened = math.sqrt(self.rank / self.embedding_size) if self.scaled_steps else 1.0
        rate: float = self.learning_rate * shortened
        return rate


@dataclass(frozen=True, slots=True)
class CoLRState(Record):
    private: ClassVar[tuple[str, ...]] = ("user_rows",)
    item_rows: Floats  # (items, d) Q^(t), or Q^(0) where B is drawn once
    factors: Floats  # (items, rank) the sum of all means of A where B is drawn once, or (items, 0)
    user_rows: Floats  # (users, d) p, on the clients


def init(world: World[CoLR]) -> CoLRState:
    columns = world.settings.rank if world.settings.basis == "once" else 0
    factors = np.zeros((world.n_items, columns), np.float32)
    return CoLRState(first_rows(world), factors, ON_CLIENTS)


def first_rows(world: World[CoLR]) -> Floats:
    """Q^(0), which everybody can draw."""
    s = world.settings
    return rows(world.n_items, s.embedding_size, world.seed, "items", s.start_scale)


def init_clients(world: World[CoLR], node: NodeData) -> PrivateState:
    """The initial row of every user."""
    s = world.settings
    keys = streams.keys(node.seed, "start users", last=node.users)
    drawn = streams.normal(keys, s.embedding_size) * s.start_scale
    return {"user_rows": drawn.astype(np.float32)}


# S draws B


def draw_basis(world: World[CoLR], t: int) -> Floats:
    """B^(t), (rank, d). Server and clients draw it from the same seed, so that it is not sent."""
    s = world.settings
    drawn_in = t if s.basis == "anew" else 0
    keys = streams.keys(world.seed, "basis", drawn_in, last=np.arange(s.rank))
    drawn = streams.normal(keys, s.embedding_size)
    if s.directions == "gaussian":
        return (drawn / math.sqrt(s.rank)).astype(np.float32)
    return (orthonormal(drawn) * math.sqrt(s.embedding_size / s.rank)).astype(np.float32)


def orthonormal(drawn: np.ndarray) -> np.ndarray:
    """Orthonormal rows with the same span (Gram-Schmidt, twice for precision), without LAPACK."""
    found = np.zeros_like(drawn)
    for j, row in enumerate(drawn):
        for _ in range(2):
            along = (found[:j] * row).sum(axis=1)
            row = row - (along[:, None] * found[:j]).sum(axis=0)
        found[j] = row / math.sqrt((row * row).sum())
    return found


def moved_within(item_rows: Floats, factors: Floats, basis: Floats) -> Floats:
    """Q + A B, without BLAS, whose bits depend on the number of threads."""
    change = np.einsum("ij,jf->if", factors, basis, optimize=False)
    moved: Floats = (item_rows + change).astype(np.float32)
    return moved


def broadcast(world: World[CoLR], state: CoLRState, cohort: Ints, t: int) -> Message:
    """Q^(t), or what clients compute it from."""
    if world.settings.basis == "once":
        return Message(t, cohort, {"factors": state.factors}, {})
    return Message(t, cohort, {"item_rows": state.item_rows}, {})


# Clients train p_u and A_u


def client_update(world: World[CoLR], message: Message, node: NodeData) -> ClientResult:
    """A_u of the items that a client trained on, and its next row."""
    s = world.settings
    basis = draw_basis(world, message.round)
    samples = draw(world, message.users, message.round, node)
    before = message.private_state["user_rows"]
    after = np.empty_like(before)
    factors = np.empty((len(samples.items), s.rank), np.int32)
    item_rows = received_rows(world, message, basis)
    kernel = kernels.load("colr").train
    parallel.over(
        lambda first, last: kernel(
            samples.offsets,
            samples.items,
            samples.starts,
            samples.places,
            samples.targets,
            before,
            item_rows,
            basis,
            s.learning_rate,
            s.item_rate,
            s.reg,
            s.batch_size,
            first,
            last,
            after,
            factors,
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
        item_rows=factors,
        user_rows=none,
        dense=none,
    )
    return updates, {"user_rows": after}


def received_rows(world: World[CoLR], message: Message, basis: Floats) -> Floats:
    """Q^(t)"""
    if world.settings.basis == "once":
        return moved_within(first_rows(world), message.common["factors"], basis)
    return message.common["item_rows"]


def sizes(world: World[CoLR], state: CoLRState) -> Sizes:
    return Sizes(world.n_items, world.settings.rank, 0, 0)


# S adds up


def add_up(world: World[CoLR], message: Message, updates: Updates) -> Sums:
    """sum_u A_u, |C_i|, and the number of clients."""
    sums = fedavg.weigh_by_samples(world, message, updates)
    return {name: sums[name] for name in ("items", "touched", "samples")}


def server_update(
    world: World[CoLR], state: CoLRState, sums: Sums, accepted: Accepted, t: int
) -> CoLRState:
    """Q_i <- Q_i + (sum_u A_ui / |C_i|) B"""
    touched = world.settings.average == "touched"
    n = sums["touched"][:, None] if touched else sums["samples"]
    mean = (sums["items"] / np.maximum(n, 1) / SCALE).astype(np.float32)
    if world.settings.basis == "once":
        return replace(state, factors=state.factors + mean)
    return replace(state, item_rows=moved_within(state.item_rows, mean, draw_basis(world, t)))


def model(world: World[CoLR], state: CoLRState) -> PrivateGMF:
    """y = p . q, as GMF whose output layer is one."""
    item_rows = state.item_rows
    if world.settings.basis == "once":
        item_rows = moved_within(item_rows, state.factors, draw_basis(world, 0))
    d = world.settings.embedding_size
    return PrivateGMF(state.user_rows, item_rows, np.ones(d, np.float32), np.zeros(1, np.float32))


EXCHANGE: Exchange[CoLRState, CoLR] = Exchange(
    broadcast=broadcast,
    client_update=client_update,
    aggregate=add_up,
    server_update=server_update,
    sizes=sizes,
    secure_sum=unweighted(by_item=("items", "touched")),
)

ALGORITHM = Algorithm(
    "matrix factorisation; clients send low-rank updates of the item rows",
    CoLR,
    Federation(
        init=init,
        sample=fedavg.sample,
        exchanges=(EXCHANGE,),
        model=model,
        init_clients=init_clients,
    ),
    state=CoLRState,
    kernels=("colr", "samples", "sums", "clusters"),
    paper="Nguyen et al. 2024",
    score_new_user=score_by_sampled_loss,
    popularity_prior=1.0,
    in_the_clear="the items it trained on, and low-rank updates of their rows",
)
