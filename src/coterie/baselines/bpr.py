"""BPR-MF: matrix factorisation with an item bias, trained to rank positives above negatives.

Rendle, Freudenthaler, Gantner, Schmidt-Thieme. BPR: Bayesian personalized ranking from implicit
feedback. UAI 2009.

An epoch has as many triples as there are training interactions. For each, (u, i) is drawn from the
interactions with replacement, and j from the items outside u's training items. Then, with
x = p_u . (q_i - q_j) + b_i - b_j and g = 1 - sigmoid(x),
    p_u += rate (g (q_i - q_j) - reg_user p_u)
    q_i += rate (g p_u - reg_positive q_i)        b_i += rate (g - reg_bias b_i)
    q_j += rate (-g p_u - reg_negative q_j)       b_j += rate (-g - reg_bias b_j)
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
from coterie.models.factors import Factors, score_by_pairs
from coterie.models.new_user import NewUser
from coterie.types import Floats


class BPR(Settings):
    search_space: ClassVar[SearchSpace] = {
        "learning_rate": (0.01, 0.2),
        "reg_user": (1e-4, 0.1),
        "reg_positive": (1e-4, 0.1),
        "reg_negative": (1e-4, 0.1),
        "reg_bias": [0.0, 0.01],
        "start_scale": [0.01, 0.03, 0.1],
        "embedding_size": [16, 32, 64],
    }

    embedding_size: int = Field(16, ge=1, le=4096)
    """Length of every user and item row."""
    epochs: int = Field(50, ge=1)
    """Epochs; each has as many triples as there are training interactions."""
    learning_rate: float = Field(0.05, gt=0)
    """Learning rate of SGD."""
    reg_user: float = Field(0.01, ge=0)
    """Regularisation of user rows."""
    reg_positive: float = Field(0.01, ge=0)
    """Regularisation of the row of the positive item."""
    reg_negative: float = Field(0.01, ge=0)
    """Regularisation of the row of the negative item."""
    reg_bias: float = Field(0.0, ge=0)
    """Regularisation of item biases; the papers use none."""
    start_scale: float = Field(0.1, ge=0)
    """Standard deviation of the initial values."""


def start(training: TrainingSet, settings: BPR, context: Context) -> Factors:
    return Factors.start(
        training.n_users,
        training.n_items,
        settings.embedding_size,
        context.seed,
        settings.start_scale,
    )


def epoch(
    model: Factors, n: int, training: TrainingSet, settings: BPR, context: Context
) -> Factors:
    model = Factors(model.user_rows.copy(), model.item_rows.copy(), model.item_bias.copy())
    kernels.load("bpr").train_triples(
        training.users,
        training.positives.items,
        training.excluded.offsets,
        training.excluded.items,
        model.user_rows,
        model.item_rows,
        model.item_bias,
        settings.learning_rate,
        settings.reg_user,
        settings.reg_positive,
        settings.reg_negative,
        settings.reg_bias,
        np.uint64(streams.key(context.seed, "triples", n - 1)),
        len(training),
    )
    return model


def score_new_user(model: Factors, user: NewUser, settings: BPR) -> Floats:
    """Fit the row of a new user to all pairs; without items, take the average row."""
    return score_by_pairs(model, user, settings.reg_user)


ALGORITHM = Algorithm(
    "matrix factorisation trained to rank",
    BPR,
    stepwise(start, epoch),
    state=Factors,
    steps=lambda settings: settings.epochs,
    kernels=("bpr",),
    paper="Rendle et al. 2009",
    score_new_user=score_new_user,
)
