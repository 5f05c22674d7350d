"""ALS lowers its objective and EASE solves a constrained ridge regression."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest

from coterie.algorithms.local.cooccurrence import gigabytes, inverse, item_weights
from coterie.algorithms.local.least_squares import ridges, vanishing_reg
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
    settings = als.ALS(embedding_size=d, epochs=12, alpha=alpha, reg=reg, reg_exponent=0.0)
    values = [
        objective(X, m, alpha, reg)
        for m in models(als.ALGORITHM, training_on(X), settings, Context(0, SILENT))
    ]
    assert all(after <= before * (1 + 1e-6) for before, after in pairwise(values))
    assert values[-1] < (1 + alpha) * X.sum()  # better than predicting zero


@pytest.mark.parametrize("density", [0.05, 0.3])
@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_derived_regularisation_does_not_let_rows_vanish(density, exponent):
    """The bound is below the largest singular value, where rows vanish, and the default is a tenth
    of the bound."""
    X = matrix_of(3, 60, 40, density)
    X[0, 0] = 1.0
    training = training_on(X)
    free = als.ALS(embedding_size=4, epochs=30, alpha=3.0, reg_exponent=exponent)
    at_one = free.model_copy(update={"reg": 1.0})
    by_user = ridges(training.positives.counts, 40, at_one)
    by_item = ridges(training.by_item.counts, 60, at_one)
    scaled = (1 + free.alpha) * X / np.sqrt(np.outer(by_user, by_item))
    largest = np.linalg.svd(scaled, compute_uv=False)[0]
    bound = vanishing_reg(free, training.size)
    assert 0.3 * largest < bound <= largest * (1 + 1e-9)
    assert free.for_data(training.size).reg == pytest.approx(bound / 10, rel=0.01)

    def norm(reg: float) -> float:
        settings = free.model_copy(update={"reg": reg})
        return float(np.linalg.norm(fit_als(training, settings).item_rows))

    assert norm(0.9 * bound) > 0.1
    assert norm(1.1 * largest) < 1e-3


def fit_als(training: TrainingSet, settings: als.ALS):
    return fit(als.ALGORITHM, training, settings, Context(0, SILENT))


def test_als_converges_to_a_stationary_point():
    """After many sweeps the gradient by every row is zero."""
    X = matrix_of(2, 30, 20)
    settings = als.ALS(embedding_size=3, epochs=200, alpha=2.0, reg=1.0, reg_exponent=0.0)
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


def ridge(counts: np.ndarray, others: int, settings: als.ALS) -> np.ndarray:
    """Rendle et al. 2022: lambda (count + alpha_0 others)^nu, here with alpha_0 = 1 / alpha."""
    return settings.reg * (counts + others / settings.alpha) ** settings.reg_exponent


def weighted_objective(X: np.ndarray, model, settings: als.ALS) -> float:
    """The errors of all cells, and a ridge for each row that grows with its interactions."""
    P = model.user_rows.astype(float)
    Q = model.item_rows.astype(float)
    errors = (1 + settings.alpha * X) * (X - P @ Q.T) ** 2
    users = ridge(X.sum(axis=1), X.shape[1], settings)
    items = ridge(X.sum(axis=0), X.shape[0], settings)
    return errors.sum() + users @ (P**2).sum(axis=1) + items @ (Q**2).sum(axis=1)


@pytest.mark.parametrize("exponent", [0.5, 1.0])
@pytest.mark.parametrize("block_size", [0, 2])
def test_als_with_weighted_ridges_converges_to_a_stationary_point(exponent, block_size):
    X = matrix_of(2, 30, 20)
    X[:, 0] = 1  # items and users differ in their ridge
    X[0] = 1
    settings = als.ALS(
        embedding_size=3,
        epochs=600,
        alpha=2.0,
        reg=0.1,
        reg_exponent=exponent,
        block_size=block_size,
    )
    model = fit(als.ALGORITHM, training_on(X), settings, Context(0, SILENT))
    P = model.user_rows.astype(float)
    Q = model.item_rows.astype(float)
    weighted = (1 + 2.0 * X) * (P @ Q.T - X)
    users = ridge(X.sum(axis=1), 20, settings)[:, None]
    items = ridge(X.sum(axis=0), 30, settings)[:, None]
    np.testing.assert_allclose(weighted.T @ P + items * Q, 0, atol=1e-3)
    np.testing.assert_allclose(weighted @ Q + users * P, 0, atol=1e-3)
    assert np.abs(Q).max() > 0.3


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("block_size", [0, 1, 2, 3, 9])
def test_the_weighted_objective_never_rises(exponent, block_size):
    X = matrix_of(1, 40, 25)
    settings = als.ALS(
        embedding_size=5,
        epochs=30,
        alpha=4.0,
        reg=0.3,
        reg_exponent=exponent,
        block_size=block_size,
    )
    values = [
        weighted_objective(X, m, settings)
        for m in models(als.ALGORITHM, training_on(X), settings, Context(0, SILENT))
    ]
    assert all(after <= before * (1 + 1e-6) for before, after in pairwise(values))
    assert values[-1] < 0.9 * values[0]


@pytest.mark.parametrize("block_size", [1, 2, 3])
def test_blocks_converge_to_the_objective_of_whole_sweeps(block_size):
    X = matrix_of(5, 40, 25)

    def last(size: int) -> float:
        settings = als.ALS(
            embedding_size=4,
            epochs=300,
            alpha=4.0,
            reg=0.3,
            reg_exponent=1.0,
            block_size=size,
        )
        model = fit(als.ALGORITHM, training_on(X), settings, Context(0, SILENT))
        return weighted_objective(X, model, settings)

    assert last(block_size) == pytest.approx(last(0), rel=1e-5)


def test_one_block_of_all_coordinates_is_a_whole_sweep():
    X = matrix_of(6, 20, 12)
    whole, block = (
        fit(
            als.ALGORITHM,
            training_on(X),
            als.ALS(embedding_size=4, epochs=5, reg_exponent=0.5, block_size=size),
            Context(0, SILENT),
        )
        for size in (0, 7)
    )
    np.testing.assert_allclose(whole.item_rows, block.item_rows, atol=1e-4)


def test_a_ridge_that_grows_needs_alpha():
    with pytest.raises(ConfigError, match="reg_exponent"):
        als.ALS.of({"alpha": 0.0, "reg_exponent": 0.5})


# EASE.


def weights_of(X: np.ndarray, **settings: float) -> np.ndarray:
    first_published = {"length_exponent": 0.0}
    made = ease.EASE(**first_published | settings)
    return fit(ease.ALGORITHM, training_on(X), made, Context(0, SILENT)).weights


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


def closed_form(X: np.ndarray, reg: float, p: float, nu: float = 0.0, q: float = 0.0) -> np.ndarray:
    """-P / diag(P), zero on the diagonal; histories are divided by n^p first."""
    lengths = X.sum(axis=1, keepdims=True)
    H = X / np.maximum(lengths, 1) ** p
    G = H.T @ H
    counts = np.diag(G).copy()
    popularity = np.maximum(counts, counts[counts > 0].min()) / counts.mean()
    P = np.linalg.inv(G + reg * np.diag(popularity**nu))
    B = -P / np.diag(P) / popularity**q
    np.fill_diagonal(B, 0)
    return B


@pytest.mark.parametrize("p", [0.0, 0.25, 0.5, 1.0])
@pytest.mark.parametrize("reg", [0.1, 20.0])
def test_ease_equals_numpys_inverse(p, reg):
    """Also with a user and an item that have nothing, and a user with one item."""
    X = matrix_of(8, 120, 35, density=0.2)
    X[3] = 0
    X[:, 7] = 0
    X[4] = 0
    X[4, 9] = 1
    found = weights_of(X, reg=reg, length_exponent=p)
    np.testing.assert_allclose(found, closed_form(X, reg, p), atol=1e-5)
    if p:
        assert np.abs(found - weights_of(X, reg=reg)).max() > 1e-3


@pytest.mark.parametrize(("nu", "q"), [(1.0, 0.0), (0.5, 0.3), (0.0, 0.4)])
@pytest.mark.parametrize("p", [0.0, 0.5])
def test_ease_scales_regularisation_and_scores_by_popularity(p, nu, q):
    X = matrix_of(8, 120, 35, density=0.2)
    X[:, 7] = 0
    X[:80, 2] = 1
    found = weights_of(X, reg=5.0, length_exponent=p, reg_exponent=nu, popularity_exponent=q)
    np.testing.assert_allclose(found, closed_form(X, 5.0, p, nu, q), atol=1e-5)
    assert np.abs(found - weights_of(X, reg=5.0, length_exponent=p)).max() > 1e-3


def test_regularisation_by_popularity_is_dropout_of_the_input():
    """Dropping items of a history with chance d, rescaled: the expected G gains d / (1 - d) of its
    diagonal, on the diagonal (Steck 2020)."""
    X = matrix_of(3, 60, 12, density=0.3)
    d = 0.3
    G = X.T @ X
    expected = G + np.diag(np.diag(G)) * d / (1 - d)
    P = np.linalg.inv(expected)
    B = -P / np.diag(P)
    np.fill_diagonal(B, 0)
    reg = np.diag(G).mean() * d / (1 - d)
    np.testing.assert_allclose(weights_of(X, reg=reg, reg_exponent=1.0), B, atol=1e-5)


def test_ease_of_nothing_is_nothing():
    assert not weights_of(np.zeros((5, 4)), reg_exponent=1.0, popularity_exponent=0.5).any()


def test_ease_mirrors_weights_across_blocks():
    """More items than `item_weights` divides at a time."""
    X = matrix_of(9, 60, 1030, density=0.02)
    np.testing.assert_allclose(weights_of(X, reg=5.0), closed_form(X, 5.0, 0.0), atol=1e-5)


def test_the_inverse_is_that_of_numpy():
    """Only the lower triangle counts, of what is given and of what is returned."""
    A = matrix_of(4, 40, 25)
    G = A.T @ A + np.eye(25)
    expected = np.linalg.inv(G)
    np.testing.assert_allclose(np.tril(inverse(np.tril(G))), np.tril(expected), atol=1e-10)


def has_gpu() -> bool:
    torch = pytest.importorskip("torch", reason="PyTorch (the extra 'neural') is not installed")
    return bool(torch.cuda.is_available())


def test_ease_on_a_gpu():
    X = matrix_of(4, 40, 25)
    if not has_gpu():
        with pytest.raises(ConfigError, match=r"'device' is 'cuda', but PyTorch finds no GPU"):
            weights_of(X, device="cuda")
        return
    one, other = (weights_of(X, device="cuda") for _ in range(2))
    assert one.tobytes() == other.tobytes()
    np.testing.assert_allclose(one, weights_of(X), atol=1e-6)


def test_ease_takes_the_memory_that_it_announces():
    """The sums, G and B at the same time: no copy in between."""
    n = 2100
    pairs = np.zeros(n * (n + 1) // 2, np.int64)
    item_weights(pairs[:3], 2, 1, ease.EASE())  # imports SciPy
    tracemalloc.start()
    item_weights(pairs, n, 1, ease.EASE())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    blocks = 4 * 1024 * n * 8
    assert peak + pairs.nbytes < gigabytes(n) * 2**30 + blocks


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
    assert "needs about 37.3 GiB for 50,000 items; max_memory allows 8." in message
    assert "--set max_memory=" in message


def test_ease_uses_at_most_max_memory():
    X = matrix_of(7, 10, 100)
    needed = 2 * 8 * 100**2 / 2**30
    assert weights_of(X, max_memory=needed * 1.01).shape == (100, 100)
    with pytest.raises(ConfigError, match="for 100 items"):
        weights_of(X, max_memory=needed * 0.99)
