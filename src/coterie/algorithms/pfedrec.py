"""PFedRec: every client has a score function of its own, and tunes the server's item rows.

Zhang, Long, Zhou, Yan, Zhang, Zhang, Yang. Dual personalization on federated recommendation.
IJCAI 2023 (Section 4, Algorithm 1). There are no user rows: y_ui = w_u . q_i + b_u, where the score
function (w_u, b_u) stays on the client.

    foreach round t = 0, 1, ...
        S_t <- a share of the users
        S sends the item rows q to S_t
        foreach client u in S_t in parallel, with its own score function and q_u <- q
            foreach batch of its samples
                (w_u, b_u) <- (w_u, b_u) - rate * gradient of the loss          score function
                q_u <- q_u - item_rate * gradient of the same batch's loss      post-tuning
            u scores all items by q_u, and uploads q_u
        q <- mean of q_u over S_t                                               (`average=all`)

A client recommends by its own rows q_u, as they were when it last took part. They differ from q in
the rows that it trained on. A client keeps the scores of all items by them, which are all that
recommending needs, and not the rows: users * items numbers in a simulation instead of d times as
many. It uploads the rows that it trained on; all others count with the value that it received.

The authors' code (repository Zhangcx19/IJCAI-23-PFedRec) decides what the paper leaves open. There
the learning rate of item rows is rate * items * eta, 13,456 on MovieLens-100K. It is what makes a
mean over all clients move, and it makes the rows of a single client jump: a step moves a logit by
about nine. Then all drawn negatives are far below and all positives far above the rest, so that a
held-out item that is never drawn as a negative stands out. docs/personal.md has the figures.

Deviation: updates are changes in fixed point, in units that follow from the item learning rate
(`unit`), because a change may exceed the range of other algorithms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Lock
from typing import ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from coterie import kernels
from coterie.algorithms import fedavg
from coterie.algorithms.algorithm import Algorithm
from coterie.algorithms.local.samples import Samples, draw
from coterie.algorithms.local.settings import CohortSettings
from coterie.core import parallel, streams
from coterie.core.records import Record
from coterie.core.settings import SearchSpace
from coterie.errors import ConfigError
from coterie.federated.federation import (
    ON_CLIENTS,
    Accepted,
    AnyWorld,
    ClientResult,
    Exchange,
    FastPaths,
    Federation,
    NodeData,
    PrivateState,
    SinglePass,
    Sums,
    World,
    unweighted,
)
from coterie.models.factors import rows
from coterie.models.new_user import NewUser
from coterie.models.personal_scores import PersonalScores
from coterie.types import SCALE, Floats, Ints, Longs, Message, Sizes, Updates

Int8s: TypeAlias = NDArray[np.int8]
NEW_USER_REG = 1e-2
"""Regularisation of the score function that a new user fits."""
STEPS_IN_RANGE = 16
"""An entry of an update may be as large as half the item learning rate: `unit`."""


class PFedRec(CohortSettings):
    search_space: ClassVar[SearchSpace] = {
        "learning_rate": (0.01, 3.0),
        "item_rate": (0.03, 100.0),
        "negatives": [2, 4, 8],
        "local_epochs": [1, 2, 5],
        "start_scale": [0.1, 0.3, 1.0],
        "embedding_size": [16, 32, 64],
    }

    rounds: int = Field(60, ge=1)
    """Communication rounds; 100 in the authors' code."""
    participation: float = Field(1.0, gt=0, le=1)
    """Share of the users in the cohort of a round."""
    embedding_size: int = Field(32, ge=1, le=4096)
    """Length of every item row, and of the score function."""
    local_epochs: int = Field(1, ge=1)
    """Passes of a client over its own data in a round."""
    batch_size: int = Field(256, ge=1)
    """Samples per local step (their mean gradient)."""
    learning_rate: float = Field(3.0, gt=0)
    """Learning rate of the score function; 0.1 in the authors' code."""
    item_rate: float = Field(0.02, ge=0)
    """Learning rate of item rows, in multiples of learning_rate times the number of items (eta);
    80 in the authors' code."""
    negatives: int = Field(4, ge=1)
    """Negatives drawn per positive."""
    average: Literal["all", "touched"] = "touched"
    """Item rows are averaged over the cohort (the paper), or over the clients that trained on them,
    which moves them as far with a smaller item rate."""
    start_scale: float = Field(0.1, ge=0)
    """Standard deviation of the initial item rows; 1 in the authors' code."""
    max_memory: float = Field(4.0, gt=0)
    """GiB that the clients' scores of all items may take in a simulation."""

    def item_learning_rate(self, n_items: int) -> float:
        """rate * items * eta"""
        return self.learning_rate * n_items * self.item_rate


