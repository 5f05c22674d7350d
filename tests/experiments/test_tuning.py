"""Tuning: the test part is not used, budgets are equal, and the best mean wins."""

from __future__ import annotations

import importlib.util
import json
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from test_plan import Recorder, Stopper, interrupt

from coterie import api
from coterie.algorithms.registry import algorithm
from coterie.data.interactions import Interactions
from coterie.errors import ConfigError, Diverged, Interrupted, UnknownName
from coterie.experiments import tuning_report
from coterie.experiments.config import Course, Experiment
from coterie.experiments.history import TrainingHistory
from coterie.experiments.plan import Plan
from coterie.experiments.plan_runner import run_plan
from coterie.experiments.training import over, waited
from coterie.experiments.tuning import (
    BUDGETS,
    FinalistLog,
    Search,
    budget,
    draw,
    points,
    space_of,
    tunable,
    tune,
)

DATA = {"n_users": 60, "n_items": 90, "mean_interactions": 9}
QUICK = {**DATA, "embedding_size": 4, "epochs": 8, "evaluate_every": 2}


def cells_in(folder: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(config, result) of every cell, read from its files."""
    return [
        (
            json.loads((path.parent / "cell.json").read_text())["config"],
            json.loads(path.read_text()),
        )
        for path in sorted(folder.rglob("result.json"))
    ]


# ---- the space


@pytest.mark.parametrize("name", tunable())
def test_every_point_of_a_space_is_a_possible_setting(name: str) -> None:
    known = algorithm(name).settings.model_fields
    assert space_of(name).keys() <= known.keys()
    for point in points(Search(name, trials=20)):
        Experiment.of({"algorithm": name} | point)


@settings(deadline=None, max_examples=60)
@given(
    st.floats(-4, 2).map(lambda x: float(f"{10**x:.3g}")),
    st.floats(1.1, 1000),
    st.integers(0, 2**32),
    st.integers(0, 100),
)
def test_a_draw_lies_in_its_space_and_is_the_same_every_time(
    low: float, ratio: float, seed: int, trial: int
) -> None:
    high = float(f"{low * ratio:.3g}")
    space = {"rate": (low, high), "size": [2, 4, 8]}
    point = draw(space, seed, trial)
    assert low <= point["rate"] <= high
    assert point["size"] in (2, 4, 8)
    assert draw(space, seed, trial) == point


def test_numbers_are_drawn_evenly_over_orders_of_magnitude() -> None:
    drawn = [draw({"rate": (0.001, 1.0), "size": [1, 2]}, 0, n) for n in range(900)]
    decades = np.bincount(
        [int(np.floor(np.log10(point["rate"]))) + 3 for point in drawn], minlength=3
    )
    assert all(250 < n < 350 for n in decades), decades
    assert 400 < sum(point["size"] == 1 for point in drawn) < 500


def test_fixed_settings_are_not_drawn() -> None:
    held = points(Search("gmf", trials=5, held={"embedding_size": 10}))
    assert all(point.keys() == space_of("gmf").keys() - {"embedding_size"} for point in held)
    assert len({json.dumps(point) for point in held}) == 5


# ---- the test part is not used


def likes(path: Path, other_newest: bool) -> str:
    """Forty users; `other_newest` replaces the newest item of each, which is the test item."""
    rng = np.random.default_rng(5)
    rows = []
    for user in range(40):
        chosen = rng.permutation(30)[:9]
        if other_newest:
            chosen[8] = next(item for item in range(30) if item not in chosen)
        rows += [f"u{user},i{item},{user * 100 + n}" for n, item in enumerate(chosen)]
    # Two more users make sure that every item is in the training part.
    rows += [f"u{user},i{item},{9000 + item}" for user in (40, 41) for item in range(30)]
    path.write_text("\n".join(["user_id,item_id,timestamp", *rows]) + "\n")
    return str(path)


def pairs(data: Interactions) -> set[tuple[str, str]]:
    return {
        (str(data.user_ids[u]), str(data.item_ids[i]))
        for u, i in zip(data.users, data.items, strict=True)
    }


@pytest.mark.parametrize("name", ["gmf", "ease", "fedfast"])
@pytest.mark.parametrize("protocol", ["full", "loo-50"])
def test_tuning_does_not_depend_on_the_test_part(tmp_path: Path, name: str, protocol: str) -> None:
    files = [likes(tmp_path / "before.csv", False), likes(tmp_path / "after.csv", True)]
    assert len(pairs(api.load(files[0])) ^ pairs(api.load(files[1]))) == 80, (
        "forty interactions differ"
    )
    short = (
        {}
        if name == "ease"
        else {"embedding_size": 4, ("rounds" if name == "fedfast" else "epochs"): 6}
    )
    held = {"candidates": 10} if protocol == "loo-50" else {}
    search = Search(name, protocol=protocol, trials=2, finalists=2, seeds=2, held=short | held)
    found = [tune(_on(search, file), tmp_path / "cells") for file in files]
    assert found[0].ranking == found[1].ranking
    tested = [
        run_plan(
            Plan((file,), (name,), {"validation": True} | short | held, protocol=protocol),
            tmp_path / "cells",
        )[0]
        for file in files
    ]
    assert tested[0].result["metrics"] != tested[1].result["metrics"], (
        "an evaluation on test does depend on it"
    )


def _on(search: Search, dataset: str) -> Search:
    others = {
        name: getattr(search, name) for name in search.__dataclass_fields__ if name != "dataset"
    }
    return Search(dataset=dataset, **others)


# ---- results


def test_the_best_trial_wins_with_its_best_epoch(tmp_path: Path) -> None:
    found = tune(Search("gmf", trials=4, held=QUICK), tmp_path)
    trials = cells_in(tmp_path)
    assert len(trials) == 4
    config, result = max(trials, key=lambda trial: trial[1]["value"])
    keys = [*space_of("gmf"), "epochs"]
    assert found.best.settings == {key: config[key] for key in keys} | {
        "epochs": result["best_round"]
    }
    assert (found.metric, found.best.value) == ("NDCG@10", result["value"])
    assert [trial.value for trial in found.ranking] == sorted(
        (r["value"] for _, r in trials), reverse=True
    )


def test_finalists_are_ranked_by_their_mean_over_other_seeds(tmp_path: Path) -> None:
    held = QUICK | {"evaluate_every": 1, "epochs": 30, "patience": 30}
    found = tune(Search("gmf", trials=4, finalists=2, seeds=3, held=held, seed=5), tmp_path)
    cells = cells_in(tmp_path)
    trials = sorted((r["value"] for c, r in cells if c["seed"] == 5), reverse=True)
    rates = {c["learning_rate"] for c, r in cells if c["seed"] == 5 and r["value"] in trials[:2]}
    finals = {
        rate: [r for c, r in cells if c["seed"] != 5 and c["learning_rate"] == rate]
        for rate in rates
    }
    assert {c["seed"] for c, _ in cells} == {5, 6, 7, 8}
    assert (len(cells), [len(results) for results in finals.values()]) == (4 + 2 * 3, [3, 3])
    best = max(finals, key=lambda rate: statistics.mean(r["value"] for r in finals[rate]))
    assert found.best.value == pytest.approx(
        statistics.mean(r["value"] for r in finals[best]), abs=1e-12
    )
    assert found.best.settings["learning_rate"] == best
    epochs = [r["best_round"] for r in finals[best]]
    assert min(epochs) < statistics.median(epochs) < max(epochs), "the seeds must differ"
    assert found.best.settings["epochs"] == statistics.median(epochs)
    assert len(found.ranking) == 2


def test_rounds_of_federated_methods_are_found_like_epochs(tmp_path: Path) -> None:
    held = {
        **DATA,
        "embedding_size": 4,
        "rounds": 30,
        "evaluate_every": 3,
        "patience": 2,
        "final_rate": 1.0,
        "patience_from": 0,
        "average": "all",
    }
    found = tune(Search("fedavg", trials=2, held=held), tmp_path)
    config, best = max(cells_in(tmp_path), key=lambda trial: trial[1]["value"])
    assert found.best.settings["rounds"] == best["best_round"] < best["rounds"] < config["rounds"]
    assert found.best.settings["embedding_size"] == 4
    assert "epochs" not in found.best.settings


def test_trials_with_a_decaying_learning_rate_train_to_the_end(tmp_path: Path) -> None:
    """The model of round 3 of 9 is not that of round 3 of 3, so it could not be reproduced."""
    held = {**DATA, "embedding_size": 4, "rounds": 9, "evaluate_every": 3, "final_rate": 0.1}
    progress = Recorder()
    found = tune(Search("fedavg", trials=3, held=held), tmp_path, progress)
    assert found.best.settings["rounds"] == 9
    curves = [path.read_text().splitlines() for path in tmp_path.rglob("metrics.jsonl")]
    assert [len(lines) for lines in curves] == [3, 3, 3]
    assert found.best.value == max(json.loads(lines[-1])["NDCG@10"] for lines in curves)
    assert not [text for text in progress.lines if "allowed" in text]


def test_a_single_step_method_has_no_steps_to_tune(tmp_path: Path) -> None:
    best = tune(Search("ease", trials=3, held=DATA), tmp_path).best
    wanted = {"reg", "length_exponent", "reg_exponent", "popularity_exponent"}
    assert best.settings.keys() == wanted


def test_every_trial_has_the_same_budget(tmp_path: Path) -> None:
    """Whatever is drawn; methods that count rounds, or epochs, share one budget."""
    tune(Search("gmf", trials=3, held={**DATA, "embedding_size": 4}), tmp_path / "gmf")
    for config, result in cells_in(tmp_path / "gmf"):
        assert {key: config[key] for key in BUDGETS["epochs"]} == BUDGETS["epochs"]
        assert config["validation"] is True
        assert result["rounds"] <= BUDGETS["epochs"]["epochs"]
    steps = {name: Search(name).steps for name in tunable()}
    assert all(
        steps[name] in algorithm(name).settings.model_fields for name in tunable() if steps[name]
    )
    assert {steps[name] for name in tunable() if algorithm(name).federated} == {"rounds", "epochs"}
    assert {name for name in tunable() if not steps[name]} == {"ease", "slim", "userknn", "itemknn"}


@pytest.mark.parametrize("name", ["fedease", "fedslim"])
def test_algorithms_of_one_exchange_have_one_round(name: str, tmp_path: Path) -> None:
    progress = Recorder()
    found = tune(Search(name, trials=2, finalists=1, seeds=1, held=DATA), tmp_path, progress)
    assert found.experiment()["rounds"] == 1
    assert {(config["rounds"], result["rounds"]) for config, result in cells_in(tmp_path)} == {
        (1, 1)
    }
    assert not [line for line in progress.lines if "no client" in line or "allowed" in line]


def test_fixed_rounds_of_one_exchange_are_measured_once(tmp_path: Path) -> None:
    """Where one round does not select every client, the user says how many do."""
    held = {**DATA, "participation": 0.5, "rounds": 3}
    found = tune(Search("fedease", trials=1, held=held), tmp_path)
    assert found.experiment()["rounds"] == 3
    assert [line["round"] for line in found.trials[0].curve] == [3]


def test_an_algorithm_declares_how_long_its_trials_train(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = budget(Search("fedavg"))
    assert usual == BUDGETS["rounds"]
    assert budget(Search("fedals")) == {
        "rounds": 20,
        "evaluate_every": 1,
        "patience": 5,
        "patience_from": 5,
    }
    assert budget(Search("fedals", held={"rounds": 40}))["patience_from"] == 10
    monkeypatch.setattr(algorithm("fedavg").settings, "trial_steps", 100)
    assert budget(Search("fedavg")) == usual | {
        "rounds": 100,
        "evaluate_every": 5,
        "patience_from": 25,
    }


def test_a_best_trial_at_the_limit_is_logged(tmp_path: Path) -> None:
    progress = Recorder()
    held = QUICK | {"epochs": 2, "learning_rate": 0.001}
    assert tune(Search("gmf", trials=1, held=held), tmp_path, progress).best.settings["epochs"] == 2
    assert (
        "the best trial used all epochs allowed (2); --set epochs=N allows more" in progress.lines
    )


# ---- continuing


def test_an_interrupted_search_continues(tmp_path: Path) -> None:
    search = Search("gmf", trials=4, finalists=2, seeds=2, held=QUICK)
    progress = Stopper(3, interrupt)
    with pytest.raises(Interrupted, match="2 of 4 runs"):
        tune(search, tmp_path, progress)
    progress = Recorder()
    found = tune(search, tmp_path, progress)
    assert progress.began[:2] == ["trial 3 on synthetic, seed 0", "trial 4 on synthetic, seed 0"]
    assert len(progress.began) == 2 + 2 * 2
    progress = Recorder()
    assert tune(search, tmp_path, progress).ranking == found.ranking
    assert progress.began == []
    longer = Search("gmf", trials=6, held=QUICK)
    progress = Recorder()
    tune(longer, tmp_path, progress)
    assert len(progress.began) == 2, "only the new trials are trained"


# ---- the winner as an experiment


def test_the_best_trial_is_an_experiment_on_all_but_the_test_part(tmp_path: Path) -> None:
    search = Search("gmf", protocol="loo-99", trials=2, held=QUICK | {"cutoffs": 5, "patience": 1})
    found = tune(search, tmp_path)
    flat = found.experiment()
    assert not {"patience", "validation", "evaluate_every", "seed"} & flat.keys()
    chosen = Experiment.of(flat)
    assert {
        key: getattr(chosen.settings, key) for key in found.best.settings
    } == found.best.settings
    assert flat.keys() >= chosen.settings.model_dump().keys(), (
        "settings that were not searched too: defaults may change"
    )
    assert (chosen.choice.protocol, chosen.protocol.cutoffs, chosen.synthetic.n_users) == (
        "loo-99",
        (5,),
        60,
    )
    run = api.run(
        "gmf", **{key: value for key, value in flat.items() if key not in ("algorithm", "dataset")}
    )
    assert run.result["rounds"] == found.best.settings["epochs"]
    assert (
        run.result["training_interactions"]
        == len(api.load("synthetic", **DATA)) - run.result["tested_users"]
    )


@pytest.mark.parametrize("held", [{}, {"popularity_prior": 0}, {"popularity_prior": 3}])
def test_popularity_counts_as_in_the_trials(held: dict[str, object], tmp_path: Path) -> None:
    """A run has more training data than a trial, and would derive another value from it."""
    length = {"rounds": 6, "evaluate_every": 3}
    search = Search("fedavg", trials=2, held={**DATA, **length, "embedding_size": 4} | held)
    found = tune(search, tmp_path)
    flat = found.experiment()
    assert flat["popularity_prior"] == found.trials[0].result["popularity_prior"]
    if held:
        assert flat["popularity_prior"] == held["popularity_prior"]
    else:
        assert flat["popularity_prior"] > 0
    keys = {key: value for key, value in flat.items() if key not in ("algorithm", "dataset")}
    run = api.run("fedavg", **keys)
    assert run.result["popularity_prior"] == flat["popularity_prior"]
    measured = api.run("fedavg", **keys, validation=True, headline=["NDCG"])
    assert measured.curve[-1]["part"] == "validation"
    assert measured.curve[-1]["NDCG@10"] == found.best.value


# ---- errors


def test_an_unknown_algorithm_gets_a_suggestion() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'fedfast'"):
        tune(Search("fedfsat"))


@pytest.mark.parametrize(
    ("search", "complaint"),
    [
        (
            Search("popular"),
            r"'popular' has no search space; expected one of fedavg, .*in its settings",
        ),
        (Search("gmf", trials=0), "trials is 0; expected at least 1.*--trials"),
        (Search("gmf", finalists=-1), "finalists is -1; expected at least 0.*--finalists"),
        (Search("gmf", seeds=0), "seeds is 0; expected at least 1.*--seeds"),
        (
            Search("gmf", held={"negativs": 3}),
            "unknown setting 'negativs'.*Did you mean 'negatives'",
        ),
        (Search("gmf", held={"embedding_size": 0}), "setting 'embedding_size' is 0"),
        (Search("gmf", held={"validation": False}), "validation=true"),
    ],
)
def test_an_impossible_search_is_refused(search: Search, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=complaint):
        tune(search, tmp_path)
    assert not list(tmp_path.rglob("result.json"))


def test_diverged_trials_are_dropped_and_a_search_of_only_them_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(algorithm("gmf").settings, "search_space", {"learning_rate": [0.02, 1e30]})
    search = Search("gmf", trials=6, held=QUICK)
    assert {point["learning_rate"] for point in points(search)} == {0.02, 1e30}
    found = tune(search, tmp_path)
    assert {trial.settings["learning_rate"] for trial in found.ranking} == {0.02}
    with pytest.raises(
        Diverged,
        match=r"every trial of gmf diverged \(training diverged at round 2:.*learning_rate",
    ):
        tune(Search("gmf", trials=2, held=QUICK | {"learning_rate": 1e30}), tmp_path)


# ---- a curve that begins flat


def history_of(*values: float) -> TrainingHistory:
    """Measured every 4 epochs."""
    history = TrainingHistory(selections=np.zeros(1, np.int64))
    for n, value in enumerate(values, 1):
        history = replace(history, round=4 * n).measured("validation", {"HR@10": value}, "HR@10")
    return history


def test_patience_counts_from_a_round_on() -> None:
    """Epochs 4 to 24. The best is at epoch 8, and four measurements follow it."""
    flat = history_of(0.1, 0.2, 0.1, 0.1, 0.1, 0.1)
    assert waited(flat, 0) == 4
    assert waited(flat, 16) == 2
    assert waited(flat, 24) == 0
    assert over(flat, 100, Course(patience=3))
    assert not over(flat, 100, Course(patience=3, patience_from=16))
    assert over(flat, 100, Course(patience=2, patience_from=16))
    assert over(flat, 24, Course(patience=9, patience_from=90))


def test_patience_counts_from_the_same_share_of_any_limit() -> None:
    assert budget(Search("bpr"))["patience_from"] == 20
    assert budget(Search("bpr", held={"epochs": 40}))["patience_from"] == 8
    assert budget(Search("fedavg", held={"rounds": 30}))["patience_from"] == 7
    assert budget(Search("ease")) == {}


def test_a_late_riser_is_found_with_patience_from(tmp_path: Path) -> None:
    """BPR from tiny factors: without a minimum the flat beginning ends the trial."""
    slow = {**DATA, "learning_rate": 0.02, "start_scale": 0.003, "embedding_size": 8}
    slow |= {"validation": True, "epochs": 60, "evaluate_every": 2, "patience": 2}
    early = api.run("bpr", **slow)
    late = api.run("bpr", **slow, patience_from=50)
    assert early.result["rounds"] < 50 < late.result["rounds"]


# ---- what a search shows


def test_every_trial_is_logged_with_the_best_so_far(tmp_path: Path) -> None:
    log = Recorder()
    found = tune(Search("bpr", trials=3, held=QUICK), tmp_path, log)
    lines = [line for line in log.lines if line.startswith("trial ")]
    assert [line.partition(":")[0] for line in lines] == [f"trial {n} of 3" for n in (1, 2, 3)]
    values = [trial.result["value"] for trial in found.trials]
    for n, line in enumerate(lines):
        best = max(values[: n + 1])
        assert f"NDCG@10 {values[n]:.4f} at step" in line
        assert f"(best {best:.4f}, trial {values.index(best) + 1})" in line
    again = Recorder()
    tune(Search("bpr", trials=3, held=QUICK), tmp_path, again)
    assert [line for line in again.lines if line.startswith("trial ")] == lines


def test_every_run_of_a_finalist_is_logged_with_its_mean(tmp_path: Path) -> None:
    log = Recorder()
    found = tune(Search("bpr", trials=3, finalists=2, seeds=2, held=QUICK), tmp_path, log)
    lines = [line for line in log.lines if line.startswith("finalist ")]
    assert [line.partition(",")[0] for line in lines] == [
        f"finalist run {n} of 4" for n in (1, 2, 3, 4)
    ]
    assert [line.partition(" with ")[2].partition(":")[0] for line in lines] == [
        "seed 1",
        "seed 1",
        "seed 2",
        "seed 2",
    ]
    assert all(line.endswith("over 1 of 2 seeds)") for line in lines[:2])
    means = {line.partition("(mean ")[2] for line in lines[2:]}
    assert means == {f"{trial.value:.4f} over 2 of 2 seeds)" for trial in found.ranking}


def test_a_diverged_run_of_a_finalist_is_logged(tmp_path: Path) -> None:
    log = Recorder()
    found = tune(Search("bpr", trials=1, held=QUICK), tmp_path)
    diverged = replace(found.trials[0], result={"diverged": "training diverged"})
    finals = FinalistLog(1, 2, log)
    finals.add(diverged)
    assert log.lines == ["finalist run 1 of 2, trial 1 with seed 0: diverged"]


def test_the_page_has_every_trial(tmp_path: Path) -> None:
    found = tune(Search("bpr", trials=3, held=QUICK), tmp_path)
    header, rows = tuning_report.table(found)
    assert header[:3] == ["trial", "NDCG@10", "best step"]
    assert [row[0] for row in rows] == ["trial 1", "trial 2", "trial 3"]
    text = tuning_report.page(found, "coterie tune bpr")
    for row in rows:
        assert all(f">{cell}</td>" in text for cell in row)
    assert "<svg" in text
    assert tuning_report.best_so_far([0.2, None, 0.1, 0.3], "HR@10") == [0.2, 0.2, 0.2, 0.3]
    assert tuning_report.best_so_far([0.2, 0.1, 0.3], "RMSE") == [0.2, 0.1, 0.1]
    assert "of 3 trials: " in tuning_report.summary_line(found)


def test_the_embedding_size_is_searched() -> None:
    for name in ("bpr", "gmf", "als", "fedavg", "fedfast", "fedbso", "fcf", "pfpl+"):
        assert len(set(space_of(name)["embedding_size"])) > 1


# ---- the script behind tuned.yaml


def script() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "tune.py"
    spec = importlib.util.spec_from_file_location("tune_script", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_script_writes_the_winner_beside_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = script()
    tuned = tmp_path / "tuned.yaml"
    tuned.write_text(
        yaml.safe_dump({"synthetic": {"als": {"reg": 3.0}}, "ml-1m": {"gmf": {"epochs": 1}}})
    )
    monkeypatch.setattr(module, "TUNED", tuned)
    held = [part for key, value in QUICK.items() for part in ("--set", f"{key}={value}")]
    arguments = [
        "synthetic",
        "gmf",
        "--trials",
        "2",
        "--cells",
        str(tmp_path / "cells"),
        *held,
        "--write",
    ]
    monkeypatch.setattr(sys, "argv", ["tune.py", *arguments])
    module.main()
    printed = json.loads(capsys.readouterr().out)
    best = max(
        (result for _, result in cells_in(tmp_path / "cells")), key=lambda result: result["value"]
    )
    assert printed["ndcg"] == best["value"]
    assert printed["settings"]["epochs"] == best["best_round"]
    assert yaml.safe_load(tuned.read_text()) == {
        "synthetic": {"als": {"reg": 3.0}, "gmf": printed["settings"]},
        "ml-1m": {"gmf": {"epochs": 1}},
    }
