"""GMF: generalised matrix factorisation with a trained output layer.

He, Liao, Zhang, Nie, Hu, Chua. Neural collaborative filtering. WWW 2017; as used by FedFast
(Section 3.1).

By default an epoch visits every training interaction once, in a new random order, and takes a step
of SGD on every sample. Implicit feedback: label 1 for the positive, then label 0 for `negatives`
fresh items outside the user's training items; binary cross-entropy. Explicit feedback: the rating;
squared error.

With `batch_size` above 1 or `optimizer=adam`, the positives and negatives of an epoch are shuffled
together and cut into batches, as in the code of the paper. Adam's moments persist over the run, and
rows outside a batch do not move.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from coterie import kernels
from coterie.algorithms.algorithm import Algorithm, score_by_sampled_loss
from coterie.core import streams
from coterie.core.records import Record
from coterie.core.settings import SearchSpace, Settings
from coterie.data.training_set import TrainingSet
from coterie.federated.costs import Costs
from coterie.federated.trainer import Context, Trainer
from coterie.models.gmf import GMF
from coterie.types import Floats

NO_RATINGS: Floats = np.empty(0, np.float32)


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
    optimizer: Literal["sgd", "adam"] = "sgd"
    """Optimiser. Adam moves the rows of a batch only, as PyTorch's SparseAdam does."""
    batch_size: int = Field(1, ge=1)
    """Samples per step (their mean gradient)."""
    learning_rate: float = Field(0.05, gt=0)
    """Learning rate."""
    final_rate: float = Field(1.0, gt=0, le=1)
    """Share of the learning rate left in the last epoch; it falls by the same factor each epoch."""
    reg: float = Field(0.01, ge=0)
    """Regularisation of user and item rows."""
    negatives: int = Field(4, ge=1)
    """Negatives drawn per positive (implicit feedback)."""
    start_scale: float = Field(0.1, ge=0)
    """Standard deviation of the initial values."""

    @property
    def sample_by_sample(self) -> bool:
        """Whether the kernel without batches applies."""
        return self.batch_size == 1 and self.optimizer == "sgd"

    def learning_rate_at(self, n: int) -> float:
        """The learning rate of epoch n = 1, 2, ..."""
        share: float = self.final_rate ** ((n - 1) / max(self.epochs - 1, 1))
        return self.learning_rate * share


@dataclass(frozen=True, slots=True)
class GMFState(Record):
    """The model, and Adam's two moments of its gradient; they are empty with SGD."""

    user_rows: Floats  # (users, d)
    item_rows: Floats  # (items, d)
    output: Floats  # (d,)
    bias: Floats  # (1,)
    user_moments: Floats  # (2, users, d)
    item_moments: Floats  # (2, items, d)
    dense_moments: Floats  # (2, d + 1) of the output layer, then the bias

    def copy(self) -> GMFState:
        return GMFState(**{name: array.copy() for name, array in self.arrays().items()})


def start(training: TrainingSet, settings: GMFSettings, context: Context) -> GMFState:
    size = settings.embedding_size
    model = GMF.start(training.n_users, training.n_items, size, context.seed, settings.start_scale)
    # Start at the mean rating, which SGD would learn only slowly.
    bias = model.bias
    if training.ratings is not None:
        bias = np.array([training.ratings.mean()], np.float32)
    by_adam = settings.optimizer == "adam"
    return GMFState(
        model.user_rows,
        model.item_rows,
        model.output,
        bias,
        user_moments=np.zeros((2, training.n_users if by_adam else 0, size), np.float32),
        item_moments=np.zeros((2, training.n_items if by_adam else 0, size), np.float32),
        dense_moments=np.zeros((2, size + 1 if by_adam else 0), np.float32),
    )


def epoch(
    state: GMFState, n: int, training: TrainingSet, settings: GMFSettings, context: Context
) -> GMFState:
    """Epoch n = 1, 2, ..."""
    train = one_by_one if settings.sample_by_sample else in_batches
    return train(state.copy(), n, training, settings, context.seed)


def one_by_one(
    state: GMFState, n: int, training: TrainingSet, settings: GMFSettings, seed: int
) -> GMFState:
    """Take a step on every sample. Writes the state, and returns it."""
    kernel = kernels.load("gmf")
    users = training.users
    items = training.positives.items
    parameters = (state.user_rows, state.item_rows, state.output, state.bias)
    order = streams.at(seed, "order", n - 1).permutation(len(training))
    learning_rate = settings.learning_rate_at(n)
    if training.ratings is not None:
        kernel.train_explicit(
            order, users, items, training.ratings, *parameters, learning_rate, settings.reg
        )
        return state
    seen = (training.excluded.offsets, training.excluded.items)
    key = np.uint64(streams.key(seed, "negatives", n - 1))
    kernel.train_implicit(
        order,
        users,
        items,
        *seen,
        *parameters,
        settings.negatives,
        learning_rate,
        settings.reg,
        key,
    )
    return state


def in_batches(
    state: GMFState, n: int, training: TrainingSet, settings: GMFSettings, seed: int
) -> GMFState:
    """Take a step on every batch. Writes the state, and returns one that shares its arrays."""
    negatives = 0 if training.ratings is not None else settings.negatives
    n_samples = len(training) * (1 + negatives)
    dense = np.concatenate([state.output, state.bias])
    kernels.load("gmf_pooled").train(
        streams.at(seed, "order", n - 1).permutation(n_samples),
        training.users,
        training.positives.items,
        NO_RATINGS if training.ratings is None else training.ratings,
        training.excluded.offsets,
        training.excluded.items,
        state.user_rows,
        state.item_rows,
        dense,
        state.user_moments,
        state.item_moments,
        state.dense_moments,
        negatives,
        settings.learning_rate_at(n),
        settings.reg,
        settings.batch_size,
        settings.optimizer == "adam",
        (n - 1) * -(-n_samples // settings.batch_size),
        np.uint64(streams.key(seed, "negatives", n - 1)),
    )
    return replace(state, output=dense[:-1].copy(), bias=dense[-1:].copy())


def model(state: GMFState) -> GMF:
    return GMF(state.user_rows, state.item_rows, state.output, state.bias)


def make(training: TrainingSet, settings: GMFSettings, context: Context) -> Trainer[GMFState]:
    return Trainer(
        lambda: (start(training, settings, context), Costs()),
        lambda state, n: (epoch(state, n, training, settings, context), Costs()),
        model,
    )


ALGORITHM = Algorithm(
    "generalised matrix factorisation",
    GMFSettings,
    make,
    state=GMFState,
    steps=lambda settings: settings.epochs,
    kernels=lambda settings: ("gmf",) if settings.sample_by_sample else ("gmf_pooled",),
    explicit=True,
    paper="He et al. 2017",
    score_new_user=score_by_sampled_loss,
    popularity_prior=1.0,
)
