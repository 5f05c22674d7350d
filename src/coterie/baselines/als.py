"""Implicit ALS: weighted matrix factorisation, solved alternately for users and items.

Hu, Koren, Volinsky. Collaborative filtering for implicit feedback datasets. ICDM 2008.

Minimises sum_{u,i} c_ui (r_ui - x_u . y_i)^2 + reg (|X|^2 + |Y|^2), with r = 1 and c = 1 + alpha
where u interacted with i, and r = 0 and c = 1 elsewhere. With one side fixed, every row of the
other is the solution of its own ridge system.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from coterie import kernels
from coterie.algorithms.algorithm import Algorithm, stepwise
from coterie.core import parallel
from coterie.core.settings import SearchSpace, Settings
from coterie.data.training_set import TrainingSet
from coterie.federated.trainer import Context
from coterie.models.factors import Factors
from coterie.models.new_user import NewUser
from coterie.types import Floats, Rows


class ALS(Settings):
    search_space: ClassVar[SearchSpace] = {
        "alpha": (0.3, 50.0),
        "reg": (0.1, 100.0),
        "embedding_size": [16, 32, 64],
    }

    embedding_size: int = Field(32, ge=1, le=512)
    """Length of every user and item row."""
    epochs: int = Field(15, ge=1)
    """Sweeps, each solving all users and then all items."""
    alpha: float = Field(5.0, ge=0)
    """Extra confidence in observed interactions."""
    reg: float = Field(10.0, gt=0)
    """Regularisation of all rows."""
    start_scale: float = Field(0.1, gt=0)
    """Standard deviation of the initial values."""


def start(training: TrainingSet, settings: ALS, context: Context) -> Factors:
    return Factors.start(
        training.n_users,
        training.n_items,
        settings.embedding_size,
        context.seed,
        settings.start_scale,
    )


def sweep(
    model: Factors, n: int, training: TrainingSet, settings: ALS, context: Context
) -> Factors:
    X = solve(training.positives, model.item_rows, settings)
    return Factors(X, solve(training.by_item, X, settings), model.item_bias)


def solve(rows: Rows, fixed: Floats, settings: ALS) -> Floats:
    """Solve all rows of one side, with the other fixed."""
    kernel = kernels.load("als")
    d = fixed.shape[1]
    G = np.empty((d, d))
    kernel.gram(fixed, G)
    solved = np.empty((len(rows.counts), d), np.float32)
    no_extra = np.empty((0, d))

    def part(first: int, last: int) -> None:
        kernel.solve_rows(
            rows.offsets,
            rows.items,
            fixed,
            G,
            no_extra,
            settings.alpha,
            settings.reg,
            first,
            last,
            solved,
        )

    parallel.over(part, rows.offsets)
    return solved


def score_new_user(model: Factors, user: NewUser, settings: ALS) -> Floats:
    """Solve the row of a new user as a sweep does; without items, take the average row."""
    if not len(user.items):
        return model.score_row(model.average_row())
    history = Rows(np.array([0, len(user.items)]), user.items)
    return model.score_row(solve(history, model.item_rows, settings)[0])


ALGORITHM = Algorithm(
    "implicit alternating least squares",
    ALS,
    stepwise(start, sweep),
    state=Factors,
    steps=lambda settings: settings.epochs,
    kernels=("als",),
    paper="Hu et al. 2008",
    score_new_user=score_new_user,
)
