"""LightGCN: user and item rows that are averaged over the graph of interactions.

He, Deng, Wang, Li, Zhang, Wang. LightGCN: simplifying and powering graph convolution network for
recommendation. SIGIR 2020.

A is the adjacency matrix of users and items: a user and an item are neighbours if they interact. D
is the diagonal matrix of the numbers of neighbours. Only layer 0, E_0, is trained:
    E_{k+1} = D^-1/2 A D^-1/2 E_k
    E = (E_0 + ... + E_K) / (K + 1)
    y_ui = e_u . e_i, by rows of E
An epoch visits every interaction (u, i) once, in a new random order and in batches of about equal
size, each with an item j drawn from the items outside u's training items. Adam minimises the mean
over the batch of
    -ln sigmoid(y_ui - y_uj) + reg / 2 (|e_u^0|^2 + |e_i^0|^2 + |e_j^0|^2), e^0 being rows of E_0

All randomness comes from (seed, epoch), so training can resume after any epoch. The same seed gives
the same bits on one kind of device with one build of PyTorch, with any number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from coterie.algorithms.algorithm import Algorithm
from coterie.algorithms.local.batched import find_device
from coterie.baselines.multivae import adam
from coterie.core import streams
from coterie.core.parallel import one_torch_thread
from coterie.core.records import Record
from coterie.core.sampling import unseen_items
from coterie.core.settings import SearchSpace, Settings
from coterie.data.training_set import TrainingSet
from coterie.errors import MissingExtra
from coterie.federated.costs import Costs
from coterie.federated.trainer import Context, Trainer
from coterie.models.factors import rows as start_rows
from coterie.models.lightgcn import LightGCN
from coterie.models.new_user import NewUser
from coterie.types import Floats, Longs

if TYPE_CHECKING:
    import torch
    from torch import Tensor

LARGE = 1 << 25
"""Additions in a layer from which several threads pay off. The bits are the same."""

NEW_USER_REG = 0.01
"""Least regularisation of a new user's own part. Training stops before the optimum of a smaller
`reg`, which a fit would reach. On synthetic data the scores of a new user correlate with those of
a trained one by 0.97 on average with 0.01, and by 0.93 with 0.001 (50 steps)."""


class LightGCNSettings(Settings):
    search_space: ClassVar[SearchSpace] = {
        "learning_rate": (1e-3, 3e-2),
        "reg": (1e-5, 1e-1),
        "layers": [1, 2, 3, 4],
        "batch_size": [1024, 2048, 4096],
        "start_scale": [0.01, 0.1],
        "embedding_size": [16, 32, 64],
    }

    embedding_size: int = Field(64, ge=1, le=4096)
    """Length of every user and item row."""
    layers: int = Field(2, ge=1, le=16)
    """Layers of the graph above the trained rows (K); 3 in the paper. With 2 an epoch is faster and
    fewer epochs are needed."""
    epochs: int = Field(50, ge=1)
    """Epochs over the interactions."""
    batch_size: int = Field(2048, ge=1)
    """Largest number of triples per step. A step computes the whole graph, so a larger batch makes
    an epoch faster."""
    learning_rate: float = Field(0.005, gt=0)
    """Learning rate of Adam; 0.001 in the paper, with up to 1,000 epochs."""
    reg: float = Field(1e-3, ge=0)
    """Regularisation of the trained rows of a triple. Sparse data needs more than the paper's
    0.0001."""
    start_scale: float = Field(0.1, ge=0)
    """Standard deviation of the initial values."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where the rows are trained."""


# The graph. Users come first among its nodes, then items.


@dataclass(frozen=True, slots=True)
class Graph:
    offsets: Tensor  # (nodes + 1,)
    neighbours: Tensor  # (2 interactions,) the neighbours of every node
    scale: Tensor  # (nodes, 1) D^-1/2; zero for a node without neighbours

    @classmethod
    def of(cls, training: TrainingSet, device: torch.device) -> Graph:
        import torch

        items = training.positives.items.astype(np.int64) + training.n_users
        degrees = np.concatenate([training.positives.counts, training.by_item.counts])
        offsets = np.concatenate([[0], np.cumsum(degrees)])
        neighbours = np.concatenate([items, training.by_item.items])
        scale = np.where(degrees > 0, 1 / np.sqrt(np.maximum(degrees, 1)), 0).astype(np.float32)
        arrays = offsets, neighbours, scale[:, None]
        return cls(*(torch.from_numpy(array).to(device) for array in arrays))

    def convolve(self, rows: Tensor) -> Tensor:
        """D^-1/2 A D^-1/2 rows.

        A is a matrix of zeros and ones, so its product is a sum of rows per node. Its bits do not
        depend on the number of threads, and it takes a third of the time of a sparse CSR product.
        """
        from torch.nn.functional import embedding_bag

        scaled = self.scale * rows
        sums = embedding_bag(
            self.neighbours, scaled, self.offsets, mode="sum", include_last_offset=True
        )
        return self.scale * sums

    def sum_of_layers(self, rows: Tensor, n: int) -> Tensor:
        """The sum of the layers 0..n above the rows, which are layer 0."""
        total = rows
        for _ in range(n):
            rows = self.convolve(rows)
            total = total + rows
        return total

    def propagate(self, rows: Tensor, n: int) -> Tensor:
        """The mean of the layers 0..n."""
        return self.sum_of_layers(rows, n) / (n + 1)


# State.


