"""NeuMF: generalised matrix factorisation and a neural tower, with one output layer.

He, Liao, Zhang, Nie, Hu, Chua. Neural collaborative filtering. WWW 2017.

An epoch visits every training interaction once, in a new random order. Implicit feedback: label 1
for the positive, then label 0 for `negatives` fresh items outside the user's training items; binary
cross-entropy. Explicit feedback: the rating; squared error.

Deviations: both parts are trained together from the start by SGD (the paper pre-trains each with
Adam), and their embeddings are equally long (in the paper, those of the tower are half of its first
layer).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from coterie import kernels
from coterie.algorithms.algorithm import Algorithm, score_by_sampled_loss, stepwise
from coterie.algorithms.local.settings import Layers
from coterie.baselines.gmf import GMFSettings
from coterie.core import streams
from coterie.core.settings import SearchSpace, Settings
from coterie.data.training_set import TrainingSet
from coterie.federated.trainer import Context
from coterie.models.neumf import NeuMF
from coterie.types import Floats

NO_RATINGS: Floats = np.empty(0, np.float32)


class NeuMFSettings(Settings):
    search_space: ClassVar[SearchSpace] = GMFSettings.search_space

    embedding_size: int = Field(16, ge=1, le=4096)
    """Length of each of the two parts of a user or item row."""
    layers: Layers = (32, 16, 8)
    """Layer sizes of the tower, from below."""
    epochs: int = Field(30, ge=1)
    """Epochs over the training interactions."""
    learning_rate: float = Field(0.02, gt=0)
    """Learning rate of SGD."""
    reg: float = Field(0.01, ge=0)
    """Regularisation of user and item rows."""
    negatives: int = Field(4, ge=1)
    """Negatives drawn per positive (implicit feedback)."""
    start_scale: float = Field(0.1, ge=0)
    """Standard deviation of the initial rows."""


def start(training: TrainingSet, settings: NeuMFSettings, context: Context) -> NeuMF:
    model = NeuMF.start(
        training.n_users,
        training.n_items,
        settings.embedding_size,
        settings.layers,
        context.seed,
        settings.start_scale,
    )
    # Start at the mean rating, which SGD would learn only slowly.
    if training.ratings is not None:
        model.dense[-1] = training.ratings.mean()
    return model


def epoch(
    model: NeuMF, n: int, training: TrainingSet, settings: NeuMFSettings, context: Context
) -> NeuMF:
    model = NeuMF(model.user_rows.copy(), model.item_rows.copy(), model.dense.copy(), model.sizes)
    kernels.load("neumf").train(
        streams.at(context.seed, "order", n - 1).permutation(len(training)),
        training.users,
        training.positives.items,
        NO_RATINGS if training.ratings is None else training.ratings,
        training.excluded.offsets,
        training.excluded.items,
        model.user_rows,
        model.item_rows,
        model.dense,
        model.sizes,
        settings.negatives,
        settings.learning_rate,
        settings.reg,
        np.uint64(streams.key(context.seed, "negatives", n - 1)),
    )
    return model


ALGORITHM = Algorithm(
    "matrix factorisation with a neural tower",
    NeuMFSettings,
    stepwise(start, epoch),
    state=NeuMF,
    steps=lambda settings: settings.epochs,
    kernels=("neumf",),
    explicit=True,
    paper="He et al. 2017",
    score_new_user=score_by_sampled_loss,
    popularity_prior=1.0,
)
