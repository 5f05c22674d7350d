"""GPFedRec: the server finds users alike by their item tables, and gives each a table of its own.

Zhang, Long, Zhou, Zhang, Yan, Yang. GPFedRec: graph-guided personalization for federated
recommendation. KDD 2024 (Section 4, Algorithm 1). A client has a user row p_u and a network over
[p_u, q_i]; both stay on it.

    foreach round t = 0, 1, ...
        S sends the item rows q, and to every client its own guide r_u
        foreach client u in parallel, with q_u <- q
            foreach batch of its samples: one step on the network, p_u and q_u for
                loss + reg mean (q_u - r_u)^2                          mean over the whole table
            u scores all items by q_u, and uploads q_u
        A <- graph of users: v is a neighbour of u where their tables are alike
        r_u <- mean of q_v over the neighbours v of u
        q <- mean of r_u over all u

A step moves every row of q_u towards r_u, also rows outside the samples. How far depends on the
number of batches alone: a client uploads the rows of its samples, and the server computes the
others.

The authors' code (repository Zhangcx19/GPFedRec) calls scikit-learn's `pairwise_distances` with
the metric "cosine", which is one minus the cosine, and takes those above the mean as neighbours:
the users who are least alike (`similarity=distance`). `similarity=cosine` is what the paper says.

The server needs the table of every single client, so that secure aggregation cannot compute the
graph. It holds users * items * d numbers, and comparing all tables takes users^2 * items * d
products in every round: this is an algorithm for small populations (`max_memory`).

Deviation: where only some users take part in a round, the others keep their guides. The authors'
code runs with all users alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field
from threadpoolctl import threadpool_limits

from coterie import kernels
from coterie.algorithms import fedavg
from coterie.algorithms.algorithm import Algorithm
from coterie.algorithms.local.batched import find_device
from coterie.algorithms.local.item_tables import (
    TableSettings,
    check_memory,
    draw_samples,
    nothing_dense,
    score_new_user,
    start_rows,
    unit_for,
    updates_of,
)
from coterie.algorithms.local.settings import Layers
from coterie.core import parallel, streams
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
    Sums,
    World,
)
from coterie.models.factors import rows
from coterie.models.personal_scores import PersonalScores
from coterie.types import NOT_FINITE, SCALE, Floats, Ints, Longs, Message, Sizes, Updates


class GPFedRec(TableSettings):
    search_space: ClassVar[SearchSpace] = {
        "learning_rate": (0.01, 1.0),
        "item_rate": (0.03, 100.0),
        "user_rate": (1.0, 100.0),
        "reg": (0.01, 3.0),
        "threshold": [0.5, 1.0, 1.5],
        "negatives": [2, 4, 8],
    }
    trial_steps: ClassVar[int | None] = 100  # as many as the authors train

    rounds: int = Field(100, ge=1)
    """Communication rounds."""
    layers: Layers = (32, 16, 8)
    """Layer sizes of a client's network, from below."""
    learning_rate: float = Field(0.1, gt=0)
    """Learning rate of the network."""
    user_rate: float = Field(80.0, ge=0)
    """Learning rate of the user row, in multiples of learning_rate (eta)."""
    item_rate: float = Field(80.0, ge=0)
    """Learning rate of item rows, in multiples of learning_rate times the number of items (eta)."""
    reg: float = Field(1.0, ge=0)
    """Weight of the term that pulls a client's item rows to its guide (lambda)."""
    similarity: Literal["cosine", "distance"] = "cosine"
    """What makes users neighbours: a large cosine of their tables (the paper), or a large distance
    (the authors' code)."""
    threshold: float = Field(1.0, ge=0)
    """Users are neighbours above this multiple of the mean similarity."""
    neighbours: int = Field(0, ge=0)
    """Number of neighbours of every user, instead of a threshold; 0 means the threshold."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where the server compares and averages tables. On a GPU the last digits differ."""

    def item_learning_rate(self, n_items: int) -> float:
        """rate * items * eta"""
        return self.learning_rate * n_items * self.item_rate


@dataclass(frozen=True, slots=True)
class GPFedRecState(Record):
    private: ClassVar[tuple[str, ...]] = ("networks", "scores")
    of_users: ClassVar[tuple[str, ...]] = ("guides",)
    item_rows: Floats  # (items, d) q
    guides: Floats  # (users, items, d) r_u
    networks: Floats  # (users, size) p_u and the network, on the clients
    scores: Floats  # (users, items) by q_u, on the clients


