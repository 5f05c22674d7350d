"""Runs beside a run: the comparable centralised ones, whatever else stands there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import coterie
from coterie.experiments import neighbours
from coterie.experiments.neighbours import centralised_beside
from coterie.types import JsonObject

SMALL: dict[str, Any] = {"n_users": 60, "n_items": 90, "mean_interactions": 9}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> JsonObject:
    return coterie.run("popular", **SMALL).result


def write(folder: Path, result: JsonObject) -> Path:
    folder.mkdir()
    (folder / "result.json").write_text(json.dumps(result))
    return folder


def test_comparable_centralised_runs_are_found(tmp_path: Path, result: JsonObject) -> None:
    own = write(tmp_path / "own", result)
    write(tmp_path / "als-1", result | {"algorithm": "als"})
    write(tmp_path / "federated", result | {"algorithm": "fedavg", "bytes_down": 5})
    for key in ("data", "protocol", "dataset"):
        write(tmp_path / f"other-{key}", result | {key: "another"})
    write(tmp_path / "filtered", result | {"filters": {"core": 5}})
    found = centralised_beside(own, result)
    assert [one.folder for one in found.runs] == ["als-1"]
    assert found.n_unread == 0


def test_a_run_named_by_a_link_or_a_relative_path_is_not_beside_itself(
    tmp_path: Path, result: JsonObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "own", result)
    monkeypatch.chdir(tmp_path / "own")
    assert centralised_beside(Path(), result) == ([], 0)


def test_broken_neighbours_are_left_out(tmp_path: Path, result: JsonObject) -> None:
    own = write(tmp_path / "own", result)
    for name, text in {"empty": "", "list": "[]", "deep": 100_000 * "[", "bytes": "\udcff"}.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "result.json").write_text(text, errors="surrogateescape")
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder" / "result.json").mkdir(parents=True)
    write(tmp_path / "lacking", {"algorithm": "als"})
    odd = {"HR@10": "high", "NDCG@10": float("nan"), "MRR@10": 0.25}
    write(tmp_path / "odd", result | {"metrics": odd, "full": {"IC@10": None}})
    (found,) = centralised_beside(own, result).runs
    assert found.folder == "odd"
    assert found.result["metrics"] == {"MRR@10": 0.25}
    assert found.result["full"] == {}


def test_at_most_so_many_folders_are_read(
    tmp_path: Path, result: JsonObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        write(tmp_path / f"run-{number}", result)
    monkeypatch.setattr(neighbours, "MOST_FOLDERS", 3)
    found = centralised_beside(tmp_path / "run-4", result)
    assert [one.folder for one in found.runs] == ["run-0", "run-1", "run-2"]
    assert found.n_unread == 1
