"""Whole experiments: training data, measurements, early stopping, bit-identical repetition."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from every_algorithm import HERE, two_steps

import coterie
from coterie.algorithms.registry import algorithm
from coterie.core.progress import SILENT
from coterie.data.interactions import Interactions
from coterie.errors import ConfigError, Diverged, LeakError, RunError
from coterie.experiments.config import Experiment, changed
from coterie.experiments.finished_run import Run
from coterie.experiments.reevaluation import reevaluate

EPOCHS = {"bpr": 3, "gmf": 3, "als": 2}


def epochs(name: str) -> dict[str, int]:
    """Few, where the defaults would take long."""
    if "tower" in algorithm(name).settings.model_fields:
        return two_steps(name)
    return {"epochs": EPOCHS[name]} if name in EPOCHS else {}


def same_model(one: Run, other: Run) -> bool:
    a = one.model.arrays()
    b = other.model.arrays()
    return a.keys() == b.keys() and all(
        a[n].dtype == b[n].dtype and a[n].tobytes() == b[n].tobytes() for n in a
    )


def frame_of(data: Interactions) -> pd.DataFrame:
    columns = {
        "user_id": data.user_ids[data.users],
        "item_id": data.item_ids[data.items],
        "timestamp": data.times,
    }
    return pd.DataFrame(columns)


# ---- same seed, same bits


@pytest.mark.parametrize("name", HERE)
def test_same_seed_same_bits(people: Interactions, name: str) -> None:
    one, other = (coterie.run(name, people, seed=4, **epochs(name)) for _ in range(2))
    assert same_model(one, other)
    assert (one.metrics, one.full) == (other.metrics, other.full)


@pytest.mark.parametrize("name", ["random", "bpr", "gmf", "als"])
def test_another_seed_gives_another_model(people: Interactions, name: str) -> None:
    assert not same_model(
        *(coterie.run(name, people, seed=seed, **epochs(name)) for seed in (1, 2))
    )


DATA = {"n_users": 700, "n_items": 600, "mean_interactions": 12}
ALONE = f"""
import os, sys
sys.modules["matplotlib"] = None  # no figure is needed here
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
os.cpu_count = lambda: 1
import coterie
for name in ("bpr", "gmf", "als"):
    coterie.run(name, out=f"{{sys.argv[1]}}/{{name}}", epochs=2, **{DATA})
