"""A small paper from declaration to verdicts: no run twice, missing data named, quick is short."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coterie.core.progress import Progress
from coterie.errors import Interrupted, UnknownName
from coterie.experiments.plan import Method
from coterie.reproduce.checks import Ahead, Untestable
from coterie.reproduce.findings import rounds_to_best
from coterie.reproduce.items import Claim, Item, Measurement, Paper, Trial
from coterie.reproduce.markdown import markdown
from coterie.reproduce.page import page
from coterie.reproduce.papers import paper
from coterie.reproduce.running import quick_points, reproduce, runnable

SMALL = {"n_users": 60, "n_items": 90, "mean_interactions": 9}
TABLE = Item(
    key="table1",
    title="Table 1: accuracy",
    metrics=("HR@10", "NDCG@10"),
    trials=(
        Trial(
            dataset="synthetic",
            methods=(
                Method("bpr", "bpr", {"epochs": 12}),
                Method("popular", "popular"),
                Method("random", "random"),
            ),
            settings=SMALL,
            seeds=2,
            paper={"bpr": (0.5, 0.3)},
        ),
        Trial(dataset="ml-100k", methods=(Method("popular", "popular"),)),
    ),
    claims=(
        Claim("ahead", "BPR is ahead of chance", "4.1", Ahead("bpr", "random", "HR@10")),
        Claim(
            "others",
            "popular is ahead of chance",
            "4.1",
            Ahead("popular", "random", "HR@10"),
        ),
        Claim("vague", "it is good", "5", Untestable("no measure is named"), ("synthetic",)),
    ),
)
MEASURED = Item(
    key="table2",
    title="Table 2: times",
    metrics=("ms",),
    trials=(
        Measurement(
            dataset="synthetic", measure=lambda: {"ours": {"ms": 2.0}}, paper={"ours": (4.0,)}
        ),
    ),
)
PAPER = Paper(
    name="small",
    title="A small paper",
    reference="Anonymous.",
    items=(TABLE, MEASURED),
    quick={"epochs": 2},
)


@pytest.fixture(autouse=True)
def no_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path / "nowhere"))


class Counting(Progress):
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.tasks: list[str] = []

    def log(self, text: str) -> None:
        self.lines.append(text)

    def task(self, label: str, total: float | None) -> Any:
        self.tasks.append(label)
        return super().task(label, total)


def test_from_declaration_to_verdicts(tmp_path: Path):
    report = reproduce(PAPER, quick=True, folder=tmp_path)
    table, measured = report["items"]
    rows = table["tables"][0]["rows"]
    assert list(rows) == ["bpr", "popular", "random"]
    assert rows["bpr"]["settings"]["epochs"] == 2, "a quick look is short"
    assert len(rows["bpr"]["metrics"]["HR@10"]) == 1, "and has one seed"
    assert len(rows["bpr"]["users"]) == 21
    tests = {(t["first"], t["other"], t["metric"]) for t in table["tables"][0]["tests"]}
    assert ("popular", "random", "HR@10") in tests, (
        "a claim's pair is tested even if its first method is not the item's"
    )
    assert {c["name"]: c["verdict"] for c in table["claims"]}["vague"] == "cannot be tested"
    assert any("ml-100k" in text and "not available" in text for text in table["absent"])
    assert measured["tables"][0]["rows"]["ours"]["metrics"] == {"ms": [2.0]}
    json.dumps(report, allow_nan=False)


def test_a_second_run_trains_nothing_and_reports_the_same(tmp_path: Path):
    first = reproduce(PAPER, quick=True, folder=tmp_path)
    progress = Counting()
    assert reproduce(PAPER, quick=True, folder=tmp_path, progress=progress) == first
    assert not [label for label in progress.tasks if "run" in label or "Measuring" in label]
    assert "3 of 3 runs are already finished" in progress.lines


def test_all_seeds_of_a_full_run(tmp_path: Path):
    paper_on_synthetic = replace(PAPER, items=(replace(TABLE, trials=TABLE.trials[:1]),))
    report = reproduce(paper_on_synthetic, folder=tmp_path)
    rows = report["items"][0]["tables"][0]["rows"]
    assert len(rows["bpr"]["metrics"]["HR@10"]) == 2
    curve = rows["bpr"]["curve"]
    assert len(curve["values"]["HR@10"]) == 2
    assert curve["rounds"][-1] == 12


def test_one_item(tmp_path: Path):
    report = reproduce(PAPER, True, ["table2"], tmp_path)
    assert [item["key"] for item in report["items"]] == ["table2"]
    with pytest.raises(UnknownName, match="unknown item 'table9' of small"):
        reproduce(PAPER, True, ["table9"], tmp_path)


def test_synthetic_data_stands_in_for_a_quick_look_only():
    only_real = replace(TABLE, trials=TABLE.trials[1:])
    quick, left_out = runnable(only_real, True, {}, Progress())
    assert [trial.dataset for trial in quick.trials] == ["synthetic"]
    assert "ml-100k" in left_out
    trial = Trial(dataset="watson-articles", methods=(Method("popular", "popular"),))
    unfetchable = replace(TABLE, trials=(trial,))
    assert runnable(unfetchable, False, {}, Progress())[0].trials == ()


def test_missing_data_is_named_once_with_the_way_to_get_it(tmp_path: Path):
    by_hand = Trial(dataset="watson-articles", methods=(Method("popular", "popular"),))
    real = [
        replace(TABLE, key="one", trials=TABLE.trials[1:], about="ML-100K, 500 rounds."),
        replace(TABLE, key="two", trials=(*TABLE.trials[1:], by_hand)),
    ]
    progress = Counting()
    report = reproduce(replace(PAPER, items=tuple(real)), True, (), tmp_path, progress)
    (line,) = [line for line in progress.lines if "ml-100k" in line]
    assert line == report["missing"]
    assert f"Not in the data folder ({tmp_path / 'nowhere'}): ml-100k, watson-articles." in line
    assert "run: coterie data fetch ml-100k; coterie data list says how to get watson" in line
    assert report["items"][0]["about"] == "On synthetic data, not on ml-100k."
    for text in (page(report, "", ""), markdown(report)):
        assert text.count("synthetic data stands in for an item without data") == 1
        assert "500 rounds" not in text


def test_with_all_data_nothing_is_missing(tmp_path: Path):
    whole = replace(PAPER, items=(replace(TABLE, trials=TABLE.trials[:1], about="As declared."),))
    report = reproduce(whole, quick=True, folder=tmp_path)
    assert report["missing"] == ""
    assert report["items"][0]["about"] == "As declared."


def test_a_quick_look_runs_some_points_of_a_sweep():
    item = next(item for item in paper("fpl").items if item.by)
    trial = quick_points(item, item.trials[0])
    assert isinstance(trial, Trial)
    assert {method.settings[item.by] for method in trial.methods} == set(item.quick_at)
    assert len(trial.methods) == 4 * len(item.quick_at)


def test_a_quick_look_keeps_methods_without_the_setting_of_a_sweep():
    item = next(item for item in paper("fedfast").items if item.key == "figure4")
    trial = quick_points(item, item.trials[0])
    assert isinstance(trial, Trial)
    assert [method.label for method in trial.methods] == [
        "p = 5",
        "p = 20",
        "p = 100",
        "fedavg, FedFast's settings",
        "fedavg, constant",
    ]


def test_rounds_to_best_is_the_first_best_round():
    lines = [
        {"round": 5, "HR@10": 0.2},
        {"round": 10, "HR@10": 0.7},
        {"round": 15, "HR@10": 0.7, "NDCG@10": 0.1},
        {"round": 20, "HR@10": 0.6},
    ]
    assert rounds_to_best(lines, "HR@10") == 10
    assert rounds_to_best(lines, "NDCG@10") == 15
    assert rounds_to_best(lines, "AUC") is None


def test_rounds_to_best_is_a_metric_of_an_item(tmp_path: Path):
    with_rounds = replace(TABLE, trials=TABLE.trials[:1], metrics=("HR@10", "rounds to best HR@10"))
    report = reproduce(replace(PAPER, items=(with_rounds,)), folder=tmp_path)
    row = report["items"][0]["tables"][0]["rows"]["bpr"]
    for rounds, values in zip(
        row["metrics"]["rounds to best HR@10"], row["curve"]["values"]["HR@10"], strict=True
    ):
        assert rounds == row["curve"]["rounds"][values.index(max(values))]


def test_an_interrupted_measurement_is_not_cached(tmp_path: Path):
    def stop() -> Any:
        raise KeyboardInterrupt

    broken = replace(MEASURED, trials=(Measurement(dataset="synthetic", measure=stop),))
    with pytest.raises(Interrupted, match="same command"):
        reproduce(replace(PAPER, items=(broken,)), folder=tmp_path)
    report = reproduce(replace(PAPER, items=(MEASURED,)), folder=tmp_path)
    assert report["items"][0]["tables"][0]["rows"]
