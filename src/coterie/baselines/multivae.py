"""Mult-VAE: an autoencoder of histories with a multinomial likelihood and a half-hearted prior.

Liang, Krishnan, Hoffman, Jebara. Variational autoencoders for collaborative filtering. WWW 2018.

An epoch visits everybody once in a new random order, a batch at a time. For the history x of a user, scaled to length one and
with every entry dropped out with probability `dropout`:
    mu, log sigma^2 = encoder(x)        z = mu + eps sigma, eps ~ N(0, I)        y = decoder(z)
    loss = - sum_i x_i log softmax(y)_i + beta KL(N(mu, sigma^2) || N(0, I)),    the mean over the batch, by Adam
beta rises with the steps t: min(beta, t / anneal_steps), as in the authors' code. Weights start as Glorot and Bengio (2010) draw
them, biases at zero.

The paper keeps people and items with enough interactions only; `min_user_items` and `min_item_users` ask for that, again and again
until all that are left have enough (a core). Items nobody has in training are always left out: the net could but push them down.

All chance comes from (seed, epoch), so training can be interrupted after any epoch. The same seed gives the same bits in one build
of PyTorch with one number of its threads. Small nets always learn on one thread; in large ones (see LARGE) another number of
threads may sum matrix products in another order, and the last digits differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from coterie.algorithms.algorithm import Algorithm
from coterie.algorithms.local.batched import DECAY1, DECAY2, EPSILON
from coterie.core import streams
from coterie.core.parallel import one_torch_thread
from coterie.core.records import Record
from coterie.core.settings import Settings
from coterie.data.training_set import TrainingSet
from coterie.errors import ConfigError, MissingExtra
from coterie.federated.costs import Costs
from coterie.federated.trainer import Context, Trainer
from coterie.models.multivae import MultVAE, scaled
from coterie.types import Bools, Floats, Ints, Rows

if TYPE_CHECKING:
    from torch import Tensor

LARGE = 1 << 25
"""Multiplications of a batch's largest product from which on more than one thread is worth it. Below, on cores that were not
free, two threads that wait for one another took ten times as long as one."""


class MultVAESettings(Settings):
    hidden: int = Field(200, ge=1, le=4096)
    """Width of the layer on each side of the middle."""
    latent: int = Field(100, ge=1, le=4096)
    """Width of the middle."""
    epochs: int = Field(50, ge=1)
    """Passes over the users."""
    batch_size: int = Field(500, ge=1)
    """Users a step."""
    learning_rate: float = Field(0.001, gt=0)
    """Step size of Adam."""
    dropout: float = Field(0.5, ge=0, lt=1)
    """Share of a history that is hidden from the encoder in training."""
    beta: float = Field(0.2, ge=0)
    """Weight of the prior at most."""
    anneal_steps: int = Field(200_000, ge=0)
    """Steps in which the weight of the prior would rise from 0 to 1, were there no `beta`; 0 starts at `beta`. The authors' figure
    for millions of interactions: with few steps the prior hardly counts."""
    min_item_users: int = Field(0, ge=0)
    """Items with fewer users are left out, and recommended last."""
    min_user_items: int = Field(0, ge=0)
    """People with fewer items are left out, and get no recommendations."""


# What is learned from.


@dataclass(frozen=True, slots=True)
class Core:
    """The people and items that are left."""

    rows: Rows  # of all users, items numbered among those that are left
    users: Ints  # those that are left
    items: Ints  # and their numbers outside
    n_items: int  # outside

    @classmethod
    def of(cls, training: TrainingSet, settings: MultVAESettings) -> Core:
        users = training.users
        items = training.positives.items
        kept = in_core(users, items, settings.min_user_items, settings.min_item_users)
        if not kept.any():
            raise ConfigError(
                f"settings 'min_user_items' {settings.min_user_items} and 'min_item_users' {settings.min_item_users} leave none "
                f"of {len(items):,} interactions to train on; expected some. Lower them with --set."
            )
        left, renumbered = np.unique(items[kept], return_inverse=True)
        rows = Rows.build(users[kept], renumbered.astype(np.int32), training.n_users)
        return cls(rows, np.flatnonzero(rows.counts).astype(np.int32), left, training.n_items)


def in_core(users: Ints, items: Ints, min_user_items: int, min_item_users: int) -> Bools:
    """Which interactions are left when people and items with too few go, and then those that now have too few, and so on."""
    kept = np.ones(len(users), bool)
    while True:
        fine = kept & (
            np.bincount(users[kept], minlength=users.max(initial=0) + 1)[users] >= min_user_items
        )
        fine &= (
            np.bincount(items[kept], minlength=items.max(initial=0) + 1)[items] >= min_item_users
        )
        if fine.sum() == kept.sum():
            return kept
        kept = fine


# What is learned.


@dataclass(frozen=True, slots=True)
class Learning(Record):
    """All parameters one after the other, and Adam's two moments of each."""

    parameters: Floats
    mean: Floats
    square: Floats


def shapes(n_items: int, settings: MultVAESettings) -> dict[str, tuple[int, ...]]:
    """Of the parameters, by their names in the model, in the order of the state."""
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


