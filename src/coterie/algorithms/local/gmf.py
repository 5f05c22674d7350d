"""GMF on a client: w[N] is the output layer, then the bias."""

from __future__ import annotations

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
from coterie.models.gmf import GMF

if TYPE_CHECKING:
    from torch import Tensor


def start(world: AnyWorld) -> Parameters:
    settings = world.settings
    if settings.device == "cuda":
        # Report a missing GPU now and not in the middle of a round.
        batched.find_device(settings.device)
    model = GMF.start(
        world.n_users, world.n_items, settings.embedding_size, world.seed, settings.start_scale
    )
    parameters = Parameters(
        model.user_rows, model.item_rows, np.concatenate([model.output, model.bias])
    )
    return parameters if settings.moments == "fresh" else parameters.with_moments()


def train(
    world: AnyWorld,
    given: Parameters,
    samples: Samples,
    rated: bool,
    objective: LocalObjective | None = None,
) -> Changes:
    settings = world.settings
    if settings.device == "cuda" or objective is not None:
        return batched.train(forward, world, given, samples, rated, objective)
    changes = Changes.room_for(given, samples)
    kernel = kernels.load(family(settings))
    options = kernel_options(settings)

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
            rated,
            settings.learning_rate,
            settings.reg,
            *options,
            first,
            last,
            *changes,
        )

    parallel.over(part, samples.starts)
    return changes


def family(settings: Federated) -> str:
    """The kernel family that trains with these settings."""
    if settings.moments == "averaged":
        return "gmf_moments"
    return "gmf_users" if settings.sample_by_sample else "gmf_batches"


def kernel_options(settings: Federated) -> tuple[int, ...]:
    """The arguments of that family after learning rate and regularisation."""
    if settings.moments == "averaged":
        return (settings.batch_size,)
    return () if settings.sample_by_sample else (settings.batch_size, settings.optimizer == "adam")


def forward(p: Tensor, q: Tensor, dense: Tensor) -> Tensor:
    """h . (p * q) + b for a batch of every user, in PyTorch.

    Shapes as in `batched.Forward`.
    """
    return (q * (p * dense[:, :-1])[:, None, :]).sum(2) + dense[:, -1:]


def model(world: AnyWorld, parameters: Parameters) -> GMF:
    if world.settings.moments == "averaged":
        parameters = parameters.without_moments()
    return GMF(
        parameters.user_rows, parameters.item_rows, parameters.dense[:-1], parameters.dense[-1:]
    )


def kernel_families(settings: Federated) -> tuple[str, ...]:
    if settings.device == "cuda":
        return "samples", "sums"
    return "samples", family(settings), "sums"


LEARNER = Learner(start, train, model, kernel_families)
