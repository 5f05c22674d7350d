"""Mult-VAE: a variational autoencoder of histories with a multinomial likelihood.

Liang, Krishnan, Hoffman, Jebara. Variational autoencoders for collaborative filtering. WWW 2018.

An epoch visits every user once, in a new random order and in batches. For the history x of a user,
scaled to length one and with every entry dropped with probability `dropout`:
    mu, log sigma^2 = encoder(x)
    z = mu + eps sigma, eps ~ N(0, I)
    y = decoder(z)
    loss = - sum_i x_i log softmax(y)_i + beta KL(N(mu, sigma^2) || N(0, I))
Adam minimises the mean over the batch. beta rises with the steps t: min(beta, t / anneal_steps), as
in the authors' code. Initial weights are those of Glorot and Bengio (2010), initial biases zero.

The paper drops users and items with few interactions. `min_user_items` and `min_item_users` do so,
repeatedly until all that remain have enough (a core). Items without training users are always
dropped, since the network could only push them down.

All randomness comes from (seed, epoch), so training can resume after any epoch. The same seed gives
the same bits with one build of PyTorch and one number of threads. Small networks always train on
one thread. In large ones (see LARGE) the number of threads changes the order of sums in matrix
products, and so the last digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod, sqrt
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import numpy as np
from pydantic import Field

from coterie.algorithms.algorithm import Algorithm, score_history
from coterie.algorithms.local.batched import DECAY1, DECAY2, EPSILON, find_device
from coterie.core import streams
from coterie.core.parallel import one_torch_thread
from coterie.core.records import Record
from coterie.core.settings import SearchSpace, Settings
from coterie.data.training_set import TrainingSet
from coterie.errors import ConfigError, MissingExtra
from coterie.federated.costs import Costs
from coterie.federated.trainer import Context, Trainer
from coterie.models.multivae import MultVAE, scaled
from coterie.types import Bools, Floats, Ints, Rows

if TYPE_CHECKING:
    from torch import Tensor

LARGE = 1 << 25
"""Multiplications in a batch's largest matrix product from which several threads pay off. Below, on
busy cores, two threads that waited for each other took ten times as long as one."""


class MultVAESettings(Settings):
    search_space: ClassVar[SearchSpace] = {
        "learning_rate": (3e-4, 1e-2),
        "beta": [0.05, 0.1, 0.2, 0.5],
        "dropout": [0.3, 0.5, 0.7],
        "hidden": [200, 300, 600],
        "latent": [50, 100, 200],
        "batch_size": [100, 250, 500],
    }

    hidden: int = Field(200, ge=1, le=4096)
    """Width of the hidden layer of encoder and decoder."""
    latent: int = Field(100, ge=1, le=4096)
    """Size of the latent vector."""
    epochs: int = Field(50, ge=1)
    """Epochs over the users."""
    batch_size: int = Field(500, ge=1)
    """Users per step."""
    learning_rate: float = Field(0.001, gt=0)
    """Learning rate of Adam."""
    dropout: float = Field(0.5, ge=0, lt=1)
    """Share of a history that the encoder does not see in training."""
    beta: float = Field(0.2, ge=0)
    """Largest weight of the prior (the KL term)."""
    anneal_steps: int = Field(200_000, ge=0)
    """Steps in which the weight of the prior would rise from 0 to 1; it stops at `beta`. With
    0 it starts at `beta`. The default is the authors' value for millions of interactions."""
    min_item_users: int = Field(0, ge=0)
    """Items with fewer users are dropped, and recommended last."""
    min_user_items: int = Field(0, ge=0)
    """Users with fewer items are dropped, and get no recommendations."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where the network is trained. The last digits depend on it."""


# Training data.


@dataclass(frozen=True, slots=True)
class Core:
    """The interactions of the users and items that remain."""

    rows: Rows  # of all users; items are indices into `items`
    users: Ints  # the remaining users
    items: Ints  # the remaining items, as indices of the dataset
    n_items: int  # of the dataset

    @classmethod
    def of(cls, training: TrainingSet, settings: MultVAESettings) -> Core:
        users = training.users
        items = training.positives.items
        in_core = find_core(users, items, settings.min_user_items, settings.min_item_users)
        if not in_core.any():
            raise ConfigError(
                f"settings 'min_user_items' {settings.min_user_items} and "
                f"'min_item_users' {settings.min_item_users} leave none "
                f"of {len(items):,} interactions to train on; expected some. "
                "Lower them with --set."
            )
        core_items, renumbered = np.unique(items[in_core], return_inverse=True)
        rows = Rows.build(users[in_core], renumbered.astype(np.int32), training.n_users)
        core_users = np.flatnonzero(rows.counts).astype(np.int32)
        return cls(rows, core_users, core_items, training.n_items)