def init(world: World[GPFedRec]) -> GPFedRecState:
    if world.settings.device == "cuda":
        find_device("cuda")
    check_memory(world, "the users' guides", world.settings.embedding_size, "lower embedding_size")
    q = start_rows(world)
    return GPFedRecState(q, np.tile(q, (world.n_users, 1, 1)), ON_CLIENTS, ON_CLIENTS)


def init_clients(world: World[GPFedRec], node: NodeData) -> PrivateState:
    """The same network and user row on every client, as in the authors' code; scores are zero."""
    n = len(node.users)
    theta = start_network(world)
    return {
        "networks": np.tile(theta, (n, 1)),
        "scores": np.zeros((n, world.n_items), np.float32),
    }


def layer_sizes(settings: GPFedRec) -> Longs:
    return np.array([2 * settings.embedding_size, *settings.layers])


def start_network(world: World[GPFedRec]) -> Floats:
    """A Gaussian user row, then layers uniform from -1 / sqrt(in) to 1 / sqrt(in)."""
    s = world.settings
    sizes = layer_sizes(s)
    parts = [*(sizes[:-1] * sizes[1:] + sizes[1:]), sizes[-1] + 1]
    p = rows(1, s.embedding_size, world.seed, "user row", s.start_scale)[0]
    bound = np.repeat(1 / np.sqrt(sizes), parts)
    keys = streams.keys(world.seed, "network", last=np.arange(len(bound)))
    network = (2 * streams.uniform(keys) - 1) * bound
    return np.concatenate([p, network.astype(np.float32)])


# S sends q and r_u


def broadcast(world: World[GPFedRec], state: GPFedRecState, cohort: Ints, t: int) -> Message:
    return Message(t, cohort, {"item_rows": state.item_rows}, {"guides": guides_of(state, cohort)})


def guides_of(state: GPFedRecState, users: Ints) -> Floats:
    """The guides of some users. A copy of those of all takes long."""
    is_everybody = np.array_equal(users, np.arange(len(state.guides)))
    return state.guides if is_everybody else state.guides[users]


# One step per batch


def client_update(world: World[GPFedRec], message: Message, node: NodeData) -> ClientResult:
    s = world.settings
    samples = draw_samples(world, message, node)
    before = message.private_state
    after = {name: np.empty_like(array) for name, array in before.items()}
    changes = np.empty((len(samples.items), s.embedding_size), np.int32)
    sizes = layer_sizes(s)
    kernel = kernels.load("gpfedrec").train
    parallel.over(
        lambda first, last: kernel(
            samples.offsets,
            samples.items,
            samples.starts,
            samples.places,
            samples.targets,
            before["networks"],
            message.common["item_rows"],
            message.own["guides"],
            sizes,
            s.learning_rate,
            s.learning_rate * s.user_rate,
            s.item_learning_rate(world.n_items),
            pull(world),
            s.batch_size,
            unit(world),
            first,
            last,
            after["networks"],
            after["scores"],
            changes,
        ),
        samples.starts,
    )
    # A network may diverge while its inactive neurons leave the item rows as they are.
    diverged = ~(
        np.isfinite(after["networks"]).all(axis=1) & np.isfinite(after["scores"]).all(axis=1)
    )
    changes[np.repeat(diverged, np.diff(samples.offsets))] = NOT_FINITE
    return updates_of(message, samples, changes, nothing_dense(message)), after


def pull(world: World[GPFedRec]) -> float:
    """Share of the way to its guide that a row goes in a step: the derivative of the mean.

    Deviation: at most all of it. Beyond twice the way, tables would grow in every step.
    """
    s = world.settings
    share = s.item_learning_rate(world.n_items) * s.reg * 2 / (world.n_items * s.embedding_size)
    return min(share, 1.0)


def unit(world: World[GPFedRec]) -> float:
    return unit_for(world.settings.item_learning_rate(world.n_items))


def sizes(world: World[GPFedRec], state: GPFedRecState) -> Sizes:
    return Sizes(world.n_items, state.item_rows.shape[1], 0, 0)


# A, r_u and q


def collect(world: World[GPFedRec], message: Message, updates: Updates) -> Sums:
    """Every client's rows: the graph compares single clients."""
    return {
        "offsets": updates.offsets,
        "items": updates.items.astype(np.int64),
        "item_rows": updates.item_rows.astype(np.int64),
    }


