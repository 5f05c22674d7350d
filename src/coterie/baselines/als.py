"""Implicit ALS: weighted matrix factorisation, solved alternately for users and items.

Hu, Koren, Volinsky. Collaborative filtering for implicit feedback datasets. ICDM 2008.

`algorithms/local/least_squares.py` has the objective. With one side fixed, every row of the other
is the solution of its own ridge system. With a `block_size`, a sweep improves rows block by block
(iALS++), which is faster where rows are long.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from coterie.algorithms.algorithm import Algorithm, stepwise
from coterie.algorithms.local.least_squares import LeastSquares, improve, solve
from coterie.data.training_set import TrainingSet
from coterie.federated.trainer import Context
from coterie.models.factors import Factors
from coterie.models.new_user import NewUser
from coterie.types import Floats, Rows


class ALS(LeastSquares):
    epochs: int = Field(15, ge=1)
    """Sweeps, each solving all users and then all items."""


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
    if settings.block_size:
        X = improve(model.user_rows, training.positives, model.item_rows, settings)
        Y = improve(model.item_rows, training.by_item, X, settings)
    else:
        X = solve(training.positives, model.item_rows, settings)
        Y = solve(training.by_item, X, settings)
    return Factors(X, Y, model.item_bias)


def score_new_user(model: Factors, user: NewUser, settings: LeastSquares) -> Floats:
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
