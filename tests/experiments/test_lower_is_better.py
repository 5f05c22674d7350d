"""A metric whose lower value is better, from early stopping to the report of a comparison."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from test_tuning import cells_in

from coterie import api
from coterie.data.interactions import Interactions
from coterie.evaluation.direction import is_better, loss, lower_is_better, reaches
from coterie.experiments.cell_cache import CellResult
from coterie.experiments.comparison import comparison
from coterie.experiments.comparison_page import page
from coterie.experiments.comparison_report import markdown
from coterie.experiments.comparison_tables import sections
from coterie.experiments.history import TrainingHistory, first_at
from coterie.experiments.plan import Plan
from coterie.experiments.plan_runner import run_plan
from coterie.experiments.tuning import Search, tune
from coterie.report.markdown import markdown as markdown_of_runs
from coterie.report.table import notes, table

EXPLICIT = {"feedback": "explicit", "headline": ["RMSE"], "embedding_size": 4}


@pytest.fixture(scope="module")
def rated(people: Interactions) -> Interactions:
    """Ratings that depend on the user and the item."""
    rng = np.random.default_rng(3)
    generosity = rng.normal(0, 0.6, people.n_users)[people.users]
    quality = rng.normal(0, 0.8, people.n_items)[people.items]
    noise = rng.normal(0, 0.3, len(people))
    return replace(people, ratings=(3 + generosity + quality + noise).astype(np.float32))


@pytest.fixture(scope="module")
def ratings_file(rated: Interactions, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("rated") / "ratings.csv"
    rated.to_frame().to_csv(path, index=False)
    return str(path)


@pytest.mark.parametrize(
    ("metric", "lower"),
    [
        ("RMSE", True),
        ("MAE", True),
        ("full:RMSE", True),
        ("served:MAE", True),
        ("HR@10", False),
        ("full:NDCG@20", False),
        ("AUC", False),
        ("IC@10", False),
        ("MRR@10", False),
    ],
)
def test_direction_of_a_metric(metric: str, lower: bool) -> None:
    assert lower_is_better(metric) == lower
    assert is_better(metric, 0.2, 0.3) == lower
    assert is_better(metric, 0.3, 0.2) != lower
    assert not is_better(metric, 0.2, 0.2)
    assert reaches(metric, 0.2, 0.2)
    assert reaches(metric, 0.1, 0.2) == lower
    assert min((0.1, 0.2, 0.3), key=lambda value: loss(metric, value)) == (0.1 if lower else 0.3)


def test_the_lowest_error_of_a_curve_is_the_best() -> None:
    history = TrainingHistory(np.zeros(1, np.int64))
    best = []
    for n, error in enumerate((1.2, 0.9, 0.9, 1.0, 0.8), 1):
        history = replace(history, round=n).measured("validation", {"RMSE": error}, "RMSE")
        best.append(history.best)
    assert best == [0, 1, 1, 1, 4]
    reached = first_at(history.curve, "RMSE", 1.0)
    assert reached is not None
    assert reached["round"] == 2
    assert first_at(history.curve, "RMSE", 0.7) is None


def test_patience_returns_the_model_with_the_lowest_error(rated: Interactions) -> None:
    settings = {"epochs": 200, "learning_rate": 0.02, "reg": 0.0, "split": "random"}
    run = api.run(
        "gmf", rated, headline="RMSE", validation=True, patience=9, evaluate_every=1, **settings
    )
    errors = [line["RMSE"] for line in run.curve]
    assert run.result["best_round"] == 1 + int(np.argmin(errors)) == len(errors) - 9 < 191
    assert errors[0] > min(errors) < errors[-1], "the curve must fall and rise"


def test_a_target_is_reached_from_above(rated: Interactions) -> None:
    settings = {"epochs": 10, "evaluate_every": 1, "headline": "RMSE"}
    errors = [line["RMSE"] for line in api.run("gmf", rated, **settings).curve]
    target = (errors[0] + min(errors)) / 2
    run = api.run("gmf", rated, target=target, **settings)
    expected = next(n for n, error in enumerate(errors, 1) if error <= target)
    assert 1 < expected == run.result["convergence"]["rounds_to_target"]
    assert f"RMSE first reached {target:g} after {expected} epochs." in notes(run)


def test_tuning_minimises(ratings_file: str, tmp_path: Path) -> None:
    held = EXPLICIT | {"epochs": 12, "evaluate_every": 2}
    found = tune(Search("gmf", ratings_file, trials=4, held=held), tmp_path)
    values = [result["value"] for _, result in cells_in(tmp_path)]
    config, result = min(cells_in(tmp_path), key=lambda trial: trial[1]["value"])
    assert len(set(values)) == 4
    assert found.metric == "RMSE"
    assert [trial.value for trial in found.ranking] == sorted(values)
    assert found.best.settings["learning_rate"] == config["learning_rate"]
    assert found.best.settings["epochs"] == result["best_round"]
    for path in tmp_path.rglob("metrics.jsonl"):
        curve = [json.loads(line)["RMSE"] for line in path.read_text().splitlines()]
        assert min(curve) in values, "the lowest measurement of a trial counts"


def test_finalists_are_the_trials_with_the_lowest_error(ratings_file: str, tmp_path: Path) -> None:
    held = EXPLICIT | {"epochs": 6, "evaluate_every": 2}
    tune(Search("gmf", ratings_file, trials=3, finalists=1, seeds=1, held=held), tmp_path)
    first = [(c, r) for c, r in cells_in(tmp_path) if c["seed"] == 0]
    final = [c for c, _ in cells_in(tmp_path) if c["seed"] == 1]
    best, _ = min(first, key=lambda trial: trial[1]["value"])
    assert [c["learning_rate"] for c in final] == [best["learning_rate"]]


def test_the_method_with_the_lower_error_is_ahead(ratings_file: str, tmp_path: Path) -> None:
    """Twenty epochs against one, on the same users."""
    methods = (("long", "gmf", {"epochs": 20}), ("short", "gmf", {"epochs": 1}))
    settings = EXPLICIT | {"candidates": 20, "headline": ["RMSE", "HR", "MAE"]}
    plan = Plan((ratings_file,), methods, settings=settings, seeds=(0, 1))
    results = run_plan(plan, tmp_path)
    found = comparison(results)
    tests = {test.metric: test for test in found.tests}

    def of_label(label: str) -> list[CellResult]:
        return [result for result in results if result.cell.method.label == label]

    assert tests.keys() == {"RMSE", "MAE", "HR@10", "full:HR@10"}
    long, short = (
        np.mean([result.users()["RMSE"].to_numpy() for result in of_method], axis=0)
        for of_method in (of_label("long"), of_label("short"))
    )
    assert tests["RMSE"].difference == pytest.approx((long - short).mean())
    assert tests["RMSE"].difference < 0
    assert tests["RMSE"].p == pytest.approx(stats.ttest_rel(long, short).pvalue)
    assert (tests["RMSE"].seeds_ahead, tests["MAE"].seeds_ahead) == (2, 2)
    swapped = comparison([*of_label("short"), *of_label("long")])
    assert {t.metric: t.seeds_ahead for t in swapped.tests}["RMSE"] == 0
    accuracy = sections(found)[0]
    assert accuracy.header == ["method", "RMSE", "HR@10", "MAE", "HR@10 full"]
    text = markdown(found, results)
    assert "RMSE and MAE: lower is better, so a negative difference is in favour of long." in text
    assert "RMSE and MAE: lower is better" in page(found, results, "")


def test_reports_show_the_errors_next_to_those_without_a_model(rated: Interactions) -> None:
    run = api.run("gmf", rated, epochs=3, headline="RMSE,HR", candidates=20)
    header, rows, _ = table([run])
    assert header[-3:] == ["RMSE", "HR@10", "HR@10 full"]
    assert rows[0][-3] == f"{run.metrics['RMSE']:.4f}"
    references = run.result["rating_references"]
    text = markdown_of_runs([run])
    assert "RMSE and MAE: lower is better." in text
    for name in ("mean", "biases"):
        assert f"RMSE {references[name]['RMSE']:.4f}, MAE {references[name]['MAE']:.4f}" in text
