"""RMSE and MAE: by hand, against scikit-learn, and from ratings that training never saw."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from score_table import Choosy, Table
from sklearn.metrics import mean_absolute_error, mean_squared_error

from coterie import api
from coterie.algorithms.registry import ALGORITHMS, algorithm
from coterie.data.interactions import Interactions
from coterie.data.splits import Split, split
from coterie.errors import ConfigError, DataError, Diverged
from coterie.evaluation import candidates as sampling
from coterie.evaluation import rating_errors as module
from coterie.evaluation.evaluation import evaluate, quick
from coterie.evaluation.protocols import Protocol
from coterie.evaluation.rating_errors import (
    check_ratings,
    predictions,
    rating_errors,
    reference_errors,
)
from coterie.experiments import preparation
from coterie.experiments.config import Experiment

EXPLICIT = [name for name in ALGORITHMS if algorithm(name).explicit]


def interactions(*rows: tuple[str, str, float]) -> Interactions:
    users, items, ratings = zip(*rows, strict=True)
    return Interactions.from_columns(users, items, ratings)


@pytest.fixture(scope="module")
def rated(people) -> Interactions:
    """Ratings from 1 to 5 with a taste of every user and a quality of every item."""
    rng = np.random.default_rng(7)
    generosity = rng.normal(0, 0.6, people.n_users)
    quality = rng.normal(0, 0.8, people.n_items)
    noise = rng.normal(0, 0.3, len(people))
    ratings = 3.2 + generosity[people.users] + quality[people.items] + noise
    return replace(people, ratings=np.clip(ratings, 1, 5).astype(np.float32))


@pytest.fixture(scope="module")
def parts(rated) -> Split:
    return split(rated, "random", 0.3, seed=0)


@pytest.fixture(scope="module")
def model(rated) -> Table:
    scores = np.random.default_rng(0).uniform(1, 5, (rated.n_users, rated.n_items))
    return Table(scores.astype(np.float32))


# ---- the figures


def test_by_hand() -> None:
    """Errors of user a: +1 and -2; of user b: none held out; of user c: +0.5."""
    data = interactions(("a", "x", 3), ("a", "y", 4), ("b", "x", 1), ("c", "y", 5))
    held = data.select(data.users != 1)
    scores = np.array([[4, 2], [9, 9], [9, 5.5]], np.float32)
    found = rating_errors(Table(scores), held)
    assert found.metrics == {
        "RMSE": pytest.approx(math.sqrt((1 + 4 + 0.25) / 3)),
        "MAE": pytest.approx((1 + 2 + 0.5) / 3),
    }
    assert found.table["RMSE"].tolist() == pytest.approx([math.sqrt(5 / 2), 0.5])
    assert found.table["MAE"].tolist() == pytest.approx([1.5, 0.5])


@pytest.mark.parametrize("block", [1, 7, 1 << 12])
def test_against_scikit_learn(monkeypatch, parts, model, block: int) -> None:
    """Overall and for every user, whatever the size of a block."""
    monkeypatch.setattr(module, "BLOCK", block)
    held = parts.test
    predicted = model.table[held.users, held.items]
    found = rating_errors(model, held)
    assert found.metrics["RMSE"] ** 2 == pytest.approx(mean_squared_error(held.ratings, predicted))
    assert found.metrics["MAE"] == pytest.approx(mean_absolute_error(held.ratings, predicted))
    for place, user in enumerate(np.unique(held.users)):
        own = held.users == user
        truth = held.ratings[own]
        squared = mean_squared_error(truth, predicted[own])
        assert found.table["RMSE"][place] ** 2 == pytest.approx(squared)
        assert found.table["MAE"][place] == pytest.approx(
            mean_absolute_error(truth, predicted[own])
        )


def test_exact_predictions_have_no_error(parts, model) -> None:
    held = parts.test
    perfect = model.table.copy()
    perfect[held.users, held.items] = held.ratings
    assert rating_errors(Table(perfect), held).metrics == {"RMSE": 0, "MAE": 0}


def test_references_equal_plain_loops(parts) -> None:
    train = parts.train
    triples = list(zip(train.users, train.items, train.ratings.tolist(), strict=True))
    mean = sum(rating for _, _, rating in triples) / len(triples)
    item_bias = {}
    for item in range(train.n_items):
        own = [rating - mean for _, i, rating in triples if i == item]
        item_bias[item] = sum(own) / (25 + len(own))
    user_bias = {}
    for user in range(train.n_users):
        own = [rating - mean - item_bias[i] for u, i, rating in triples if u == user]
        user_bias[user] = sum(own) / (10 + len(own))
    test = list(zip(parts.test.users, parts.test.items, parts.test.ratings, strict=True))
    of_mean = [mean - r for _, _, r in test]
    of_biases = [mean + item_bias[i] + user_bias[u] - r for u, i, r in test]
    found = reference_errors(train, parts.test)
    for name, errors in (("mean", of_mean), ("biases", of_biases)):
        assert found[name]["RMSE"] == pytest.approx(math.sqrt(np.mean(np.square(errors))))
        assert found[name]["MAE"] == pytest.approx(np.mean(np.abs(errors)))


# ---- where they appear


def test_without_candidates_they_are_among_the_metrics(parts, model) -> None:
    evaluation = evaluate(model, parts, Protocol(), None)
    errors = rating_errors(model, parts.test)
    assert evaluation.metrics == evaluation.full
    assert errors.metrics.items() <= evaluation.metrics.items()
    for name, values in errors.table.items():
        np.testing.assert_array_equal(evaluation.table[name], values)


def test_candidates_do_not_change_them(parts, model) -> None:
    candidates = sampling.sample(parts.test, parts.everything(), 20, seed=0)
    evaluation = evaluate(model, parts, Protocol(candidates=20), candidates)
    assert rating_errors(model, parts.test).metrics.items() <= evaluation.metrics.items()
    assert not {"RMSE", "MAE"} & evaluation.full.keys()
    assert not {"full:RMSE", "full:MAE"} & evaluation.table.keys()
    assert len(evaluation.table["RMSE"]) == len(evaluation.users)
    curve = quick(model, Protocol(candidates=20), parts.seen(), parts.test, candidates)
    assert curve == {name: evaluation.metrics[name] for name in curve}
    assert {"RMSE", "MAE", "HR@10"} <= curve.keys()


def test_implicit_feedback_has_none(people, model) -> None:
    parts = split(people, "random", 0.3, seed=0)
    evaluation = evaluate(model, parts, Protocol(), None)
    curve = quick(model, Protocol(), parts.seen(), parts.test, None)
    for names in (evaluation.metrics, evaluation.table, curve):
        assert not {"RMSE", "MAE"} & names.keys()


# ---- what is refused


def test_a_score_that_is_not_a_number_is_an_error(parts, model) -> None:
    held = parts.test
    scores = model.table.copy()
    scores[held.users[-1], held.items[-1]] = np.nan
    with pytest.raises(Diverged, match="a score is nan"):
        rating_errors(Table(scores), held)


def test_a_user_without_predictions_is_an_error(parts, model) -> None:
    """Leaving the user out would make the error look better."""
    serves = np.ones(parts.train.n_users, bool)
    serves[parts.test.users[:1]] = False
    with pytest.raises(DataError, match="no ratings for 1 tested users"):
        rating_errors(Choosy(model.table, serves), parts.test)


def test_ratings_are_needed(people, model) -> None:
    with pytest.raises(DataError, match="have no ratings"):
        rating_errors(model, people)
    for headline in ("RMSE", "MAE"):
        protocol = Protocol.of({"headline": ["HR", headline]})
        check_ratings(protocol, predicted=True)
        with pytest.raises(ConfigError, match=f"'headline' is '{headline}'.*feedback=explicit"):
            check_ratings(protocol, predicted=False)


def test_data_without_ratings_that_is_passed_in(people) -> None:
    with pytest.raises(ConfigError, match="'headline' is 'RMSE'"):
        api.run("gmf", people, headline="RMSE")


# ---- training


def errors_of(run: api.Run) -> dict[str, float]:
    return {name: run.metrics[name] for name in ("RMSE", "MAE")}


@pytest.mark.parametrize("name", EXPLICIT)
def test_held_out_ratings_do_not_reach_training(rated, name: str) -> None:
    """Other ratings of the test part change the errors and leave every bit of the model alone."""
    length = {"rounds": 3} if algorithm(name).federated else {"epochs": 2}
    experiment = Experiment.of({"algorithm": name, "dataset": "given", "split": "random"})
    test, _ = preparation.split_data(experiment, rated)
    held = np.isin(rated.pairs(), test.test.pairs())
    changed = replace(rated, ratings=np.where(held, 6 - rated.ratings, rated.ratings))
    one, other = (api.run(name, data, split="random", **length) for data in (rated, changed))
    for array, same in zip(one.model.arrays().values(), other.model.arrays().values(), strict=True):
        np.testing.assert_array_equal(array, same)
    assert one.metrics["HR@10"] == other.metrics["HR@10"]
    assert errors_of(one) != errors_of(other)


def test_a_score_is_a_rating_in_the_scale_of_the_data(rated) -> None:
    """GMF learns 10 to 50 as well as 1 to 5: its RMSE is well below that of the mean."""
    wide = replace(rated, ratings=rated.ratings * 10)
    for data, factor, rate in ((rated, 1, 0.02), (wide, 10, 0.002)):
        run = api.run(
            "gmf", data, split="random", epochs=60, learning_rate=rate, start_scale=0.3, seed=1
        )
        mean = run.result["rating_references"]["mean"]["RMSE"]
        assert 0.8 * factor < mean < 1.2 * factor
        assert run.metrics["RMSE"] < 0.9 * mean
        predicted = predictions(run.model, data)
        assert np.quantile(predicted, 0.01) > 0.5 * factor
        assert np.quantile(predicted, 0.99) < 5.8 * factor


def test_given_ratings_are_ignored_by_an_algorithm_that_does_not_predict_them(rated) -> None:
    run = api.run("popular", rated)
    assert run.result["feedback"] == "implicit"
    assert "RMSE" not in run.metrics
    assert "rating_references" not in run.result
    assert api.run("gmf", rated, epochs=1).result["feedback"] == "explicit"


def test_quality_on_movielens(real_data) -> None:
    """A sound factorisation has an RMSE of 0.92 to 0.96 on random splits of ML-100K."""
    real_data("ml-100k")
    settings = {"learning_rate": 0.01, "reg": 0.05, "start_scale": 0.01, "embedding_size": 10}
    run = api.run(
        "gmf",
        "ml-100k",
        feedback="explicit",
        headline="RMSE",
        split="random",
        fraction=0.1,
        epochs=14,
        **settings,
    )
    references = run.result["rating_references"]
    assert 0.92 < run.metrics["RMSE"] < references["biases"]["RMSE"] < 0.96
    assert references["mean"]["RMSE"] == pytest.approx(1.12, abs=0.02)