@dataclass(frozen=True, slots=True)
class PFedRecState(Record):
    private: ClassVar[tuple[str, ...]] = ("score_functions", "scores")
    item_rows: Floats  # (items, d) q
    score_functions: Floats  # (users, d + 1) w_u and b_u, on the clients
    scores: Floats  # (users, items) w_u . q_ui + b_u, on the clients


def init(world: World[PFedRec]) -> PFedRecState:
    check_memory(world)
    return PFedRecState(start_rows(world), ON_CLIENTS, ON_CLIENTS)


def start_rows(world: World[PFedRec]) -> Floats:
    s = world.settings
    return rows(world.n_items, s.embedding_size, world.seed, "items", s.start_scale)


def check_memory(world: World[PFedRec]) -> None:
    needed = 4 * world.n_users * world.n_items / 2**30
    if needed > world.settings.max_memory:
        raise ConfigError(
            f"the clients' own scores of {world.n_items:,} items take {needed:.1f} GiB for "
            f"{world.n_users:,} users; max_memory allows {world.settings.max_memory:g}. "
            "Raise it with --set max_memory=GIB, or filter items with --set core=5."
        )


def init_clients(world: World[PFedRec], node: NodeData) -> PrivateState:
    """The same score function on every client, as in the authors' code, and the scores by it."""
    w = start_score_function(world.settings.embedding_size, world.seed)
    scores = start_rows(world) @ w[:-1] + w[-1]
    n = len(node.users)
    return {"score_functions": np.tile(w, (n, 1)), "scores": np.tile(scores, (n, 1))}


def start_score_function(d: int, seed: int) -> Floats:
    """(d + 1,) uniform from -1 / sqrt(d) to 1 / sqrt(d), as PyTorch starts a linear layer."""
    uniform = streams.uniform(streams.keys(seed, "score function", last=np.arange(d + 1)))
    return ((2 * uniform - 1) / math.sqrt(d)).astype(np.float32)


# S sends the item rows


def broadcast(world: World[PFedRec], state: PFedRecState, cohort: Ints, t: int) -> Message:
    return Message(t, cohort, {"item_rows": state.item_rows}, {})


# Score function, post-tuning, scores


def draw_samples(world: AnyWorld, message: Message, node: NodeData) -> Samples:
    """The samples of a cohort. Ratings are not used: what a user rated is a positive."""
    implicit = replace(node, training=replace(node.training, ratings=None))
    return draw(world, message.users, message.round, implicit)


def client_update(world: World[PFedRec], message: Message, node: NodeData) -> ClientResult:
    n = len(message.users)
    samples = draw_samples(world, message, node)
    after = private_state_for(world, n)
    changes = np.empty((len(samples.items), world.settings.embedding_size), np.int32)
    parallel.over(train(world, message, samples, after, changes), samples.starts)
    none = np.empty((n, 0), np.int32)
    updates = Updates(
        users=message.users,
        samples=samples.counts,
        offsets=samples.offsets,
        items=samples.items,
        item_rows=changes,
        user_rows=none,
        dense=none,
    )
    return updates, after


def private_state_for(world: World[PFedRec], n: int) -> PrivateState:
    """Arrays for a kernel to fill."""
    return {
        "score_functions": np.empty((n, world.settings.embedding_size + 1), np.float32),
        "scores": np.empty((n, world.n_items), np.float32),
    }


def train(
    world: World[PFedRec],
    message: Message,
    samples: Samples,
    after: PrivateState,
    changes: Ints,
    add: Callable[[Longs, Int8s], None] | None = None,
) -> Callable[[int, int], None]:
    """Work for threads: trains clients first..last of the cohort, and writes what it is given.

    With `add`, changes are summed instead of written, and `add` gets the sums of every range.
    """
    s = world.settings
    item_rows = message.common["item_rows"]
    family = kernels.load("pfedrec")
    blocks = in_blocks(item_rows, family.BLOCK)

    def part(first: int, last: int) -> None:
        total = np.zeros(item_rows.shape if add else (0, 0), np.int64)
        faults = np.zeros(len(message.users) if add else 0, np.int8)
        family.train(
            samples.offsets,
            samples.items,
            samples.starts,
            samples.places,
            samples.targets,
            message.private_state["score_functions"],
            item_rows,
            blocks,
            s.learning_rate,
            s.item_learning_rate(world.n_items),
            s.batch_size,
            unit(world),
            first,
            last,
            after["score_functions"],
            after["scores"],
            changes,
            total,
            faults,
        )
        if add:
            add(total, faults)

    return part


