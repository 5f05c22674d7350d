"""GMF on the device: w[N] is the output layer and, last, the bias."""

from __future__ import annotations

import numpy as np

from coterie import kernels, parallel
from coterie.federation import World
from coterie.learners.learner import Changes, Learner, Parameters
from coterie.learners.samples import Samples
from coterie.models.gmf import GMF


def start(world: World) -> Parameters:
    settings = world.settings
    model = GMF.start(world.n_users, world.n_items, settings.embedding_size, world.seed, settings.start_scale)
    return Parameters(model.user_rows, model.item_rows, np.concatenate([model.output, model.bias]))


def train(world: World, given: Parameters, samples: Samples, rated: bool) -> Changes:
    settings, kernel = world.settings, kernels.load("gmf_users")
    n, width = given.user_rows.shape
    changes = Changes(
        np.empty((n, width), np.int32),
        np.empty((len(samples.items), width), np.int32),
        np.empty((n, width + 1), np.int32),
    )

    def part(first: int, last: int) -> None:
        kernel.train(
            samples.offsets, samples.items, samples.starts, samples.places, samples.targets,
            given.user_rows, given.item_rows, given.dense, rated, settings.learning_rate, settings.reg, first, last,
            *changes,
        )  # fmt: skip

    parallel.over(part, samples.starts)
    return changes


def model(world: World, parameters: Parameters) -> GMF:
    return GMF(parameters.user_rows, parameters.item_rows, parameters.dense[:-1], parameters.dense[-1:])


LEARNER = Learner(start, train, model, kernels=("samples", "gmf_users", "sums"))
