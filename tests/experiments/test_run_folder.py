"""The run folder: plain files, written atomically, no pickle, and a remedy for broken ones."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from every_algorithm import HERE, two_steps

import coterie
from coterie.algorithms.registry import algorithm
from coterie.core.progress import SILENT
from coterie.errors import RunError, UserError
from coterie.experiments import run_folder
from coterie.experiments.config import Experiment
from coterie.experiments.experiment import resume
from coterie.experiments.finished_run import Run
from coterie.experiments.reevaluation import reevaluate
from coterie.federated.federation import Federation
from coterie.models.kinds import kind
from coterie.report.markdown import markdown
from coterie.report.page import page

FILES = {
    "config.yaml",
    ".lock",
    "checkpoint.npz",
    "metrics.jsonl",
    "rounds.jsonl",
    "result.json",
    "users.csv",
    "model.npz",
    "model.json",
    "catalogue.npz",
    "candidates.npz",
    "report.md",
    "report.html",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run of every algorithm."""
    place = tmp_path_factory.mktemp("runs")
    for name in HERE:
        coterie.run(
            name,
            out=place / name,
            n_users=60,
            n_items=90,
            mean_interactions=9,
            seed=2,
            **two_steps(name),
        )
    return place


@pytest.fixture
def broken(runs: Path, tmp_path: Path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(runs / "popular", tmp_path / "broken"))


# ---- files


def of_devices(name: str) -> set[str]:
    """Files of private client state: the model's and the last checkpoint's."""
    of_checkpoint = {"devices-2.npz"} if algorithm(name).state.private else set()
    train = algorithm(name).train
    # Clients compute their part of some models, and so do the devices of the towers.
    computed = isinstance(train, Federation) and train.client_model is not None
    computed |= "tower" in algorithm(name).settings.model_fields
    return of_checkpoint | ({run_folder.DEVICES} if of_checkpoint or computed else set())


@pytest.mark.parametrize("name", HERE)
def test_folder_holds_what_its_description_names_and_no_temporary_file(
    runs: Path, name: str
) -> None:
    prior = {run_folder.PRIOR} if algorithm(name).popularity_prior else set()
    found = {p.name for p in (runs / name).iterdir()}
    assert found - {run_folder.PRIOR} == FILES | of_devices(name)
    assert found & {run_folder.PRIOR} <= prior
    assert all(file in str(run_folder.__doc__) for file in FILES)


def test_full_ranking_has_no_candidates_to_save(tmp_path: Path) -> None:
    coterie.run("popular", out=tmp_path / "r", n_users=60, n_items=90, protocol="full")
    assert {p.name for p in (tmp_path / "r").iterdir()} == FILES - {"candidates.npz"}


@pytest.mark.parametrize("name", HERE)
def test_arrays_need_no_pickle(runs: Path, name: str) -> None:
    for file in ("model.npz", "catalogue.npz", "candidates.npz"):
        with np.load(runs / name / file, allow_pickle=False) as packed:
            assert packed.files
            assert all(packed[key].dtype.kind in "iufbU" for key in packed.files)


def test_ids_and_titles_of_any_script_survive(tmp_path: Path) -> None:
    rows = [
        (user, item, n)
        for user in ("Zoë", "李", "a b")
        for n, item in enumerate(("tea ☕", "x,y", 'q"', "π"))
    ]
    data = coterie.load(pd.DataFrame(rows, columns=["user_id", "item_id", "timestamp"]))
    run = coterie.run("popular", data, out=tmp_path / "r")
    loaded = Run.load(tmp_path / "r")
    for user in ("Zoë", "李", "a b"):
        assert loaded.recommend(user, exclude_seen=False) == run.recommend(user, exclude_seen=False)
        assert {r.item for r in loaded.recommend(user, exclude_seen=False)} == {
            "tea ☕",
            "x,y",
            'q"',
            "π",
        }
    assert set(pd.read_csv(tmp_path / "r" / "users.csv")["user_id"]) == {"Zoë", "李", "a b"}


def arrays_of(file: Path) -> dict[str, np.ndarray]:
    with np.load(file) as packed:
        return dict(packed)