def guide(
    world: World[GPFedRec], state: GPFedRecState, sums: Sums, accepted: Accepted, t: int
) -> GPFedRecState:
    tables = uploaded_tables(world, state, sums, accepted)
    over_graph = aggregate_over_graph if world.settings.device == "cpu" else aggregate_on_gpu
    new = over_graph(tables, world.settings)
    guides = new
    if len(new) < len(state.guides):
        guides = state.guides.copy()
        guides[accepted.users] = new
    q = new.mean(axis=0, dtype=np.float64).astype(np.float32)
    return replace(state, item_rows=q, guides=guides)


def uploaded_tables(
    world: World[GPFedRec], state: GPFedRecState, sums: Sums, accepted: Accepted
) -> Floats:
    """(n, items, d) q_u of every client: the rows it sent, and all others by the pull alone."""
    n_batches = -(-accepted.samples // world.settings.batch_size)
    left = (1 - pull(world)) ** n_batches.astype(np.float64)
    guides = guides_of(state, accepted.users)
    # guides + left (q - guides), in place: tables of all users are large.
    tables = state.item_rows - guides
    tables *= left[:, None, None].astype(np.float32)
    tables += guides
    of_client = np.repeat(np.arange(len(accepted.users)), np.diff(sums["offsets"]))
    change = (sums["item_rows"] * (unit(world) / SCALE)).astype(np.float32)
    tables[of_client, sums["items"]] = state.item_rows[sums["items"]] + change
    return tables


def aggregate_over_graph(tables: Floats, settings: GPFedRec) -> Floats:
    """r_u <- mean of q_v over the neighbours v of u.

    On one thread, so that bits do not depend on the number of threads.
    """
    flat = tables.reshape(len(tables), -1)
    with threadpool_limits(1, "blas"):
        A = user_graph(similarities(flat @ flat.T, settings), settings)
        mixed: Floats = A @ flat
    return mixed.reshape(tables.shape)


def aggregate_on_gpu(tables: Floats, settings: GPFedRec) -> Floats:
    """`aggregate_over_graph` by PyTorch."""
    device = find_device("cuda")
    import torch

    flat = torch.from_numpy(tables.reshape(len(tables), -1)).to(device)
    products = (flat @ flat.T).cpu().numpy()
    A = user_graph(similarities(products, settings), settings)
    mixed: Floats = (torch.from_numpy(A).to(device) @ flat).cpu().numpy()
    return mixed.reshape(tables.shape)


def similarities(products: Floats, settings: GPFedRec) -> Floats:
    """(n, n) cosines of tables from their inner products, or one minus them."""
    lengths: Floats = np.sqrt(np.maximum(np.diag(products), np.float32(1e-24)))
    cosines: Floats = products / lengths[:, None] / lengths
    return cosines if settings.similarity == "cosine" else 1 - cosines


def user_graph(similarity: Floats, settings: GPFedRec) -> Floats:
    """(n, n) equal weights of every user's neighbours; a user without any is its own."""
    n = len(similarity)
    if settings.neighbours:
        order = np.argsort(-similarity, axis=1, kind="stable")[:, : settings.neighbours]
        near = np.zeros((n, n), bool)
        np.put_along_axis(near, order, True, axis=1)
    else:
        near = similarity > similarity.mean(dtype=np.float64) * settings.threshold
    alone = ~near.any(axis=1)
    near[alone, alone] = True
    weights: Floats = (near / near.sum(axis=1, keepdims=True)).astype(np.float32)
    return weights


def model(world: World[GPFedRec], state: GPFedRecState) -> PersonalScores:
    return PersonalScores(state.scores, state.item_rows)


ALGORITHM = Algorithm(
    "item tables from a graph of users, and a network on every client",
    GPFedRec,
    Federation(
        init=init,
        sample=fedavg.sample,
        exchanges=(
            Exchange(
                broadcast=broadcast,
                client_update=client_update,
                aggregate=collect,
                server_update=guide,
                sizes=sizes,
                fast=FastPaths(combine=None),
                visible="the item rows they trained on, which the graph compares",
            ),
        ),
        model=model,
        init_clients=init_clients,
    ),
    state=GPFedRecState,
    kernels=("gpfedrec", "samples", "sums", "clusters"),
    paper="Zhang et al. 2024",
    score_new_user=score_new_user,
    in_the_clear="the items it trained on, and the changes of their rows",
)
