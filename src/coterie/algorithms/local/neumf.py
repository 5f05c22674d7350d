"""NeuMF on a client: w[N] is everything but the rows.

A row holds the GMF part and the MLP part, so users are clustered on both together. The model `mlp`
is NeuMF whose GMF parts start at zero: then all their gradients are zero, and they stay there.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from coterie import kernels
from coterie.algorithms.local import batched
from coterie.algorithms.local.learner import Changes, Learner, Parameters
from coterie.algorithms.local.objective import LocalObjective
from coterie.algorithms.local.samples import Samples
from coterie.algorithms.local.settings import Federated
from coterie.core import parallel
from coterie.federated.federation import (
    AnyWorld,
)
from coterie.models.neumf import NeuMF, tower_sizes
from coterie.types import Floats, Longs

if TYPE_CHECKING:
    from torch import Tensor


def start(world: AnyWorld) -> Parameters:
    settings = world.settings
    if by_torch(settings):
        # Report a missing GPU now and not in the middle of a round.
        batched.find_device(settings.device)
    model = NeuMF.start(
        world.n_users,
        world.n_items,
        settings.embedding_size,
        settings.layers,
        world.seed,
        settings.start_scale,
    )
    user_rows = without_gmf(settings, model.user_rows)
    return Parameters(user_rows, without_gmf(settings, model.item_rows), model.dense)


def without_gmf(settings: Federated, rows: Floats) -> Floats:
    """Initial rows (n, 2 d); those of `mlp` have a GMF part of zeros."""
    if settings.model != "mlp":
        return rows
    return np.concatenate([np.zeros_like(rows[:, ::2]), rows[:, rows.shape[1] // 2 :]], axis=1)


def train(
    world: AnyWorld,
    given: Parameters,
    samples: Samples,
    rated: bool,
    objective: LocalObjective | None = None,
) -> Changes:
    settings = world.settings
    sizes = sizes_of(world)
    if by_torch(settings) or objective is not None:
        scores = partial(forward, sizes.tolist())
        return batched.train(scores, world, given, samples, rated, objective)
    kernel = kernels.load("neumf_users")
    changes = Changes.room_for(given, samples)

    def part(first: int, last: int) -> None:
        kernel.train(
            samples.offsets,
            samples.items,
            samples.starts,
            samples.places,
            samples.targets,
            given.user_rows,
            given.item_rows,
            given.dense,
            sizes,
            rated,
            settings.learning_rate,
            settings.reg,
            first,
            last,
            *changes,
        )

    parallel.over(part, samples.starts)
    return changes


def by_torch(settings: Federated) -> bool:
    """Whether PyTorch trains: on a GPU, and for batches or Adam, which the kernel does not have."""
    return settings.device == "cuda" or not settings.sample_by_sample


def forward(sizes: list[int], p: Tensor, q: Tensor, dense: Tensor) -> Tensor:
    """NeuMF's prediction for a batch of every user, in PyTorch.

    Shapes as in `batched.Forward`; the layout of rows and of `dense` is that of `models.neumf`.
    """
    import torch

    n, batch, width = q.shape
    at = 0
    half = width // 2
    x = torch.cat([p[:, None, half:].expand(n, batch, half), q[:, :, half:]], 2)
    for inner, outer in pairwise(sizes):
        weights = dense[:, at : at + outer * inner].view(n, outer, inner)
        biases = dense[:, None, at + outer * inner : at + outer * inner + outer]
        x = torch.relu(torch.baddbmm(biases, x, weights.transpose(1, 2)))
        at = at + outer * inner + outer
    top = torch.cat([x, p[:, None, :half] * q[:, :, :half]], 2)
    return (top * dense[:, None, at:-1]).sum(2) + dense[:, -1:]


def model(world: AnyWorld, parameters: Parameters) -> NeuMF:
    return NeuMF(parameters.user_rows, parameters.item_rows, parameters.dense, sizes_of(world))


def sizes_of(world: AnyWorld) -> Longs:
    """Layer sizes of the tower."""
    return tower_sizes(world.settings.embedding_size, world.settings.layers)


def kernel_families(settings: Federated) -> tuple[str, ...]:
    return ("samples", "sums") if by_torch(settings) else ("samples", "neumf_users", "sums")


LEARNER = Learner(start, train, model, kernel_families)