@pytest.mark.parametrize("name", HERE)
def test_model_file_says_what_its_arrays_are(runs: Path, name: str) -> None:
    about = json.loads((runs / name / "model.json").read_text())
    arrays = arrays_of(runs / name / "model.npz")
    assert not set(kind(about["kind"]).private) & set(arrays)
    if kind(about["kind"]).private:
        arrays |= arrays_of(runs / name / run_folder.DEVICES)
    assert about["shapes"] == {key: list(array.shape) for key, array in arrays.items()}
    trained = kind(about["kind"]).trained
    assert about["parameters"] == sum(
        a.size for k, a in arrays.items() if trained is None or k in trained
    )
    assert (
        json.loads((runs / name / "result.json").read_text())["parameters"] == about["parameters"]
    )


@pytest.mark.parametrize("name", HERE)
def test_means_of_the_table_per_user_are_the_result(runs: Path, name: str) -> None:
    result = json.loads((runs / name / "result.json").read_text())
    users = pd.read_csv(runs / name / "users.csv")
    assert len(users) == result["tested_users"]
    assert users["user_id"].is_unique
    for metric, value in result["metrics"].items():
        assert users[metric].mean() == pytest.approx(value, abs=1e-5)
        assert users[f"full:{metric}"].mean() == pytest.approx(result["full"][metric], abs=1e-5)


def test_config_holds_every_setting(runs: Path) -> None:
    flat = yaml.safe_load((runs / "gmf" / "config.yaml").read_text())
    expected = Experiment.of(
        {
            "algorithm": "gmf",
            "n_users": 60,
            "n_items": 90,
            "mean_interactions": 9,
            "seed": 2,
            "epochs": 2,
        }
    )
    assert flat == expected.flat()


def test_saved_candidates_are_the_ranked_ones(runs: Path) -> None:
    """Recompute HR@10 from the saved candidates and the saved model, with nothing but the files."""
    run = Run.load(runs / "popular")
    held = run_folder.read_candidates(runs / "popular")
    counts = run.model.arrays()["counts"]
    hits = []
    for items, relevant in zip(held.items, held.relevant, strict=True):
        assert relevant == 1
        wanted = counts[items[0]]
        others = counts[items[1:][items[1:] >= 0]]
        above = (others > wanted).sum()
        tied = (others == wanted).sum() + 1
        # All orders of tied items are equally likely.
        hits.append(min(max(10 - above, 0), tied) / tied)
    assert np.mean(hits) == pytest.approx(run.metrics["HR@10"], abs=1e-9)


# ---- writing


def test_write_replaces_the_whole_file_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    run_folder.write_text(tmp_path, "a.md", "long " * 100)
    run_folder.write_text(tmp_path, "a.md", "short é")
    assert (tmp_path / "a.md").read_bytes() == "short é".encode()
    assert [p.name for p in tmp_path.iterdir()] == ["a.md"]


def test_write_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "a.md").mkdir()  # cannot be replaced by a file
    with pytest.raises((OSError, UserError)):
        run_folder.write_text(tmp_path, "a.md", "text")
    assert [p.name for p in tmp_path.iterdir()] == ["a.md"]


def test_infinity_never_reaches_a_file(tmp_path: Path) -> None:
    bad = {"HR@10": float("nan")}
    for write, what in ((run_folder.write_result, bad), (run_folder.write_metrics, [bad])):
        with pytest.raises(ValueError, match="JSON"):
            write(tmp_path, what)
    assert not list(tmp_path.iterdir())


