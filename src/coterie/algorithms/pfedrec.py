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
from coterie.algorithms.local.item_tables import (
    TableSettings,
    add_up,
    check_memory,
    draw_samples,
    nothing_dense,
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
    FastPaths,
    Federation,
    NodeData,
    PrivateState,
    SinglePass,
    Sums,
    World,
    unweighted,
)
from coterie.models.personal_scores import PersonalScores
from coterie.types import SCALE, Floats, Ints, Longs, Message, Sizes

Int8s: TypeAlias = NDArray[np.int8]


class PFedRec(TableSettings):
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
    learning_rate: float = Field(3.0, gt=0)
    """Learning rate of the score function; 0.1 in the authors' code."""
    item_rate: float = Field(0.02, ge=0)
    """Learning rate of item rows, in multiples of learning_rate times the number of items (eta);
    80 in the authors' code."""
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
    check_memory(world, "the clients' own scores", 1, "filter items with --set core=5")
    return PFedRecState(start_rows(world), ON_CLIENTS, ON_CLIENTS)


def init_clients(world: World[PFedRec], node: NodeData) -> PrivateState:
    """The same score function on every client, as in the authors' code, and the scores by it."""
    w = start_score_function(world.settings.embedding_size, world.seed)
    scores = start_rows(world) @ w[:-1] + w[-1]
    n = len(node.users)
    return {"score_functions": np.tile(w, (n, 1)), "scores": np.tile(scores, (n, 1))}


# S sends the item rows


def broadcast(world: World[PFedRec], state: PFedRecState, cohort: Ints, t: int) -> Message:
    return Message(t, cohort, {"item_rows": state.item_rows}, {})


# Score function, post-tuning, scores


def client_update(world: World[PFedRec], message: Message, node: NodeData) -> ClientResult:
    n = len(message.users)
    samples = draw_samples(world, message, node)
    after = private_state_for(world, n)
    changes = np.empty((len(samples.items), world.settings.embedding_size), np.int32)
    parallel.over(train(world, message, samples, after, changes), samples.starts)
    return updates_of(message, samples, changes, nothing_dense(message)), after


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
    return unit_for(world.settings.item_learning_rate(world.n_items))


def sizes(world: World[PFedRec], state: PFedRecState) -> Sizes:
    return Sizes(world.n_items, state.item_rows.shape[1], 0, 0)


# q <- mean of q_u


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
