"""ALS lowers its objective and EASE solves a constrained ridge regression."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from coterie.baselines import als, ease
from coterie.core.progress import SILENT
from coterie.data.training_set import TrainingSet
from coterie.errors import ConfigError
from coterie.experiments.training import fit, models
from coterie.federated.trainer import Context
from coterie.types import Rows


def matrix_of(seed: int, n_users: int, n_items: int, density: float = 0.3) -> np.ndarray:
    return (np.random.default_rng(seed).random((n_users, n_items)) < density).astype(float)


def training_on(X: np.ndarray) -> TrainingSet:
    users, items = np.nonzero(X)
    rows = Rows.build(users.astype(np.int32), items.astype(np.int32), len(X))
    return TrainingSet(*X.shape, rows, rows, None)


# ALS.


def objective(X: np.ndarray, model, alpha: float, reg: float) -> float:
    """Hu et al. 2008, equation 3, over all cells."""
    P = model.user_rows.astype(float)
    Q = model.item_rows.astype(float)
    errors = (1 + alpha * X) * (X - P @ Q.T) ** 2
    return errors.sum() + reg * ((P**2).sum() + (Q**2).sum())


@pytest.mark.parametrize(
    ("alpha", "reg", "d"), [(5.0, 1.0, 4), (0.0, 0.1, 3), (40.0, 10.0, 8), (1.0, 1e-3, 2)]
)
def test_the_als_objective_never_rises(alpha, reg, d):
    X = matrix_of(1, 40, 25)
    settings = als.ALS(embedding_size=d, epochs=12, alpha=alpha, reg=reg)
    values = [
        objective(X, m, alpha, reg)
        for m in models(als.ALGORITHM, training_on(X), settings, Context(0, SILENT))
    ]
    assert all(after <= before * (1 + 1e-6) for before, after in pairwise(values))
    assert values[-1] < (1 + alpha) * X.sum()  # better than predicting zero


def test_als_converges_to_a_stationary_point():
    """After many sweeps the gradient by every row is zero."""
    X = matrix_of(2, 30, 20)
    settings = als.ALS(embedding_size=3, epochs=200, alpha=2.0, reg=1.0)
    model = fit(als.ALGORITHM, training_on(X), settings, Context(0, SILENT))
    P = model.user_rows.astype(float)
    Q = model.item_rows.astype(float)
    weighted = (1 + 2.0 * X) * (P @ Q.T - X)
    np.testing.assert_allclose(weighted.T @ P + Q, 0, atol=1e-3)
    np.testing.assert_allclose(weighted @ Q + P, 0, atol=1e-3)


def test_als_does_not_depend_on_the_number_of_threads(monkeypatch):
    X = matrix_of(3, 37, 11)
    settings = als.ALS(embedding_size=4, epochs=3)
    whole = fit(als.ALGORITHM, training_on(X), settings, Context(0, SILENT))
    monkeypatch.setenv("COTERIE_THREADS", "7")
    parts = fit(als.ALGORITHM, training_on(X), settings, Context(0, SILENT))
    np.testing.assert_array_equal(whole.user_rows, parts.user_rows)
    np.testing.assert_array_equal(whole.item_rows, parts.item_rows)


# EASE.


def weights_of(X: np.ndarray, **settings: float) -> np.ndarray:
    return fit(ease.ALGORITHM, training_on(X), ease.EASE(**settings), Context(0, SILENT)).weights


@pytest.mark.parametrize("reg", [0.5, 10.0, 500.0])
def test_ease_is_ridge_regression_of_every_item_on_the_others(reg):
    X = matrix_of(4, 30, 9)
    X[:, 5] = 0  # an item without users
    expected = np.zeros((9, 9))
    for item in range(9):
        others = [other for other in range(9) if other != item]
        A = X[:, others]
        expected[others, item] = np.linalg.solve(A.T @ A + reg * np.eye(8), A.T @ X[:, item])
    np.testing.assert_allclose(weights_of(X, reg=reg), expected, atol=1e-6)


def test_ease_never_explains_an_item_by_itself():
    assert (np.diag(weights_of(matrix_of(5, 20, 12))) == 0).all()


def test_ease_scores_are_history_times_weights():
    X = matrix_of(6, 20, 12)
    model = fit(ease.ALGORITHM, training_on(X), ease.EASE(reg=3.0), Context(0, SILENT))
    users = np.array([4, 0, 19, 4], np.int32)
    np.testing.assert_allclose(model.score(users), X[users] @ model.weights, atol=1e-6)


def test_ease_rejects_too_many_items_and_names_the_remedy():
    no_rows = Rows(np.zeros(2, np.int64), np.zeros(0, np.int32))
    large = TrainingSet(1, 50_000, no_rows, no_rows, None)
    with pytest.raises(ConfigError) as error:
        fit(ease.ALGORITHM, large, ease.EASE(), Context(0, SILENT))
    message = str(error.value)
    assert "needs about 55.9 GiB for 50,000 items; max_memory allows 8." in message
    assert "--set max_memory=" in message


def test_ease_uses_at_most_max_memory():
    X = matrix_of(7, 10, 100)
    needed = 3 * 8 * 100**2 / 2**30
    assert weights_of(X, max_memory=needed * 1.01).shape == (100, 100)
    with pytest.raises(ConfigError, match="for 100 items"):
        weights_of(X, max_memory=needed * 0.99)