def test_result_is_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that fails while saving has no result, and the error names the remedy."""

    def fails(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(run_folder, "write_users", fails)
    with pytest.raises(OSError, match="disk full"):
        coterie.run("popular", out=tmp_path / "r", n_users=60, n_items=90)
    assert (tmp_path / "r" / "config.yaml").exists()
    with pytest.raises(RunError, match=r"has no result\.json.*coterie resume .*/r"):
        Run.load(tmp_path / "r")


# ---- names of folders


def test_free_name_counts_up_and_fills_no_gap_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = [run_folder.new_folder(None, "gmf-x").name for _ in range(3)]
    assert names == ["gmf-x-1", "gmf-x-2", "gmf-x-3"]
    (tmp_path / "runs" / "gmf-x-2").rmdir()
    assert run_folder.new_folder(None, "gmf-x").name == "gmf-x-2"
    assert run_folder.new_folder(None, "gmf-y").name == "gmf-y-1"


def test_empty_folder_may_be_used_and_a_full_one_not(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert run_folder.new_folder(tmp_path / "empty", "x") == tmp_path / "empty"
    assert run_folder.new_folder(tmp_path / "a" / "b" / "c", "x").is_dir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for occupied in (tmp_path / "full", tmp_path / "full" / "file"):
        with pytest.raises(RunError, match=f"{occupied} exists.*Choose another --out"):
            run_folder.new_folder(occupied, "x")


def test_runs_that_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").touch()
    with pytest.raises(RunError, match="--out"):
        run_folder.new_folder(None, "x")


# ---- broken files


def swap(name: str, other: str) -> Callable[[Path], object]:
    return lambda folder: shutil.copy(folder / other, folder / name)


def put(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


def cut(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-40])


def pickled(name: str) -> Callable[[Path], object]:
    return lambda folder: np.savez(folder / name, counts=np.array([{}], dtype=object))


DAMAGE = {
    "model.npz cut short": cut("model.npz"),
    "model.npz empty": put("model.npz", b""),
    "model.npz no archive": put("model.npz", b"junk"),
    "model.npz with pickle": pickled("model.npz"),
    "model.npz of something else": swap("model.npz", "candidates.npz"),
    "catalogue.npz cut short": cut("catalogue.npz"),
    "catalogue.npz of something else": swap("catalogue.npz", "candidates.npz"),
    "model.json cut short": cut("model.json"),
    "model.json a list": put("model.json", b"[]"),
    "model.json without a kind": put("model.json", b"{}"),
    "model.json not text": put("model.json", b"\xff\xfe"),
    "model.json of a kind unknown": put("model.json", b'{"kind": "oracle"}'),
    "result.json cut short": cut("result.json"),
    "result.json a list": put("result.json", b"[]"),
    "result.json of something else": put("result.json", b"{}"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_broken_file_is_named_with_a_remedy(broken: Path, damage: str) -> None:
    DAMAGE[damage](broken)
    with pytest.raises(RunError) as caught:
        Run.load(broken)
    line = str(caught.value)
    assert str(broken) in line
    assert damage.split()[0] in line
    assert f"coterie run {broken}/config.yaml" in line
    assert "\n" not in line


@pytest.mark.parametrize("name", ["result.json", "model.json", "model.npz", "catalogue.npz"])
def test_missing_file_is_named_with_a_remedy(broken: Path, name: str) -> None:
    (broken / name).unlink()
    remedy = r"coterie resume .*broken" if name == "result.json" else r"coterie run .*config\.yaml"
    with pytest.raises(RunError, match=rf"has no {name}.*{remedy}"):
        Run.load(broken)


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"nowhere is not a run folder.*coterie run"):
        Run.load(tmp_path / "nowhere")


def test_a_model_loads_without_measurements(broken: Path) -> None:
    (broken / "metrics.jsonl").unlink()
    run = Run.load(broken)
    assert run.curve == []
    assert len(run.recommend(1, 3)) == 3


# ---- run folders of earlier development versions


@pytest.fixture(scope="module")
def old_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run whose config has a key of an earlier development version."""
    folder = tmp_path_factory.mktemp("old") / "run"
    coterie.run(
        "fedfast", out=folder, n_users=60, n_items=90, mean_interactions=9, **two_steps("fedfast")
    )
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("secure_aggregation:", "protect:"))
    assert "protect: none" in config.read_text()
    return folder


def assert_names_the_old_setting(caught: pytest.ExceptionInfo[RunError], folder: Path) -> None:
    assert str(caught.value) == (
        f"{folder}/config.yaml uses the setting 'protect' of an earlier development version; "
        "expected 'secure_aggregation'. Run the experiment again, or rename the key."
    )


def test_results_of_an_old_run_load(old_run: Path) -> None:
    run = Run.load(old_run)
    assert len(run.recommend(1, 3)) == 3
    assert "fedfast" in page([run])
    assert "fedfast" in markdown([run])
    assert resume(old_run).metrics == run.metrics, "a finished run is loaded"


def test_an_old_run_is_not_reevaluated(old_run: Path) -> None:
    with pytest.raises(RunError) as caught:
        reevaluate(old_run, {}, SILENT)
    assert_names_the_old_setting(caught, old_run)


def test_an_old_run_is_not_resumed(old_run: Path, tmp_path: Path) -> None:
    """Once the key is renamed, the checkpoint decides."""
    folder = Path(shutil.copytree(old_run, tmp_path / "unfinished"))
    (folder / "result.json").unlink()
    with pytest.raises(RunError) as caught:
        resume(folder)
    assert_names_the_old_setting(caught, folder)
    assert len(Run.peek(folder).recommend(1, 3)) == 3, "the last checkpoint still serves"
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("protect:", "secure_aggregation:"))
    assert resume(folder).metrics == Run.load(old_run).metrics