def in_blocks(item_rows: Floats, size: int) -> Floats:
    """(items / size, d, size), flat: blocks of items by columns, the last one padded with zeros."""
    n, d = item_rows.shape
    whole = np.pad(item_rows, ((0, -n % size), (0, 0)))
    return np.ascontiguousarray(whole.reshape(-1, size, d).transpose(0, 2, 1)).reshape(-1)


def unit(world: World[PFedRec]) -> float:
    """What 1.0 stands for in an update. A step moves an entry by a share of the item rate."""
    return unit_for(world.settings.item_learning_rate(world.n_items))


def unit_for(item_learning_rate: float) -> float:
    """A power of two, so that scaling is exact: updates may be half the item learning rate."""
    steps = item_learning_rate / STEPS_IN_RANGE
    return 2.0 ** math.ceil(math.log2(steps)) if steps > 1 else 1.0


def sizes(world: World[PFedRec], state: PFedRecState) -> Sizes:
    return Sizes(world.n_items, state.item_rows.shape[1], 0, 0)


# q <- mean of q_u


def add_up(world: AnyWorld, message: Message, updates: Updates) -> Sums:
    """sum over clients of the changes of item rows, and how many clients have each"""
    total = np.zeros((world.n_items, updates.item_rows.shape[1]), np.int64)
    touched = np.zeros(world.n_items, np.int64)
    unit_weights = np.ones(len(updates), np.int64)
    kernel = kernels.load("sums").by_samples
    parallel.over(
        lambda low, high: kernel(
            updates.offsets,
            updates.items,
            updates.item_rows,
            unit_weights,
            low,
            high,
            total,
            touched,
        ),
        world.n_items,
    )
    return {"items": total, "touched": touched}


def single_pass(world: World[PFedRec], message: Message, node: NodeData) -> SinglePass | None:
    """Train and sum in one kernel call; None where validation would refuse an update."""
    samples = draw_samples(world, message, node)
    n = len(message.users)
    after = private_state_for(world, n)
    none = np.empty((0, world.settings.embedding_size), np.int32)
    total = np.zeros((world.n_items, world.settings.embedding_size), np.int64)
    faulty = np.zeros(n, np.int8)
    lock = Lock()

    def add(part: Longs, faults: Int8s) -> None:
        with lock:
            np.add(total, part, out=total)
            np.maximum(faulty, faults, out=faulty)

    parallel.over(train(world, message, samples, after, none, add), samples.starts)
    if faulty.any():
        return None
    accepted = Accepted(message.users, samples.counts, np.empty((n, 0), np.int32))
    touched = np.bincount(samples.items, minlength=world.n_items)
    sums = {"items": total, "touched": touched}
    return SinglePass(sums, accepted, np.diff(samples.offsets), after)


def average(
    world: World[PFedRec], state: PFedRecState, sums: Sums, accepted: Accepted, t: int
) -> PFedRecState:
    """q + sum over clients of (q_u - q) / |S_t|, or over the clients that have the row."""
    n = len(accepted.users)
    weights = sums["touched"] if world.settings.average == "touched" else np.full(world.n_items, n)
    change = sums["items"] * (unit(world) / SCALE / np.maximum(weights, 1))[:, None]
    return replace(state, item_rows=(state.item_rows + change).astype(np.float32))


def model(world: World[PFedRec], state: PFedRecState) -> PersonalScores:
    return PersonalScores(state.scores, state.item_rows)


def score_new_user(model: PersonalScores, user: NewUser, settings: PFedRec) -> Floats:
    """A new user fits a score function to the server's item rows, and sends nothing."""
    return model.score_new_user(user.items, settings.negatives, NEW_USER_REG)


ALGORITHM = Algorithm(
    "a score function and tuned item rows on every client",
    PFedRec,
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
                fast=FastPaths(single_pass=single_pass),
                secure_sum=unweighted(by_item=("items", "touched")),
            ),
        ),
        model=model,
        init_clients=init_clients,
    ),
    state=PFedRecState,
    kernels=("pfedrec", "samples", "sums", "clusters"),
    paper="Zhang et al. 2023",
    score_new_user=score_new_user,
    in_the_clear="the items it trained on, and the changes of their rows",
)
