"""What a run saves on request, and the name of its data after resuming."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pandas as pd
import pytest

from coterie import Run, api
from coterie.errors import ConfigError
from coterie.experiments import experiment

SMALL = {"n_users": 60, "n_items": 40, "mean_interactions": 9}


def parts_of(folder: Path) -> dict[str, pd.DataFrame]:
    return {path.stem: pd.read_csv(path) for path in sorted((folder / "split").iterdir())}


def test_lists_and_parts_are_saved_for_their_owner_alone(tmp_path: Path) -> None:
    settings = SMALL | {"save": "recommendations,split", "validation": True, "cutoffs": (5, 12)}
    run = api.run("popular", out=tmp_path / "r", **settings)
    folder = tmp_path / "r"
    lists = pd.read_csv(folder / "recommendations.csv")
    pd.testing.assert_frame_equal(lists, run.recommend_all(12), check_dtype=False)
    parts = parts_of(folder)
    assert set(parts) == {"train", "validation", "test"}
    everything = api.load("synthetic", **SMALL).to_frame()
    columns = ["user_id", "item_id", "timestamp"]
    together = pd.concat(parts.values()).sort_values(columns)[columns]
    wanted = everything.sort_values(columns)[columns]
    assert together.to_numpy().tolist() == wanted.to_numpy().tolist()
    seen = dict(zip(run.catalogue.user_ids, run.catalogue.seen.counts, strict=True))
    kept = pd.concat([parts["train"], parts["validation"]]).groupby("user_id").size()
    assert kept.to_dict() == seen
    for path in (folder / "recommendations.csv", *(folder / "split").iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_saved_parts_give_the_same_figures_again(tmp_path: Path) -> None:
    first = api.run("popular", out=tmp_path / "r", save=["split"], protocol="full", **SMALL)
    assert not (tmp_path / "r" / "recommendations.csv").exists()
    split = tmp_path / "r" / "split"
    test_file = str(split / "test.csv")
    again = api.run("popular", split / "train.csv", split="own", test_file=test_file)
    # Items that are in the test part alone are unknown to the second run, and change IC and Gini.
    assert again.metrics["NDCG@10"] == pytest.approx(first.metrics["NDCG@10"], rel=0.02)


def test_without_a_request_nothing_is_saved(tmp_path: Path) -> None:
    api.run("popular", out=tmp_path / "r", **SMALL)
    names = {path.name for path in (tmp_path / "r").iterdir()}
    assert not names & {"recommendations.csv", "split"}


def test_saving_needs_a_folder_and_a_known_word(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'save' is 'split', but the run has no folder"):
        api.run("popular", save="split", **SMALL)
    with pytest.raises(ConfigError, match=r"'save' is 'lists'; .*'recommendations' or 'split'"):
        api.run("popular", out=tmp_path / "r", save="lists", **SMALL)


@pytest.fixture
def on_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file of interactions, and the run on its relative path."""
    monkeypatch.chdir(tmp_path)
    api.load("synthetic", **SMALL).to_frame().to_csv("likes.csv", index=False)
    api.run("fedavg", "likes.csv", out="r", rounds=2, save="recommendations")
    return tmp_path / "r"


def test_a_resumed_run_keeps_the_name_of_its_data(on_a_file: Path, monkeypatch) -> None:
    """Resumed from another folder, it has the same result, and saves the same lists."""
    before = json.loads((on_a_file / "result.json").read_text())
    lists = (on_a_file / "recommendations.csv").read_text()
    assert before["dataset"] == "likes.csv"
    (on_a_file / "result.json").unlink()
    (on_a_file / "recommendations.csv").unlink()
    monkeypatch.chdir("/")
    assert Run.peek(on_a_file).result["dataset"] == "likes.csv"
    resumed = experiment.resume(on_a_file)
    assert resumed.result["dataset"] == "likes.csv"
    assert resumed.metrics == before["metrics"]
    assert (on_a_file / "recommendations.csv").read_text() == lists


def test_data_from_python_can_have_a_name() -> None:
    frame = api.load("synthetic", **SMALL).to_frame()
    assert api.run("popular", frame, dataset_name="books").result["dataset"] == "books"
