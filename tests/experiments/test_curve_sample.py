"""The curve is measured on a sample of users; final figures never are."""

from __future__ import annotations

import numpy as np
import pytest

from coterie import api
from coterie.core.progress import SILENT
from coterie.evaluation.evaluation import evaluate
from coterie.experiments.config import Experiment
from coterie.experiments.curve_sample import affordable_users, scaled_to_all_users
from coterie.experiments.preparation import prepare
from coterie.experiments.training import Evaluator

DATA = {"n_users": 120, "n_items": 60, "epochs": 4}


@pytest.mark.parametrize("protocol", ["full", "loo-50"])
def test_the_curve_is_of_the_sampled_users_and_ends_at_all_users(protocol: str) -> None:
    """The sample's figure from the per-user table of the final evaluation, which has all users."""
    run = api.run("bpr", protocol=protocol, curve_users=15, **DATA)
    values = {"algorithm": "bpr", "protocol": protocol, "curve_users": 15, **DATA}
    ready = prepare(Experiment.of(values), None, SILENT)
    users = np.unique(ready.evaluator.held.users)
    assert len(users) == 15
    assert run.evaluation is not None
    rows = np.isin(run.evaluation.users, users)
    assert run.result["convergence"]["users"] == 15
    measured = ready.evaluator.measure(run.model, 4)
    for name in ("HR@10", "NDCG@10"):
        assert measured[name] == pytest.approx(run.evaluation.table[name][rows].mean())
        assert run.curve[-1][name] == run.metrics[name]


def test_a_curve_is_scaled_to_end_at_the_figures_of_all_users() -> None:
    curve = [{"round": 1, "HR": 0.2, "RMSE": 0.9}, {"round": 2, "HR": 0.4, "RMSE": 0.8}]
    assert scaled_to_all_users(curve, {"HR": 0.3, "RMSE": 1.2}) == (
        {"round": 1, "HR": pytest.approx(0.15), "RMSE": pytest.approx(1.35)},
        {"round": 2, "HR": 0.3, "RMSE": 1.2},
    )


def test_a_scaled_share_stays_below_one() -> None:
    curve = [{"HR": 0.95}, {"HR": 0.5}]
    assert scaled_to_all_users(curve, {"HR": 0.6}) == ({"HR": 1.0}, {"HR": 0.6})


def test_a_sample_that_ends_at_zero_is_not_scaled() -> None:
    curve = [{"HR": 0.1}, {"HR": 0.0}]
    assert scaled_to_all_users(curve, {"HR": 0.2}) == ({"HR": 0.1}, {"HR": 0.2})


def test_a_larger_sample_contains_the_smaller_one() -> None:
    def sampled(n: int) -> set[int]:
        values = {"algorithm": "bpr", "curve_users": n, **DATA}
        return set(prepare(Experiment.of(values), None, SILENT).evaluator.held.users.tolist())

    assert sampled(10) < sampled(20)


def test_the_area_is_of_the_scaled_curve() -> None:
    run = api.run("bpr", curve_users=10, evaluate_every=1, **DATA)
    values = [line["HR@10"] for line in run.curve]
    expected = (values[0] / 2 + values[1] + values[2] + values[3] / 2) / 3
    assert run.result["convergence"]["area"] == pytest.approx(expected)


def test_the_model_and_the_final_figures_do_not_depend_on_the_sample() -> None:
    few = api.run("bpr", curve_users=10, **DATA)
    whole = api.run("bpr", curve_users=0, **DATA)
    assert few.metrics == whole.metrics
    assert few.full == whole.full
    assert [line["HR@10"] for line in few.curve] != [line["HR@10"] for line in whole.curve]
    assert whole.curve[-1]["HR@10"] == pytest.approx(whole.metrics["HR@10"])


def test_the_same_seed_samples_the_same_users() -> None:
    def sampled(seed: int) -> list[int]:
        values = {"algorithm": "bpr", "seed": seed, "curve_users": 15, **DATA}
        return np.unique(prepare(Experiment.of(values), None, SILENT).evaluator.held.users).tolist()

    assert sampled(3) == sampled(3)
    assert sampled(3) != sampled(4)


@pytest.mark.parametrize("change", [{"validation": True}, {"target": 0.5}])
def test_what_stops_training_or_reaches_a_target_is_measured_on_all_users(
    change: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coterie.experiments.curve_sample.MOST_USERS", 7)
    ready = prepare(Experiment.of({"algorithm": "bpr", **DATA, **change}), None, SILENT)
    held = ready.parts.validation or ready.parts.test
    assert ready.evaluator.n_users == len(np.unique(held.users)) > 100
    assert ready.evaluator.held is held
    sampled = prepare(Experiment.of({"algorithm": "bpr", **DATA}), None, SILENT)
    assert sampled.evaluator.n_users == 7


def test_a_small_dataset_is_measured_whole() -> None:
    experiment = Experiment.of({"algorithm": "bpr", **DATA})
    ready = prepare(experiment, None, SILENT)
    assert isinstance(ready.evaluator, Evaluator)
    assert ready.evaluator.held is ready.parts.test
    model = api.run("popular", n_users=120, n_items=60).model
    whole = evaluate(model, ready.parts, experiment.protocol, ready.candidates)
    assert ready.evaluator.measure(model, 1)["HR@10"] == pytest.approx(whole.metrics["HR@10"])


def test_the_number_of_users_by_hand() -> None:
    # One score a visit: 40 million / (4,000 items * 25 measurements) = 400 users.
    assert affordable_users(visits=40_000_000, width=4_000, measurements=25) == 400
    # Little training may always compute 20 million scores: 20 million / (10,000 * 20) = 100.
    assert affordable_users(visits=1_000, width=5_000, measurements=20) == 200
    assert affordable_users(visits=1_000, width=300_000, measurements=20) == 200
    assert affordable_users(visits=10**9, width=60, measurements=20) == 1_000