def taken_apart(flat: Any, of: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """Views of an array, or of a tensor, by name."""
    ends = np.cumsum([prod(shape) for shape in of.values()]).tolist()
    starts = [0, *ends[:-1]]
    return {
        name: flat[a:b].reshape(shape)
        for (name, shape), a, b in zip(of.items(), starts, ends, strict=True)
    }


def start(core: Core, settings: MultVAESettings, seed: int) -> Learning:
    of = shapes(len(core.items), settings)
    flat = np.zeros(sum(map(prod, of.values())), np.float32)
    for name, part in taken_apart(flat, of).items():
        if part.ndim == 2:
            limit = sqrt(6 / sum(part.shape))
            part[:] = streams.at(seed, f"start {name}").uniform(-limit, limit, part.shape)
    return Learning(flat, np.zeros_like(flat), np.zeros_like(flat))


def model(state: Learning, core: Core, settings: MultVAESettings) -> MultVAE:
    parts = taken_apart(state.parameters, shapes(len(core.items), settings))
    return MultVAE(
        **parts,
        known=core.items,
        offsets=core.rows.offsets,
        history=core.rows.items,
        n_items=core.n_items,
    )


# Learning.


@dataclass(frozen=True, slots=True)
class Batch:
    """What some users did, one after the other."""

    offsets: Tensor  # (users + 1,)
    items: Tensor  # (interactions,)
    shown: Tensor  # (interactions,) what the encoder gets to see of them
    noise: Tensor  # (users, latent)


def batches(core: Core, n: int, settings: MultVAESettings, seed: int) -> Iterator[Batch]:
    """Everybody once, in the order of epoch n = 1, 2, ..."""
    import torch

    rows = core.rows
    n_users = len(core.rows.counts)
    order = streams.at(seed, "order", n - 1).permutation(core.users)
    noise = streams.at(seed, "latent", n - 1).standard_normal(
        (n_users, settings.latent), np.float32
    )
    kept = (
        streams.at(seed, "dropout", n - 1).random(len(rows.items), np.float32) >= settings.dropout
    )
    shown = scaled(rows.counts) * kept / np.float32(1 - settings.dropout)
    for first in range(0, len(order), settings.batch_size):
        users = order[first : first + settings.batch_size]
        places = rows.places(users)
        own = rows.of_users(users)
        arrays = own.offsets, own.items.astype(np.int64), shown[places], noise[users]
        yield Batch(*map(torch.from_numpy, arrays))


def epoch(state: Learning, n: int, core: Core, settings: MultVAESettings, seed: int) -> Learning:
    import torch

    state = Learning(state.parameters.copy(), state.mean.copy(), state.square.copy())
    of = shapes(len(core.items), settings)
    net, mean, square = (
        taken_apart(torch.from_numpy(flat), of) for flat in state.arrays().values()
    )
    before = (n - 1) * -(-len(core.users) // settings.batch_size)
    multiplications = min(settings.batch_size, len(core.users)) * len(core.items) * settings.hidden
    with one_torch_thread(multiplications < LARGE):
        for t, batch in enumerate(batches(core, n, settings, seed), before):
            for name, gradient in gradients(net, batch, weight_of_prior(t, settings)).items():
                adam(net[name], gradient, mean[name], square[name], t + 1, settings.learning_rate)
    return state


def weight_of_prior(t: int, settings: MultVAESettings) -> float:
    """At the step after t steps."""
    return min(settings.beta, t / settings.anneal_steps) if settings.anneal_steps else settings.beta


def gradients(net: dict[str, Tensor], batch: Batch, beta: float) -> dict[str, Tensor]:
    import torch

    with torch.enable_grad():
        at = {name: part.detach().requires_grad_() for name, part in net.items()}
        gradients = torch.autograd.grad(loss(at, batch, beta), tuple(at.values()))
    return dict(zip(net, gradients, strict=True))


def loss(net: dict[str, Tensor], batch: Batch, beta: float) -> Tensor:
    """The mean over the users of a batch."""
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
    owners = torch.arange(len(counts)).repeat_interleave(counts)
    likelihood = y[owners, batch.items].sum() - counts.to(y.dtype) @ torch.logsumexp(y, dim=1)
    divergence = (mu * mu + log_variance.exp() - 1 - log_variance).sum() / 2
    return (beta * divergence - likelihood) / len(counts)


def adam(
    values: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, t: int, rate: float
) -> None:
    """Step t = 1, 2, ... of Adam (Kingma and Ba 2015); writes all but the slope."""
    mean.lerp_(gradient, 1 - DECAY1)
    square.mul_(DECAY2).addcmul_(gradient, gradient, value=1 - DECAY2)
    values.addcdiv_(
        mean, (square / (1 - DECAY2**t)).sqrt_().add_(EPSILON), value=-rate / (1 - DECAY1**t)
    )


def make(training: TrainingSet, settings: MultVAESettings, context: Context) -> Trainer[Any]:
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError:
        raise MissingExtra("training multivae", "neural") from None
    core = Core.of(training, settings)
    return Trainer(
        lambda: (start(core, settings, context.seed), Costs()),
        lambda state, n: (epoch(state, n, core, settings, context.seed), Costs()),
        lambda state: model(state, core, settings),
    )


ALGORITHM = Algorithm(
    "autoencoder of histories",
    MultVAESettings,
    make,
    state=Learning,
    steps=lambda settings: settings.epochs,
    paper="Liang et al. 2018",
)
