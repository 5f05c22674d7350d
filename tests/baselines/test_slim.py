"""SLIM: by hand, against scikit-learn, and by the conditions of the optimum."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.linear_model import ElasticNet

from coterie import kernels
from coterie.baselines import neighbours, slim
from coterie.baselines.slim import SLIM
from coterie.core.progress import SILENT
from coterie.data.training_set import TrainingSet
from coterie.experiments.training import fit
from coterie.federated.trainer import Context
from coterie.models.neighbours import ItemNeighbours
from coterie.types import Rows

EXACT = {"max_sweeps": 100_000, "tolerance": 1e-13}


def training_on(X: np.ndarray) -> TrainingSet:
    users, items = np.nonzero(X)
    rows = Rows.build(users.astype(np.int32), items.astype(np.int32), len(X))
    return TrainingSet(*X.shape, rows, rows, None)


def model_of(X: np.ndarray, **changes: float) -> ItemNeighbours:
    chosen = SLIM.of({"neighbours": 0, **EXACT, **changes})
    model = fit(slim.ALGORITHM, training_on(X), chosen, Context(0, SILENT))
    assert isinstance(model, ItemNeighbours)
    return model


def weights_of(X: np.ndarray, **changes: float) -> np.ndarray:
    """(items, items) column j has the weights of item j."""
    model = model_of(X, **changes)
    return np.array([model.similar_items(item) for item in range(X.shape[1])])


def random_matrix(seed: int, n_users: int, n_items: int, density: float = 0.3) -> np.ndarray:
    """With popular and rare items, an item without users and two equal items."""
    rng = np.random.default_rng(seed)
    popularity = rng.uniform(0, 2 * density, n_items)
    X = (rng.random((n_users, n_items)) < popularity).astype(int)
    X[:, 1] = 0
    X[:, 2] = X[:, 3]
    return X


def objective(X: np.ndarray, item: int, w: np.ndarray, reg_l1: float, reg_l2: float) -> float:
    error = X[:, item] - X @ w
    return error @ error / 2 + reg_l2 / 2 * w @ w + reg_l1 * w.sum()


def elastic_net(X: np.ndarray, reg_l1: float, reg_l2: float) -> np.ndarray:
    """(items, items) the weights by scikit-learn, which minimises

    1 / (2 n) |y - X w|^2 + alpha (l1_ratio |w|_1 + (1 - l1_ratio) / 2 |w|^2)
    """
    n, n_items = X.shape
    total = reg_l1 + reg_l2
    W = np.zeros((n_items, n_items))
    for item in range(n_items):
        net = ElasticNet(
            alpha=total / n,
            l1_ratio=reg_l1 / total,
            positive=True,
            fit_intercept=False,
            tol=1e-12,
            max_iter=10_000,
        )
        others = np.delete(np.arange(n_items), item)
        with warnings.catch_warnings(action="ignore"):
            W[others, item] = net.fit(X[:, others].astype(float), X[:, item].astype(float)).coef_
    return W


# By hand.

PAIR = np.array([[1, 1], [1, 1], [1, 0], [1, 0]])


def test_one_candidate_by_hand():
    """Two users have both items, four have the first and two the second.

    w of the first for the second: (2 - 0.5) / (4 + 1). The other way round: (2 - 0.5) / (2 + 1).
    """
    np.testing.assert_allclose(weights_of(PAIR, reg_l1=0.5, reg_l2=1.0), [[0, 0.3], [0.5, 0]])


def test_two_candidates_by_hand():
    """Items 0 and 1 explain item 2. G = [[3, 1], [1, 2]] and co-occurrences are 2 and 2.

    With reg_l1 1 and reg_l2 1: 4 a + b = 1 and a + 3 b = 1, so that a = 2/11 and b = 3/11.
    """
    X = np.array([[1, 1, 1], [1, 0, 1], [1, 0, 0], [0, 1, 1]])
    np.testing.assert_allclose(
        weights_of(X, reg_l1=1.0, reg_l2=1.0)[:, 2], [2 / 11, 3 / 11, 0], rtol=1e-6
    )


def test_regularisation_above_the_co_occurrence_leaves_no_weight():
    assert not weights_of(PAIR, reg_l1=2.0, reg_l2=1.0).any()
    assert weights_of(PAIR, reg_l1=1.99, reg_l2=1.0).any()


# Against scikit-learn.


@pytest.mark.parametrize("reg_l1", [0.01, 0.7, 4.0])
@pytest.mark.parametrize("reg_l2", [0.5, 20.0])
def test_weights_equal_those_of_an_elastic_net(reg_l1, reg_l2):
    """With 60 items, candidates join the active set in two batches."""
    X = random_matrix(1, 100, 60)
    assert kernels.load("slim").BATCH < 59
    got = weights_of(X, reg_l1=reg_l1, reg_l2=reg_l2)
    np.testing.assert_allclose(got, elastic_net(X, reg_l1, reg_l2), atol=1e-6)


matrices = st.tuples(st.integers(1, 15), st.integers(2, 9)).flatmap(
    lambda shape: arrays(np.int8, shape, elements=st.integers(0, 1))
)


@settings(deadline=None, max_examples=60)
@given(matrices, st.floats(0.01, 5), st.floats(0.1, 50))
def test_small_matrices_equal_an_elastic_net(X, reg_l1, reg_l2):
    got = weights_of(X, reg_l1=reg_l1, reg_l2=reg_l2)
    np.testing.assert_allclose(got, elastic_net(X, reg_l1, reg_l2), atol=1e-6)


# The conditions of Karush, Kuhn and Tucker.


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.floats(0, 10), st.floats(0, 100))
def test_the_optimum_meets_its_conditions(seed, reg_l1, reg_l2):
    """The gradient is 0 where a weight is positive, and not negative where it is 0."""
    X = random_matrix(seed, 60, 12)
    W = weights_of(X, reg_l1=reg_l1, reg_l2=reg_l2).astype(float)
    gradient = X.T @ (X @ W - X) + reg_l2 * W + reg_l1
    np.fill_diagonal(gradient, 0)
    assert (W >= 0).all()
    assert not np.diag(W).any()
    np.testing.assert_allclose(gradient[W > 0], 0, atol=1e-4)
    assert gradient.min() > -1e-4


def test_the_default_tolerance_is_close_to_the_optimum():
    X = random_matrix(5, 300, 50)
    default = SLIM()
    regs = {"reg_l1": 1.0, "reg_l2": 5.0}
    rough = weights_of(X, tolerance=default.tolerance, max_sweeps=default.max_sweeps, **regs)
    exact = weights_of(X, **regs)
    for item in range(50):
        best = objective(X, item, exact[:, item], 1.0, 5.0)
        assert objective(X, item, rough[:, item], 1.0, 5.0) <= best * (1 + 1e-5)


# Feature selection.


@pytest.mark.parametrize("k", [1, 4, 11])
def test_only_the_most_similar_items_have_a_weight(k):
    """They are the neighbours of Item-kNN, and their weights are those of SLIM on them alone."""
    X = random_matrix(6, 80, 25)
    training = training_on(X)
    W = weights_of(X, neighbours=k, reg_l1=0.0, reg_l2=2.0)
    near, _ = neighbours.neighbours(
        training.by_item, training.positives, neighbours.Neighbours(neighbours=k)
    )
    for item in range(25):
        own = near.of(item)
        alone = X.copy()
        alone[:, np.setdiff1d(np.arange(25), [*own, item])] = 0
        expected = weights_of(alone, reg_l1=0.0, reg_l2=2.0)[:, item]
        np.testing.assert_allclose(W[:, item], expected, atol=1e-6)


def test_more_neighbours_than_items_are_all_items():
    X = random_matrix(7, 60, 20)
    np.testing.assert_array_equal(weights_of(X, neighbours=1_000), weights_of(X, neighbours=0))


def test_items_that_cannot_have_a_weight_are_not_candidates():
    """Item 3 has the largest cosine to item 0, but one user in common, as reg_l1 allows for."""
    X = np.zeros((9, 4), int)
    X[:4, 0] = 1
    X[:2, 1] = 1
    X[4:, 1] = 1
    X[:2, 2] = 1
    X[3, 3] = 1
    X[4:7, 2] = 1
    assert weights_of(X, neighbours=1, reg_l1=1.0, reg_l2=1.0)[2, 0] > 0


# Division of the work.


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_rows_outside_the_table_are_counted_when_needed(rows, monkeypatch):
    X = random_matrix(8, 100, 40)
    whole = model_of(X, reg_l1=0.5).arrays()
    monkeypatch.setattr(slim, "TABLE_BYTES", rows * 4 * 40)
    assert len(slim.costly_rows(slim.counting_cost(training_on(X)))) == rows
    for name, array in model_of(X, reg_l1=0.5).arrays().items():
        np.testing.assert_array_equal(array, whole[name])


def test_the_table_has_the_counts_of_the_costly_rows(monkeypatch):
    X = random_matrix(9, 50, 30)
    monkeypatch.setattr(slim, "TABLE_BYTES", 12 * 4 * 30)
    training = training_on(X)
    load = slim.counting_cost(training)
    np.testing.assert_array_equal(np.diff(load), X.T @ X.sum(axis=1))
    chosen = slim.costly_rows(load)
    assert np.diff(load)[chosen].min() >= np.delete(np.diff(load), chosen).max()
    np.testing.assert_array_equal(slim.count_table(training, chosen), (X.T @ X)[chosen])


@pytest.mark.parametrize("threads", [2, 7])
@pytest.mark.parametrize("table", [0, 1 << 20])
def test_the_number_of_threads_does_not_matter(threads, table, monkeypatch):
    X = random_matrix(10, 120, 70)
    monkeypatch.setattr(slim, "TABLE_BYTES", table)
    monkeypatch.setenv("COTERIE_THREADS", "1")
    alone = model_of(X, neighbours=20, reg_l1=0.5).arrays()
    monkeypatch.setenv("COTERIE_THREADS", str(threads))
    for name, array in model_of(X, neighbours=20, reg_l1=0.5).arrays().items():
        assert array.tobytes() == alone[name].tobytes()


def test_memory_follows_the_data(monkeypatch):
    """All counts of 20,000 items would take 1.6 GB."""
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(6_000, dtype=np.int32), 6)
    pairs = np.unique(np.stack([users, rng.integers(0, 20_000, 36_000)]), axis=1)
    rows = Rows.build(pairs[0].astype(np.int32), pairs[1].astype(np.int32), 6_000)
    monkeypatch.setattr(slim, "TABLE_BYTES", 1 << 20)
    tracemalloc.start()
    fit(slim.ALGORITHM, TrainingSet(6_000, 20_000, rows, rows, None), SLIM(), Context(0, SILENT))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 * 2**20


# Scores.


def test_scores_are_history_times_weights():
    X = random_matrix(11, 40, 15)
    model = model_of(X, reg_l1=0.2)
    users = np.array([4, 0, 39, 4], np.int32)
    W = weights_of(X, reg_l1=0.2)
    np.testing.assert_allclose(model.score(users), X[users] @ W, atol=1e-6)
    new = model.score_new_user(np.flatnonzero(X[4]).astype(np.int32))
    np.testing.assert_allclose(new, X[4] @ W, atol=1e-6)