"""


def test_number_of_threads_does_not_change_a_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread in another process, four here: ALS splits users and items into several blocks."""
    limits = ("NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    env = os.environ | dict.fromkeys(limits, "1")
    subprocess.run([sys.executable, "-c", ALONE, tmp_path], env=env, check=True, timeout=60)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    for name in ("bpr", "gmf", "als"):
        one = Run.load(tmp_path / name)
        four = coterie.run(name, epochs=2, **DATA)
        assert same_model(one, four), name
        assert one.metrics == four.metrics, name


# ---- measuring while training


def test_curve_is_what_the_file_holds(people: Interactions, tmp_path: Path) -> None:
    run = coterie.run("gmf", people, epochs=7, evaluate_every=3, out=tmp_path / "r")
    lines = [
        json.loads(line) for line in (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()
    ]
    assert lines == run.curve
    assert [line["round"] for line in lines] == [3, 6, 7], "every third and the last"
    assert {line["part"] for line in lines} == {"test"}
    assert {name: lines[-1][name] for name in run.metrics if name in lines[-1]} == {
        name: value for name, value in run.metrics.items() if name in lines[-1]
    }
    seconds = [line["seconds"] for line in lines]
    assert seconds == sorted(seconds)


def test_about_twenty_measurements_by_default(people: Interactions) -> None:
    assert len(coterie.run("bpr", people, epochs=60).curve) == 20
    assert len(coterie.run("bpr", people, epochs=5).curve) == 5


# ---- validation and early stopping


def test_patience_needs_a_validation_part(people: Interactions) -> None:
    with pytest.raises(ConfigError, match="validation=true"):
        coterie.run("bpr", people, patience=2)


def test_stops_when_validation_stops_improving_and_keeps_its_best_model(
    people: Interactions,
) -> None:
    changes = {"validation": True, "learning_rate": 0.1, "evaluate_every": 1, "protocol": "loo-50"}
    run = coterie.run("bpr", people, patience=3, epochs=200, **changes)
    values = [line["HR@10"] for line in run.curve]
    best = int(np.argmax(values))
    assert run.result["rounds"] == len(values) < 200
    assert len(values) - 1 - best == 3, "three measurements without improvement, and not one more"
    assert same_model(run, coterie.run("bpr", people, epochs=best + 1, **changes))
    assert not same_model(run, coterie.run("bpr", people, epochs=len(values), **changes))


def test_without_patience_the_last_model_is_returned(people: Interactions) -> None:
    changes = {"validation": True, "learning_rate": 0.1, "evaluate_every": 1, "protocol": "loo-50"}
    last = coterie.run("bpr", people, epochs=15, **changes)
    best = int(np.argmax([line["HR@10"] for line in last.curve]))
    assert best < 14, "the last model is not the best, so the case distinguishes them"
    patient = coterie.run("bpr", people, epochs=15, patience=99, **changes)
    assert same_model(patient, coterie.run("bpr", people, epochs=best + 1, **changes))
    assert not same_model(last, patient)


def other_newest(data: Interactions) -> Interactions:
    """The same users, items and times, but every user's newest interaction has another new item."""
    frame = frame_of(data).sort_values(["user_id", "timestamp"], kind="stable")
    rng = np.random.default_rng(7)
    newest = frame.groupby("user_id").tail(1).index
    had = frame.groupby("user_id")["item_id"].agg(set)
    everything = set(frame["item_id"])
    changed = [rng.choice(sorted(everything - had[user])) for user in frame.loc[newest, "user_id"]]
    frame.loc[newest, "item_id"] = changed
    return coterie.load(frame)


def distinct_times(data: Interactions) -> Interactions:
    frame = frame_of(data)
    frame["timestamp"] = np.arange(len(frame))
    # No item depends on a single newest interaction.
    often = frame.groupby("item_id")["user_id"].transform("size") > 3
    enough = frame.groupby("user_id")["item_id"].transform("size") > 4
    return coterie.load(frame[often & enough])


@pytest.mark.parametrize("name", ["popular", "bpr", "gmf", "als", "ease"])
def test_test_part_reaches_neither_training_nor_measuring(people: Interactions, name: str) -> None:
    """Replace every test interaction by another: model and curve must not change."""
    before = distinct_times(people)
    after = other_newest(before)
    assert list(before.item_ids) == list(after.item_ids)
    changes = {"validation": True, "protocol": "loo-50", **epochs(name)}
    one = coterie.run(name, before, **changes)
    other = coterie.run(name, after, **changes)
    assert {line["part"] for line in one.curve} == {"validation"}
    assert same_model(one, other)
    assert untimed(one.curve) == untimed(other.curve)
    assert one.metrics != other.metrics, "the test part did change"


def untimed(curve: list[dict]) -> list[dict]:
    return [{key: value for key, value in line.items() if key != "seconds"} for line in curve]


def test_as_published_depends_on_the_test_part(people: Interactions) -> None:
    """The counterpart: negatives that exclude held-out items depend on them."""
    before = distinct_times(people)
    changes = {"validation": True, "protocol": "loo-50", "as_published": True, "epochs": 3}
    assert not same_model(
        coterie.run("gmf", before, **changes), coterie.run("gmf", other_newest(before), **changes)
    )


def test_validation_works_with_own_files(tmp_path: Path, people: Interactions) -> None:
    frame = frame_of(distinct_times(people))
    newest = frame.groupby("user_id").tail(1).index
    frame.drop(newest).to_csv(tmp_path / "train.csv", index=False)
    frame.loc[newest].to_csv(tmp_path / "test.csv", index=False)
    run = coterie.run(
        "bpr",
        tmp_path / "train.csv",
        split="own",
        test_file=str(tmp_path / "test.csv"),
        validation=True,
        epochs=2,
    )
    assert {line["part"] for line in run.curve} == {"validation"}
    assert run.result["training_interactions"] == len(frame) - 2 * len(newest)


# ---- the leak on purpose


@pytest.mark.parametrize("name", ["bpr", "gmf"])
def test_as_published_raises_the_figure_and_is_reported(
    people: Interactions, tmp_path: Path, name: str
) -> None:
    changes = {"protocol": "loo-50", "epochs": 60, "learning_rate": 0.05}
    honest = coterie.run(name, people, **changes)
    leaky = coterie.run(name, people, as_published=True, out=tmp_path / "leaky", **changes)
    assert leaky.metrics["HR@10"] > honest.metrics["HR@10"] + 0.03
    assert leaky.full["HR@10"] > honest.full["HR@10"] + 0.03
    assert (honest.result["as_published"], leaky.result["as_published"]) == (False, True)
    for report in ("report.md", "report.html"):
        assert "as_published" in (tmp_path / "leaky" / report).read_text()


# ---- divergence


@pytest.mark.parametrize("name", ["bpr", "gmf"])
def test_divergence_is_an_error_with_its_round_and_never_a_figure(
    people: Interactions, tmp_path: Path, name: str
) -> None:
    with pytest.raises(
        Diverged, match=r"^training diverged at round \d+:.*learning_rate"
    ) as caught:
        coterie.run(name, people, learning_rate=1e30, epochs=5, out=tmp_path / "r")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "r" / "result.json").exists()
    metrics = tmp_path / "r" / "metrics.jsonl"
    assert "NaN" not in (metrics.read_text() if metrics.exists() else "")


# ---- own files


def test_own_split_keeps_ids_and_models_together(tmp_path: Path) -> None:
    """The test file has an item that sorts before those of the training file: indices shift."""
    likes = [("b", "y"), ("b", "z"), ("c", "y"), ("c", "x"), ("d", "y"), ("d", "z")]
    pd.DataFrame(likes, columns=["user_id", "item_id"]).to_csv(tmp_path / "train.csv", index=False)
    held = [("b", "x"), ("c", "z"), ("d", "a")]
    pd.DataFrame(held, columns=["user_id", "item_id"]).to_csv(tmp_path / "test.csv", index=False)
    run = coterie.run(
        "popular",
        tmp_path / "train.csv",
        split="own",
        test_file=str(tmp_path / "test.csv"),
        out=tmp_path / "r",
    )
    assert run.score("b", ["x", "y", "z", "a"]) == [1.0, 3.0, 2.0, 0.0]
    assert [r.item for r in run.recommend("b", 9)] == ["x", "a"]
    assert [r.item for r in run.recommend("c", 9)] == ["z", "a"]
    users = pd.read_csv(tmp_path / "r" / "users.csv")
    assert list(users["user_id"]) == ["b", "c", "d"]
    assert run.result["training_interactions"] == 6


def test_overlap_of_own_files_is_refused(tmp_path: Path) -> None:
    pd.DataFrame([("b", "y"), ("b", "z")], columns=["user_id", "item_id"]).to_csv(
        tmp_path / "a.csv", index=False
    )
    pd.DataFrame([("b", "z")], columns=["user_id", "item_id"]).to_csv(
        tmp_path / "b.csv", index=False
    )
    with pytest.raises(
        LeakError,
        match=r"training and test share 1 interactions \(for example user 'b' and item 'z'\)",
    ):
        coterie.run("popular", tmp_path / "a.csv", split="own", test_file=str(tmp_path / "b.csv"))


def test_own_split_needs_a_test_file(people: Interactions) -> None:
    with pytest.raises(ConfigError, match="--set test_file=PATH"):
        coterie.run("popular", people, split="own")


# ---- re-evaluation


@pytest.mark.parametrize("name", HERE)
def test_reevaluation_agrees_with_the_run(tmp_path: Path, name: str) -> None:
    run = coterie.run(
        name, out=tmp_path / "r", n_users=80, n_items=70, seed=3, validation=True, **epochs(name)
    )
    again = reevaluate(tmp_path / "r", {}, SILENT)
    assert (again.metrics, again.full) == (run.metrics, run.full)
    wider = reevaluate(tmp_path / "r", {"cutoffs": [1, 10, 20]}, SILENT)
    assert {name: wider.full[name] for name in run.full} == run.full
    hits = [wider.full[f"HR@{k}"] for k in (1, 10, 20)]
    assert hits == sorted(hits)


def test_reevaluation_on_training_data_is_a_leak(tmp_path: Path) -> None:
    coterie.run("popular", out=tmp_path / "r", n_users=80, n_items=70)
    for changes in ({"protocol": "holdout"}, {"split": "random"}, {"split": "global-time"}):
        with pytest.raises(
            LeakError, match="was trained or selected on interactions that this protocol tests"
        ):
            reevaluate(tmp_path / "r", changes, SILENT)


def test_reevaluation_on_a_part_of_the_test_part_is_no_leak(tmp_path: Path) -> None:
    """Of ten interactions `holdout` holds out two, and leave-one-out the newer of the two."""
    rows = [(f"u{u}", f"i{(u + j) % 15}", j) for u in range(20) for j in range(10)]
    pd.DataFrame(rows, columns=["user_id", "item_id", "timestamp"]).to_csv(
        tmp_path / "a.csv", index=False
    )
    run = coterie.run("popular", tmp_path / "a.csv", protocol="holdout", out=tmp_path / "r")
    assert run.result["training_interactions"] == 160
    newer = reevaluate(tmp_path / "r", {"protocol": "full"}, SILENT)
    assert newer.evaluation is not None
    assert len(newer.evaluation.users) == 20


# ---- names of protocols


def test_another_protocol_drops_the_settings_of_the_first() -> None:
    flat = Experiment.of({"algorithm": "popular", "protocol": "loo-50", "cutoffs": 5}).flat()
    again = Experiment.of(changed(flat, {"protocol": "loo-99"}))
    assert (again.protocol.candidates, again.protocol.cutoffs) == (99, (10,))


@pytest.mark.parametrize(
    ("keys", "label"),
    [
        ({}, "loo-50"),
        ({"validation": True}, "loo-50"),
        ({"candidates": 7}, "loo-50 (candidates=7)"),
        (
            {"protocol": "holdout", "fraction": 0.1, "cutoffs": "5,20"},
            "holdout (fraction=0.1, cutoffs=5,20)",
        ),
        ({"candidates_file": "far/away/ncf.gz"}, "loo-50 (candidates_file=ncf.gz)"),
    ],
)
def test_a_changed_protocol_lists_its_changes(keys: dict[str, object], label: str) -> None:
    assert Experiment.of({"algorithm": "popular"} | keys).protocol_label == label


def test_a_model_is_not_evaluated_on_changed_data(tmp_path: Path) -> None:
    """The same number of users and items, but another item: indices would be wrong."""
    rows = [
        f"{user},{item},{user * 7 + item}" for user in range(20) for item in range(user % 3, 15)
    ]
    table = tmp_path / "likes.csv"
    table.write_text("user_id,item_id,timestamp\n" + "\n".join(rows) + "\n")
    coterie.run("popular", str(table), out=tmp_path / "run")
    reevaluate(tmp_path / "run", {"cutoffs": 5}, SILENT)
    table.write_text(table.read_text().replace("\n3,4,", "\n3,99,"))
    with pytest.raises(RunError, match="has changed since training"):
        reevaluate(tmp_path / "run", {"cutoffs": 5}, SILENT)


def test_a_run_that_stopped_early_can_be_reevaluated(tmp_path: Path) -> None:
    run = coterie.run(
        "bpr", n_users=80, n_items=70, epochs=6, validation=True, patience=2, out=tmp_path / "run"
    )
    again = reevaluate(tmp_path / "run", {"protocol": "loo-99"}, SILENT)
    assert again.result["protocol"] == "loo-99"
    assert run.result["best_round"] <= run.result["rounds"]


def test_test_part_never_selects_the_model(people: Interactions) -> None:
    """A validation file that no split reads must not count as a validation part."""
    with pytest.raises(ConfigError, match="need split=own"):
        coterie.run("bpr", people, patience=2, validation_file="nowhere.csv")
    with pytest.raises(ConfigError, match="no validation part"):
        coterie.run("bpr", people, patience=2)


def test_part_of_a_dataset_is_not_the_dataset() -> None:
    whole = coterie.load("synthetic")
    assert whole.name == "synthetic"
    assert whole.select(whole.users < 100).compact().name == "given"
    assert coterie.load("synthetic", core=2).name == "given"


def test_own_test_file_is_rated_as_the_training_file_is(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text(
        "user_id,item_id,rating\n" + "".join(f"{u},{i},5\n" for u in "ab" for i in "vwx")
    )
    (tmp_path / "test.csv").write_text("user_id,item_id,rating\na,y,5\na,z,1\nb,z,1\n")
    files = {"split": "own", "test_file": str(tmp_path / "test.csv"), "min_rating": 4}
    run = coterie.run("popular", str(tmp_path / "train.csv"), **files)
    assert run.result["tested_users"] == 1
