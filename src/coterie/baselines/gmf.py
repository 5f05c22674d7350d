"""GMF: generalised matrix factorisation with a trained output layer.

He, Liao, Zhang, Nie, Hu, Chua. Neural collaborative filtering. WWW 2017; as used by FedFast
(Section 3.1).

An epoch visits every training interaction once, in a new random order. Implicit feedback: label 1
for the positive, then label 0 for `negatives` fresh items outside the user's training items; binary
cross-entropy. Explicit feedback: the rating; squared error.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from coterie import kernels
from coterie.algorithms.algorithm import Algorithm, stepwise
from coterie.core import streams
from coterie.core.settings import SearchSpace, Settings
from coterie.data.training_set import TrainingSet
from coterie.federated.trainer import Context
from coterie.models.gmf import GMF


class GMFSettings(Settings):
    search_space: ClassVar[SearchSpace] = {
        "learning_rate": (0.005, 0.1),
        "reg": (1e-3, 0.1),
        "negatives": [2, 4, 8],
        "start_scale": [0.01, 0.03, 0.1],
        "embedding_size": [16, 32, 64],
    }

    embedding_size: int = Field(16, ge=1, le=4096)
    """Length of every user and item row."""
    epochs: int = Field(30, ge=1)
    """Epochs over the training interactions."""
    learning_rate: float = Field(0.05, gt=0)
    """Learning rate of SGD."""
    reg: float = Field(0.01, ge=0)
    """Regularisation of user and item rows."""
    negatives: int = Field(4, ge=1)
    """Negatives drawn per positive (implicit feedback)."""
    start_scale: float = Field(0.1, ge=0)
    """Standard deviation of the initial values."""


def start(training: TrainingSet, settings: GMFSettings, context: Context) -> GMF:
    model = GMF.start(
        training.n_users,
        training.n_items,
        settings.embedding_size,
        context.seed,
        settings.start_scale,
    )
    # Start at the mean rating, which SGD would learn only slowly.
    if training.ratings is not None:
        model = GMF(
            model.user_rows,
            model.item_rows,
            model.output,
            np.array([training.ratings.mean()], np.float32),
        )
    return model


def epoch(
    model: GMF, n: int, training: TrainingSet, settings: GMFSettings, context: Context
) -> GMF:
    kernel = kernels.load("gmf")
    users = training.users
    items = training.positives.items
    model = GMF(
        model.user_rows.copy(), model.item_rows.copy(), model.output.copy(), model.bias.copy()
    )
    parameters = (model.user_rows, model.item_rows, model.output, model.bias)
    order = streams.at(context.seed, "order", n - 1).permutation(len(training))
    if training.ratings is not None:
        kernel.train_explicit(
            order, users, items, training.ratings, *parameters, settings.learning_rate, settings.reg
        )
        return model
    seen = (training.excluded.offsets, training.excluded.items)
    key = np.uint64(streams.key(context.seed, "negatives", n - 1))
    kernel.train_implicit(
        order,
        users,
        items,
        *seen,
        *parameters,
        settings.negatives,
        settings.learning_rate,
        settings.reg,
        key,
    )
    return model


ALGORITHM = Algorithm(
    "generalised matrix factorisation",
    GMFSettings,
    stepwise(start, epoch),
    state=GMF,
    steps=lambda settings: settings.epochs,
    kernels=("gmf",),
    explicit=True,
    paper="He et al. 2017",
)
