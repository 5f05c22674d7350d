"""Any selection of runs side by side: the same tests as `coterie compare`."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from coterie.console.comparing import (
    MOST_RUNS,
    compare_runs,
    differing_settings,
    method_labels,
    partial_settings,
)
from coterie.console.folders import Folders
from coterie.errors import ConfigError, RunError
from coterie.experiments import run_folder
from coterie.types import JsonObject


def compared(folder: Path, *names: str) -> JsonObject:
    by_name = {one.name: one for one in Folders.of([folder]).found().values()}
    return compare_runs([by_name[name] for name in names])


def test_seeds_are_one_method_with_a_band(runs: Path) -> None:
    found = compared(runs, "fedavg-1", "fedavg-0", "popular-0", "popular-1")
    assert [(one["label"], one["seeds"]) for one in found["methods"]] == [
        ("fedavg", [0, 1]),
        ("popular", [0, 1]),
    ]
    curve, level = found["figures"][0]["series"]
    lines = [run_folder.read_metrics(runs / f"fedavg-{seed}") for seed in (0, 1)]
    values = np.array([[line["HR@10"] for line in one] for one in lines])
    assert curve["y"] == pytest.approx(values.mean(0))
    assert curve["high"] == pytest.approx(values.mean(0) + values.std(0, ddof=1))
    megabytes = [[(line["bytes_up"] + line["bytes_down"]) / 1e6 for line in one] for one in lines]
    assert curve["xs"]["megabytes"] == pytest.approx(np.mean(megabytes, axis=0))
    assert level["level"]


def test_tests_are_paired_over_users(runs: Path) -> None:
    found = compared(runs, "fedavg-0", "fedavg-1", "popular-0", "popular-1")
    test = next(one for one in found["tested"]["tests"] if one["metric"] == "HR@10")
    tables = {
        name: pd.read_csv(runs / name / "users.csv", index_col=0)["HR@10"]
        for name in ("fedavg-0", "fedavg-1", "popular-0", "popular-1")
    }
    frame = pd.DataFrame(tables).dropna()
    difference = (
        frame[["fedavg-0", "fedavg-1"]].mean(axis=1)
        - frame[["popular-0", "popular-1"]].mean(axis=1)
    ).mean()
    assert test["difference"] == pytest.approx(difference, abs=1e-6)
    assert test["low"] <= test["difference"] <= test["high"]
    assert found["not_tested"] == ""
    assert found["command"].startswith("coterie compare fedavg popular --dataset=synthetic")
    assert "--seeds=2" in found["command"]


def test_methods_without_a_common_seed_are_not_tested(runs: Path) -> None:
    found = compared(runs, "fedavg-0", "popular-1")
    assert "no seed in common (fedavg: 0; popular: 1)" in found["not_tested"]
    assert found["tested"] == {}
    assert len(found["methods"]) == 2
    assert found["command"].startswith("coterie report ")


def test_users_of_links_are_not_read(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs, tmp_path / "runs")
    table = tmp_path / "runs" / "popular-0" / "users.csv"
    table.rename(tmp_path / "users.csv")
    table.symlink_to(tmp_path / "users.csv")
    found = compared(tmp_path / "runs", "fedavg-0", "popular-0")
    assert "no users.csv" in found["not_tested"]


def test_labels_name_what_differs() -> None:
    base = {"algorithm": "fedfast", "seed": 0, "clusters": 5, "rounds": 9}
    labels = method_labels([base, base | {"seed": 1}, base | {"clusters": 20}])
    assert labels == ["fedfast, clusters 5", "fedfast, clusters 5", "fedfast, clusters 20"]
    assert method_labels([base, base | {"algorithm": "fedavg", "rounds": 3}]) == [
        "fedfast",
        "fedavg",
    ]


def test_labels_that_are_cut_short_stay_distinct() -> None:
    base = {"algorithm": "fedfast", "note": "x" * 100}
    labels = method_labels([base | {"a": 1}, base | {"note": "x" * 101}, base | {"a": 1}])
    assert labels[0] == labels[2] != labels[1]
    assert all(len(label) < 70 for label in labels)
    assert "=" not in method_labels([base | {"b": "c=d"}, base])[0]


def test_settings_that_differ() -> None:
    configs = {
        "one": {"seed": 0, "clip": 1, "size": 8, "nodes": 3},
        "other": {"seed": 1, "clip": 2, "size": 8, "nodes": 3},
        "third": {"seed": 1, "clip": 2, "size": 8},
    }
    assert differing_settings(configs) == {"clip": ["1", "2", "2"]}
    assert partial_settings(configs) == {"nodes": ["3", "3", None]}


def test_the_number_of_runs_is_bounded(runs: Path) -> None:
    with pytest.raises(ConfigError, match=f"expected 1 to {MOST_RUNS}"):
        compared(runs)


def test_an_unfinished_run_is_named(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "fedavg-0", tmp_path / "half")
    (tmp_path / "half" / "result.json").unlink()
    with pytest.raises(RunError, match="half has no result; expected a finished run"):
        compared(tmp_path, "half")