def find_core(users: Ints, items: Ints, min_user_items: int, min_item_users: int) -> Bools:
    """Which interactions remain when users and items with too few are dropped until none has."""
    n_users = users.max(initial=0) + 1
    n_items = items.max(initial=0) + 1
    remaining = np.ones(len(users), bool)
    while True:
        user_counts = np.bincount(users[remaining], minlength=n_users)
        item_counts = np.bincount(items[remaining], minlength=n_items)
        enough = remaining & (user_counts[users] >= min_user_items)
        enough &= item_counts[items] >= min_item_users
        if enough.sum() == remaining.sum():
            return remaining
        remaining = enough


# Parameters.


@dataclass(frozen=True, slots=True)
class Learning(Record):
    """All parameters in one flat array, and Adam's two moments."""

    parameters: Floats
    mean: Floats
    square: Floats


def shapes(n_items: int, settings: MultVAESettings) -> dict[str, tuple[int, ...]]:
    """Shapes of the parameters, by their names in the model and in the order of the state."""
    hidden = settings.hidden
    latent = settings.latent
    return {
        "encoder_rows": (n_items, hidden),
        "encoder_bias": (hidden,),
        "latent_weights": (hidden, 2 * latent),
        "latent_bias": (2 * latent,),
        "decoder_weights": (latent, hidden),
        "decoder_bias": (hidden,),
        "item_rows": (n_items, hidden),
        "item_bias": (n_items,),
    }


FlatArray = TypeVar("FlatArray", np.ndarray, "Tensor")


def split_by_name(
    flat: FlatArray, shapes_by_name: dict[str, tuple[int, ...]]
) -> dict[str, FlatArray]:
    """Views of a flat array or tensor, by name."""
    parts: dict[str, FlatArray] = {}
    begin = 0
    for name, shape in shapes_by_name.items():
        end = begin + prod(shape)
        parts[name] = flat[begin:end].reshape(shape)
        begin = end
    return parts


def start(core: Core, settings: MultVAESettings, seed: int) -> Learning:
    by_name = shapes(len(core.items), settings)
    flat = np.zeros(sum(map(prod, by_name.values())), np.float32)
    for name, part in split_by_name(flat, by_name).items():
        if part.ndim == 2:
            limit = sqrt(6 / sum(part.shape))
            part[:] = streams.at(seed, f"start {name}").uniform(-limit, limit, part.shape)
    return Learning(flat, np.zeros_like(flat), np.zeros_like(flat))


def model(state: Learning, core: Core, settings: MultVAESettings) -> MultVAE:
    parts = split_by_name(state.parameters, shapes(len(core.items), settings))
    return MultVAE(
        **parts,
        known=core.items,
        offsets=core.rows.offsets,
        history=core.rows.items,
        n_items=core.n_items,
    )


# Training.


@dataclass(frozen=True, slots=True)
class HistoryBatch:
    """The histories of some users, one after the other."""

    offsets: Tensor  # (users + 1,)
    items: Tensor  # (interactions,)
    shown: Tensor  # (interactions,) the encoder's input, scaled and after dropout
    noise: Tensor  # (users, latent)


def batches(core: Core, n: int, settings: MultVAESettings, seed: int) -> Iterator[HistoryBatch]:
    """Every user once, in the order of epoch n = 1, 2, ..."""
    import torch

    device = find_device(settings.device)
    rows = core.rows
    n_users = len(core.rows.counts)
    order = streams.at(seed, "order", n - 1).permutation(core.users)
    noise = streams.at(seed, "latent", n - 1).standard_normal(
        (n_users, settings.latent), np.float32
    )
    draws = streams.at(seed, "dropout", n - 1).random(len(rows.items), np.float32)
    visible = draws >= settings.dropout
    shown = scaled(rows.counts) * visible / np.float32(1 - settings.dropout)
    for first in range(0, len(order), settings.batch_size):
        users = order[first : first + settings.batch_size]
        places = rows.places(users)
        own = rows.of_users(users)
        arrays = own.offsets, own.items.astype(np.int64), shown[places], noise[users]
        yield HistoryBatch(*(torch.from_numpy(array).to(device) for array in arrays))


