"""Own metrics, splits, algorithms and models as Python objects; the code of the docs runs."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import coterie
from coterie.algorithms.registry import algorithm
from coterie.core import plugins
from coterie.data.training_set import TrainingSet
from coterie.errors import ConfigError, ContractError, LeakError, PluginError, UserError
from coterie.evaluation.direction import lower_is_better
from coterie.models.popular import ItemCounts

DOCS = Path(__file__).parents[1] / "docs"
SMALL: dict[str, Any] = {"n_users": 60, "n_items": 40}


def counts(training: TrainingSet, seed: int) -> ItemCounts:
    """The algorithm `popular` once more."""
    users = np.bincount(training.positives.items, minlength=training.n_items)
    return ItemCounts(users.astype(np.float32))


def any_hit(lists: coterie.RankedLists) -> np.ndarray:
    """HR once more, for lists without ties."""
    return np.array(
        [
            bool(set(items.tolist()) & set(lists.relevant.of(n).tolist()))
            for n, items in enumerate(lists.items)
        ],
        float,
    )


# ---- the docs


def code_of(page: str, name: str) -> str:
    (code,) = re.findall(
        rf"```python\n# {re.escape(name)}.*?\n(.*?)```", (DOCS / page).read_text(), re.DOTALL
    )
    return str(code)


@pytest.mark.parametrize(
    ("page", "name", "lines"),
    [
        ("own-metric.md", "own_metric.py", 3),
        ("own-split.md", "own_split.py", 1),
        ("own-split.md", "own_folds.py", 1),
        ("own-model.md", "own_model.py", 3),
        ("own-algorithm.md", "own_algorithm.py", 3),
    ],
)
def test_the_code_of_the_docs_runs(
    page: str,
    name: str,
    lines: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / name).write_text(code_of(page, name))
    complete = code_of("own-algorithm.md", "src/my_package/__init__.py")
    (tmp_path / "my_package.py").write_text(complete)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_package", raising=False)
    runpy.run_path(name, run_name="__main__")
    assert len(capsys.readouterr().out.splitlines()) >= lines


# ---- metrics


def random_scores(training: TrainingSet, seed: int) -> ItemCounts:
    """No two items have the same score."""
    return ItemCounts(np.random.default_rng(seed).permutation(training.n_items).astype(np.float32))


def test_an_own_metric_stands_next_to_those_of_coterie() -> None:
    run = coterie.run(random_scores, metrics=[any_hit], cutoffs=[3, 10], **SMALL)
    assert run.evaluation is not None
    for k in (3, 10):
        assert run.metrics[f"any_hit@{k}"] == pytest.approx(run.metrics[f"HR@{k}"])
        assert run.full[f"any_hit@{k}"] == pytest.approx(run.full[f"HR@{k}"])
    np.testing.assert_array_equal(
        run.evaluation.table["any_hit@3"], run.evaluation.table["HR@3"].round()
    )
    assert "any_hit@10" in run.result["headline"]


def test_an_own_metric_is_known_during_the_call_only() -> None:
    lower = coterie.Metric(name="misses", per_user=lambda lists: 1 - any_hit(lists))
    coterie.run("popular", metrics=[lower], **SMALL)
    with pytest.raises(ConfigError, match="'misses' is not a metric"):
        coterie.run("popular", metrics=["misses"], **SMALL)


def test_an_own_metric_of_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [EntryPoint("any_hit", "test_own_objects:any_hit", plugins.METRICS)]
    monkeypatch.setattr(plugins, "plugins", plugins.plugins.__wrapped__)
    monkeypatch.setattr(
        plugins, "entry_points", lambda group: found if group == plugins.METRICS else []
    )
    run = coterie.run("popular", metrics="Any_Hit@5", **SMALL)
    assert 0 < run.metrics["any_hit@5"] < 1


def test_a_comparison_knows_the_direction_of_an_own_metric() -> None:
    """Popular items are hit more often, so random ones miss more often: fewer are better."""
    misses = coterie.Metric(
        name="misses", per_user=lambda lists: 1 - any_hit(lists), lower_is_better=True
    )
    found = coterie.compare(
        ["popular", "random"], metrics=[misses], headline="HR", seeds=1, **SMALL
    )
    test = next(test for test in found.tests if test.metric == "misses@10")
    assert test.difference < 0
    assert test.seeds_ahead == 1
    assert not lower_is_better("misses@10")


# ---- splits


def whole() -> coterie.Interactions:
    return coterie.load("synthetic", min_user_interactions=4, **SMALL)


def frames() -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    frame = whole().to_frame()
    place = frame.groupby("user_id")["timestamp"].rank(method="first", ascending=False)
    return frame[place > 2], frame[place == 2], frame[place == 1]


def test_parts_that_leave_the_newest_out_are_leave_one_out() -> None:
    train, validation, test = frames()
    # Times of a user are distinct here, so both hold out the same interactions.
    assert not whole().to_frame().duplicated(["user_id", "timestamp"]).any()
    settings: dict[str, Any] = {"protocol": "full", "epochs": 3, "seed": 1}
    given = coterie.run("bpr", train, test=test, validation=validation, **settings)
    split = coterie.run("bpr", whole(), validation=True, **settings)
    assert given.metrics == split.metrics
    assert given.result["convergence"]["part"] == "validation"
    assert given.result["protocol"] == "full (split=given)"


def test_new_users_of_the_test_part_are_removed() -> None:
    train, _, test = frames()
    new = pd.DataFrame({"user_id": ["new"], "item_id": [test["item_id"].iloc[0]]})
    more = pd.concat([test.assign(user_id=test["user_id"].astype(str)), new])
    run = coterie.run("popular", train[["user_id", "item_id"]], test=more[["user_id", "item_id"]])
    assert run.result["tested_users"] <= len(test)


def test_patience_follows_a_given_validation_part_and_needs_one() -> None:
    train, validation, test = frames()
    run = coterie.run("bpr", train, test=test, validation=validation, epochs=30, patience=1)
    assert run.result["rounds"] <= 30
    with pytest.raises(ConfigError, match="patience selects a model on the validation part"):
        coterie.run("bpr", train, test=test, epochs=3, patience=1)


# ---- algorithms and models


def test_a_function_is_an_algorithm() -> None:
    own = coterie.run(counts, seed=2, **SMALL)
    assert own.result["algorithm"] == "counts"
    assert own.metrics == coterie.run("popular", seed=2, **SMALL).metrics


def test_a_trained_model_is_evaluated() -> None:
    popular = coterie.run("popular", seed=2, **SMALL)
    again = coterie.run(popular.model, seed=2, **SMALL)
    assert again.metrics == popular.metrics
    assert again.result["algorithm"] == "own-popular"


def test_an_algorithm_of_coterie_as_an_object_is_the_same() -> None:
    named = coterie.run("fedavg", rounds=2, **SMALL)
    given = coterie.run(algorithm("fedavg"), name="mine", rounds=2, **SMALL)
    assert given.metrics == named.metrics
    assert given.result["algorithm"] == "mine"
    assert given.result["bytes_up"] == named.result["bytes_up"]


def test_objects_are_compared_with_names() -> None:
    data = coterie.load("synthetic", **SMALL)
    found = coterie.compare({"own": counts, "popular": "popular"}, data, folds=2)
    assert [standing.method for standing in found.standings] == ["own", "popular"]
    assert found.standings[0].metrics == found.standings[1].metrics
    assert {test.difference for test in found.tests} == {0.0}


# ---- mistakes

Act = Callable[[], object]
NARROW = ItemCounts(np.ones(3, np.float32))


@pytest.mark.parametrize(
    ("act", "kind", "complaint"),
    [
        (lambda: coterie.run(3), ConfigError, "algorithm is 3; expected a name"),
        (lambda: coterie.run(lambda training, seed: 3, **SMALL), ContractError, "returned a int"),
        (lambda: coterie.run(NARROW, **SMALL), ContractError, r"the shape \(1, 3\) for one user"),
        (lambda: coterie.run(counts, name="gmf"), ConfigError, "name is 'gmf'"),
        (lambda: coterie.run("gmf", name="mine"), ConfigError, "has a name already"),
        (lambda: coterie.compare([counts, counts]), ConfigError, "given more than once"),
        (lambda: coterie.run("popular", metrics=[3]), ConfigError, "a metric is 3; expected"),
        (
            lambda: coterie.run("popular", metrics=[lambda lists: lists.lengths]),
            ConfigError,
            "the name of a metric is '<lambda>'",
        ),
        (
            lambda: coterie.run("popular", metrics=[coterie.Metric(name="hr", per_user=any_hit)]),
            ConfigError,
            "'hr', which Coterie has already",
        ),
    ],
)
def test_a_mistake_is_named(act: Act, kind: type[UserError], complaint: str) -> None:
    with pytest.raises(kind, match=complaint):
        act()


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (np.zeros(3), r"'mine' returned the shape \(3,\); expected"),
        (np.nan, "is nan for user|returned the shape"),
        ("many", "returned a str; expected an array"),
    ],
)
def test_wrong_values_of_a_metric_are_named(values: Any, complaint: str) -> None:
    mine = coterie.Metric(name="mine", per_user=lambda lists: values)
    with pytest.raises(ContractError, match=complaint):
        coterie.run("popular", metrics=[mine], **SMALL)


def test_a_metric_that_is_not_finite_is_named() -> None:
    mine = coterie.Metric(name="mine", per_user=lambda lists: np.full(len(lists.users), np.inf))
    with pytest.raises(ContractError, match="metric 'mine' is inf for user '"):
        coterie.run("popular", metrics=[mine], **SMALL)


def test_parts_of_a_split_are_checked() -> None:
    train, validation, test = frames()
    with pytest.raises(LeakError, match="training and test share"):
        coterie.run("popular", train, test=pd.concat([test, train.head(1)]))
    with pytest.raises(ConfigError, match="'split' is 'random', but test is given"):
        coterie.run("popular", train, test=test, split="random")
    with pytest.raises(ConfigError, match="validation is a part of a split, but test is not"):
        coterie.run("popular", train, validation=validation)
    with pytest.raises(ConfigError, match="split is 'given', but no parts are"):
        coterie.run("popular", train, split="given")


def test_an_object_of_another_type_is_named() -> None:
    with (
        plugins.provided(plugins.ALGORITHMS, {"mine": 3}),
        pytest.raises(PluginError, match="'mine' was passed as a int; expected a value of type"),
    ):
        algorithm("mine")
