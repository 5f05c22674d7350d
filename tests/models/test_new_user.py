"""Rows of users who were not in training: against slow twins, and for every algorithm."""

from __future__ import annotations

import numpy as np
import pytest
from every_algorithm import HERE, NEED_PYTORCH, two_steps

from coterie import api
from coterie.algorithms import fcf, registry
from coterie.baselines import als
from coterie.errors import ConfigError
from coterie.models import new_user
from coterie.models.factors import Factors
from coterie.models.new_user import NewUser, fit_row_to_pairs
from coterie.models.private_factors import PrivateFactors

CANNOT = {"random"}
"""A random order is a hash of the user's index, which a new user does not have."""


def factors(n_items: int = 9, size: int = 3, kind: type[Factors] = Factors) -> Factors:
    rng = np.random.default_rng(5)
    return kind(
        rng.normal(size=(4, size)).astype(np.float32),
        rng.normal(size=(n_items, size)).astype(np.float32),
        np.zeros(n_items, np.float32),
    )


def user(*items: int) -> NewUser:
    return NewUser(items=np.array(items, np.int32))


def by_normal_equations(Y, history, confidence, missing, reg):
    """(Y^T C Y + reg I)^-1 Y^T C r with a dense C, and the scores of the row."""
    Y = Y.astype(np.float64)
    r = np.zeros(len(Y))
    r[list(history)] = 1
    C = np.diag(np.where(r > 0, confidence, missing))
    row = np.linalg.inv(Y.T @ C @ Y + reg * np.eye(Y.shape[1])) @ Y.T @ C @ r
    return Y @ row


def test_als_solves_the_row_of_a_new_user_exactly():
    model = factors()
    got = als.score_new_user(model, user(1, 4, 6), als.ALS(alpha=3.0, reg=0.7, reg_exponent=0.0))
    wanted = by_normal_equations(model.item_rows, (1, 4, 6), 4.0, 1.0, 0.7)
    np.testing.assert_allclose(got, wanted, atol=1e-5)


@pytest.mark.parametrize("missing", [1.0, 0.25, 0.0])
def test_fcf_solves_the_row_of_a_new_user_exactly(missing):
    model = factors(kind=PrivateFactors)
    settings = fcf.FCF(alpha=3.0, reg=0.7, missing_weight=missing)
    got = fcf.score_new_user(model, user(1, 4, 6), settings)
    wanted = by_normal_equations(model.item_rows, (1, 4, 6), 4.0, missing, 0.7)
    np.testing.assert_allclose(got, wanted, atol=1e-5)


def pairwise_loss(p, features, bias, history, reg):
    y = features.astype(np.float64) @ p + bias
    others = [j for j in range(len(y)) if j not in history]
    losses = [np.log1p(np.exp(-(y[i] - y[j]))) for i in history for j in others]
    return np.mean(losses) + reg / 2 * (p @ p)


def test_the_row_of_bpr_has_the_least_loss_over_all_pairs():
    """No small change of the row lowers the loss, which loops over the pairs."""
    rng = np.random.default_rng(1)
    features = rng.normal(size=(30, 4)).astype(np.float32)
    bias = rng.normal(size=30).astype(np.float32)
    history = np.array([2, 3, 17, 29], np.int32)
    row = fit_row_to_pairs(features, bias, history, 0.05).astype(np.float64)
    least = pairwise_loss(row, features, bias, list(history), 0.05)
    assert least < pairwise_loss(np.zeros(4), features, bias, list(history), 0.05)
    for axis in np.eye(4):
        for change in (0.02, -0.02):
            assert pairwise_loss(row + change * axis, features, bias, list(history), 0.05) > least


def test_few_negatives_are_evenly_spaced(monkeypatch):
    monkeypatch.setattr(new_user, "MAX_NEGATIVES", 3)
    assert new_user._spaced(np.arange(10, 19), 3).tolist() == [10, 13, 16]
    assert new_user._spaced(np.arange(2), 3).tolist() == [0, 1]


def test_a_new_user_who_has_every_item_is_served():
    assert fit_row_to_pairs(np.ones((2, 3), np.float32), np.zeros(2), np.arange(2), 0.1).any() == 0


def test_without_items_a_new_user_gets_the_average_row():
    model = factors()
    wanted = model.item_rows @ model.user_rows.mean(axis=0)
    np.testing.assert_allclose(als.score_new_user(model, user(), als.ALS()), wanted, rtol=1e-5)


@pytest.mark.parametrize("name", [name for name in HERE if name not in CANNOT])
def test_every_algorithm_serves_new_users(name):
    """Five items that the user does not have, best first; the same items for the same history."""
    run = api.run(name, n_users=80, n_items=40, **two_steps(name))
    history = [run.catalogue.item_ids[k].item() for k in (3, 8, 11)]
    person = {"age": 25, "region": "north"}
    items = run.recommend_new_user(history, n=5, features=person)
    assert len({item.item for item in items} - set(history)) == 5
    scores = [item.score for item in items]
    assert scores == sorted(scores, reverse=True)
    assert run.recommend_new_user(history[::-1] + history[:1], n=5, features=person) == items
    assert len(run.recommend_new_user([], n=5, features=person)) == 5


def test_an_algorithm_that_cannot_serve_new_users_says_which_can():
    run = api.run("random", n_users=60, n_items=30)
    with pytest.raises(
        ConfigError, match=r"algorithm is random, .* expected one of .*fedfast.*als"
    ):
        run.recommend_new_user([run.catalogue.item_ids[0]])
    assert {name for name in HERE if not registry.serves_new_users(name)} == CANNOT


TOWERS = sorted((NEED_PYTORCH - {"multivae", "lightgcn"}) & set(HERE))


@pytest.mark.parametrize("name", TOWERS)
@pytest.mark.parametrize("person", ["features", "titles"])
def test_a_tower_reads_a_new_user_as_one_in_training(name, person):
    """The same features, or the titles of the same items, give the same scores."""
    data = api.load("synthetic", n_users=60, n_items=40, mean_interactions=4)
    run = api.run(name, data, person=person, protocol="full", titles=40, **two_steps(name))
    for index in (0, 7, 21):
        mine = run.catalogue.seen.of(index)
        features = {name: column[index] for name, column in data.user_features.items()}
        ids = [run.catalogue.item_ids[k] for k in mine]
        got = run.recommend_new_user(ids, n=5, features=features)
        wanted = run.recommend(run.catalogue.user_ids[index], n=5)
        assert [item.score for item in got] == pytest.approx(
            [item.score for item in wanted], abs=1e-5
        )


@pytest.mark.skipif("dssm" not in HERE, reason="needs PyTorch")
def test_a_tower_that_reads_features_asks_for_them():
    run = api.run("dssm", n_users=60, n_items=40, epochs=1)
    with pytest.raises(ConfigError, match=r"'region' of the new user is missing.* --features age="):
        run.recommend_new_user([], features={"age": 25})


@pytest.mark.parametrize("name", ["als", "fcf", "bpr"])
def test_new_users_are_served_about_as_well_as_in_training(name):
    """Scores from a history correlate with those of the same user's trained row."""
    run = api.run(name, n_users=120, n_items=60)
    trained = run.model.score(np.arange(20, dtype=np.int32))
    fit = registry.algorithm(name).score_new_user
    settings = registry.algorithm(name).settings.of(run.result["settings"])
    for index in range(20):
        mine = NewUser(items=run.catalogue.seen.of(index))
        assert np.corrcoef(fit(run.model, mine, settings), trained[index])[0, 1] > 0.9