def epoch(state: Learning, n: int, core: Core, settings: MultVAESettings, seed: int) -> Learning:
    import torch

    device = find_device(settings.device)
    by_name = shapes(len(core.items), settings)
    flats = [torch.tensor(flat, device=device) for flat in state.arrays().values()]
    # Views: steps write to the flat tensors.
    net, mean, square = (split_by_name(flat, by_name) for flat in flats)
    steps_before = (n - 1) * -(-len(core.users) // settings.batch_size)
    multiplications = min(settings.batch_size, len(core.users)) * len(core.items) * settings.hidden
    with one_torch_thread(multiplications < LARGE):
        for t, batch in enumerate(batches(core, n, settings, seed), steps_before):
            beta = prior_weight(t, settings)
            for name, gradient in gradients(net, batch, beta).items():
                adam(net[name], gradient, mean[name], square[name], t + 1, settings.learning_rate)
    return Learning(*(flat.cpu().numpy() for flat in flats))


def prior_weight(t: int, settings: MultVAESettings) -> float:
    """beta at the step that follows t steps."""
    if not settings.anneal_steps:
        return settings.beta
    return min(settings.beta, t / settings.anneal_steps)


def gradients(net: dict[str, Tensor], batch: HistoryBatch, beta: float) -> dict[str, Tensor]:
    """The gradient of the loss by every parameter."""
    import torch

    with torch.enable_grad():
        leaves = {name: part.detach().requires_grad_() for name, part in net.items()}
        by_leaf = torch.autograd.grad(loss(leaves, batch, beta), tuple(leaves.values()))
    return dict(zip(net, by_leaf, strict=True))


def loss(net: dict[str, Tensor], batch: HistoryBatch, beta: float) -> Tensor:
    """The mean loss over the users of a batch."""
    import torch
    from torch.nn.functional import embedding_bag

    counts = batch.offsets.diff()
    seen = embedding_bag(
        batch.items,
        net["encoder_rows"],
        batch.offsets[:-1],
        mode="sum",
        per_sample_weights=batch.shown,
    )
    h = torch.tanh(seen + net["encoder_bias"])
    mu, log_variance = (h @ net["latent_weights"] + net["latent_bias"]).chunk(2, dim=1)
    z = mu + batch.noise * torch.exp(log_variance / 2)
    h = torch.tanh(z @ net["decoder_weights"] + net["decoder_bias"])
    y = h @ net["item_rows"].T + net["item_bias"]
    owners = torch.arange(len(counts), device=counts.device).repeat_interleave(counts)
    likelihood = y[owners, batch.items].sum() - counts.to(y.dtype) @ torch.logsumexp(y, dim=1)
    divergence = (mu * mu + log_variance.exp() - 1 - log_variance).sum() / 2
    return (beta * divergence - likelihood) / len(counts)


def adam(
    values: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, t: int, learning_rate: float
) -> None:
    """Step t = 1, 2, ... of Adam (Kingma and Ba 2015). Writes the values and both moments."""
    mean.lerp_(gradient, 1 - DECAY1)
    square.mul_(DECAY2).addcmul_(gradient, gradient, value=1 - DECAY2)
    denominator = (square / (1 - DECAY2**t)).sqrt_().add_(EPSILON)
    values.addcdiv_(mean, denominator, value=-learning_rate / (1 - DECAY1**t))


def make(training: TrainingSet, settings: MultVAESettings, context: Context) -> Trainer[Any]:
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError:
        raise MissingExtra("training multivae", "neural") from None
    find_device(settings.device)
    core = Core.of(training, settings)
    return Trainer(
        lambda: (start(core, settings, context.seed), Costs()),
        lambda state, n: (epoch(state, n, core, settings, context.seed), Costs()),
        lambda state: model(state, core, settings),
    )


ALGORITHM = Algorithm(
    "variational autoencoder of histories",
    MultVAESettings,
    make,
    state=Learning,
    steps=lambda settings: settings.epochs,
    paper="Liang et al. 2018",
    score_new_user=score_history,
)