@dataclass(frozen=True, slots=True)
class LightGCNState(Record):
    """Layer 0, and Adam's two moments of it."""

    user_rows: Floats  # (users, d)
    item_rows: Floats  # (items, d)
    mean: Floats  # (users + items, d)
    square: Floats  # (users + items, d)

    def all_rows(self) -> Floats:
        return np.concatenate([self.user_rows, self.item_rows])


def start(training: TrainingSet, settings: LightGCNSettings, seed: int) -> LightGCNState:
    size = settings.embedding_size
    user_rows = start_rows(training.n_users, size, seed, "users", settings.start_scale)
    item_rows = start_rows(training.n_items, size, seed, "items", settings.start_scale)
    moment = np.zeros((training.n_users + training.n_items, size), np.float32)
    return LightGCNState(user_rows, item_rows, moment, moment)


def model(state: LightGCNState, graph: Graph, settings: LightGCNSettings) -> LightGCN:
    import torch

    n_users = len(state.user_rows)
    layers = settings.layers
    rows = torch.from_numpy(state.all_rows()).to(graph.scale.device)
    final = graph.propagate(rows, layers).cpu().numpy()
    below = graph.sum_of_layers(rows, layers - 1)
    messages = (graph.scale * below / (layers + 1)).cpu().numpy()
    bias = np.zeros(len(state.item_rows), np.float32)
    return LightGCN(final[:n_users], final[n_users:], bias, messages[n_users:])


# Training.


def draw_triples(training: TrainingSet, n: int, seed: int) -> Longs:
    """(3, triples) the nodes u, i and j of epoch n = 1, 2, ..., in the order of training.

    A user who has every item has no triples.
    """
    every = np.arange(len(training))
    keys = streams.keys(seed, "negatives", n - 1, last=every)
    drawn = unseen_items(training.excluded, training.users, training.n_items, 1, keys)[:, 0]
    order = streams.at(seed, "order", n - 1).permutation(every[drawn >= 0])
    first_item = training.n_users
    nodes = training.users, training.positives.items + first_item, drawn + first_item
    return np.stack([each[order] for each in nodes]).astype(np.int64)


def epoch(
    state: LightGCNState,
    n: int,
    training: TrainingSet,
    graph: Graph,
    settings: LightGCNSettings,
    seed: int,
) -> LightGCNState:
    import torch

    device = graph.scale.device
    rows, mean, square = (
        torch.tensor(array, device=device) for array in (state.all_rows(), state.mean, state.square)
    )
    triples = torch.from_numpy(draw_triples(training, n, seed)).to(device)
    n_batches = -(-triples.shape[1] // settings.batch_size)
    batches = triples.tensor_split(n_batches, dim=1) if n_batches else ()
    small = len(graph.neighbours) * settings.embedding_size < LARGE
    with one_torch_thread(small):
        for t, batch in enumerate(batches, (n - 1) * n_batches + 1):
            gradient = loss_gradient(rows, batch, graph, settings)
            adam(rows, gradient, mean, square, t, settings.learning_rate)
    trained = rows.cpu().numpy()
    n_users = training.n_users
    return LightGCNState(
        trained[:n_users], trained[n_users:], mean.cpu().numpy(), square.cpu().numpy()
    )


def loss_gradient(rows: Tensor, batch: Tensor, graph: Graph, settings: LightGCNSettings) -> Tensor:
    """The gradient of the mean loss over the triples of a batch (3, triples), by layer 0."""
    import torch

    n = batch.shape[1]
    final = graph.propagate(rows, settings.layers)
    p, q_i, q_j = final[batch]
    lead = (p * (q_i - q_j)).sum(dim=1, keepdim=True)
    g = torch.sigmoid(-lead) / n
    by_final = add_up(batch, torch.stack([g * (q_j - q_i), -g * p, g * p]), len(rows))
    counts = torch.bincount(batch.reshape(-1), minlength=len(rows))[:, None]
    # E is a symmetric matrix times E_0, so the chain rule multiplies by the same matrix.
    return graph.propagate(by_final, settings.layers) + (settings.reg / n) * counts * rows


def add_up(nodes: Tensor, gradients: Tensor, n_nodes: int) -> Tensor:
    """(nodes, d) the sum of the gradients of every node, added in a fixed order."""
    where = nodes.reshape(-1)
    flat = gradients.reshape(len(where), -1)
    sums = flat.new_zeros((n_nodes, flat.shape[1]))
    # On a GPU only index_put_ adds in a fixed order, on a CPU only index_add_.
    if sums.is_cuda:
        return sums.index_put_((where,), flat, accumulate=True)
    return sums.index_add_(0, where, flat)


def make(training: TrainingSet, settings: LightGCNSettings, context: Context) -> Trainer[Any]:
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError:
        raise MissingExtra("training lightgcn", "neural") from None
    graph = Graph.of(training, find_device(settings.device))
    seed = context.seed
    return Trainer(
        lambda: (start(training, settings, seed), Costs()),
        lambda state, n: (epoch(state, n, training, graph, settings, seed), Costs()),
        lambda state: model(state, graph, settings),
    )


def score_new_user(model: LightGCN, user: NewUser, settings: LightGCNSettings) -> Floats:
    """The part of the graph, and an own part that is fitted to all pairs."""
    return model.score_new_user(user.items, settings.layers, max(settings.reg, NEW_USER_REG))


ALGORITHM = Algorithm(
    "rows averaged over the graph of interactions, trained to rank",
    LightGCNSettings,
    make,
    state=LightGCNState,
    steps=lambda settings: settings.epochs,
    paper="He et al. 2020",
    score_new_user=score_new_user,
)
