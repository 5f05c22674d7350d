"""Plans: cells are run once, every dependency makes another cell, interrupted plans continue."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coterie
from coterie.core.progress import Advance, Progress
from coterie.errors import ConfigError, Interrupted, LeakError, RunError, UnknownName
from coterie.experiments import cell_cache, plan_runner, preparation
from coterie.experiments.cell_cache import CellResult
from coterie.experiments.plan import Method, Plan, cells
from coterie.experiments.plan_progress import EVALUATION, RunTimes
from coterie.experiments.plan_runner import run_plan

DATA = {"n_users": 60, "n_items": 90, "mean_interactions": 9}
SMALL = {**DATA, "epochs": 3}
PACKAGE = Path(coterie.__file__).parent


class Recorder(Progress):
    """Records the log, how far each bar went, and the cells that began to train."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.bars: list[list[float]] = []
        self.began: list[str] = []

    def log(self, text: str) -> None:
        self.lines.append(text)

    @contextmanager
    def task(self, label: str, total: float | None) -> Iterator[Advance]:
        bar = [total or 0, 0.0]
        self.bars.append(bar)

        def advance(steps: float = 1, note: str = "") -> None:
            bar[1] += steps
            if ": Training" in note:
                self.began.append(note.split(":")[0])

        yield advance


class Stopper(Recorder):
    """Stops the work in the middle of the n-th training."""

    def __init__(self, nth: int, stop: Callable[[], None]) -> None:
        super().__init__()
        self.nth = nth
        self.stop = stop

    @contextmanager
    def task(self, label: str, total: float | None) -> Iterator[Advance]:
        with super().task(label, total) as advance:

            def watched(steps: float = 1, note: str = "") -> None:
                advance(steps, note)
                # A fraction of 1 is a step of training.
                if len(self.began) == self.nth and 0 < steps < 1:
                    self.stop()

            yield watched


def interrupt() -> None:
    raise KeyboardInterrupt


def small(*methods: Any, seeds: tuple[int, ...] = (0, 1), **changes: Any) -> Plan:
    methods = methods or ("popular", "bpr")
    return Plan(
        ("synthetic",), methods, (DATA if methods == ("popular",) else SMALL) | changes, seeds
    )


def begun(declared: Plan, folder: Path) -> list[str]:
    """The cells that had to be run."""
    progress = Recorder()
    run_plan(declared, folder, progress)
    return progress.began


# ---- the cells of a plan


def test_a_plan_is_datasets_by_seeds_by_methods(tmp_path: Path) -> None:
    (tmp_path / "likes.csv").write_text("user_id,item_id\na,1\n")
    file = str(tmp_path / "likes.csv")
    found = cells(
        Plan(
            ("synthetic", file), ("popular", ("wide", "gmf", {"embedding_size": 64})), seeds=(3, 5)
        )
    )
    assert [
        (c.experiment.choice.dataset, c.experiment.choice.seed, c.method.label) for c in found
    ] == [
        (dataset, seed, label)
        for dataset in ("synthetic", file)
        for seed in (3, 5)
        for label in ("popular", "wide")
    ]
    choices = [cell.experiment.choice for cell in found]
    assert {choice.protocol for choice in choices if choice.dataset == file} == {"full"}
    assert all(
        c.experiment.settings.embedding_size == 64 for c in found if c.method.label == "wide"
    )


def test_settings_reach_the_methods_that_have_them_and_own_ones_win() -> None:
    declared = Plan(
        ("synthetic",),
        ("popular", "bpr", ("few", "gmf", {"epochs": 2})),
        {"epochs": 9, "candidates": 20},
    )
    popular, bpr, few = cells(declared)
    assert "epochs" not in popular.experiment.flat()
    assert (bpr.experiment.flat()["epochs"], few.experiment.flat()["epochs"]) == (9, 2)
    assert {cell.experiment.protocol.candidates for cell in (popular, bpr, few)} == {20}


@settings(deadline=None, max_examples=25)
@given(
    st.sets(st.sampled_from(["popular", "random", "bpr", "gmf", "als"]), min_size=1),
    st.sets(st.integers(0, 2**63 - 1), min_size=1, max_size=3),
    st.sampled_from([None, "loo-50", "full", "holdout"]),
)
def test_every_cell_has_a_name_of_its_own(
    methods: set[str], seeds: set[int], protocol: str | None
) -> None:
    declared = Plan(("synthetic",), tuple(methods), DATA | {"core": 1}, tuple(seeds), protocol)
    found = cells(declared)
    names = {cell_cache.folder_name(cell, "some data") for cell in found}
    assert len(names) == len(found) == len(methods) * len(seeds)
    assert names.isdisjoint(cell_cache.folder_name(cell, "other data") for cell in found)
    assert names == {cell_cache.folder_name(cell, "some data") for cell in cells(declared)}


IMPOSSIBLE = [
    (small("popular", "popular"), r"method 'popular' is given more than once.*LABEL=NAME"),
    (small(seeds=(1, 1)), r"seed 1 is given more than once"),
    (small(seeds=()), r"the plan has no seed; expected at least one"),
    (Plan(("synthetic",), ()), r"the plan has no method"),
    (Plan((), ("gmf",)), r"the plan has no dataset"),
    (
        small("popular", learning_rate=1),
        r"unknown setting 'learning_rate' \(value 1\): no compared method has it",
    ),
    (small("bpr", lerning_rate=1), r"Did you mean 'learning_rate'\?"),
    (small("bpr", seed=4), r"setting 'seed' is 4.*--seeds"),
    (small("bpr", protocol="full"), r"setting 'protocol' is 'full'.*--protocol"),
    (small(("b", "bpr", {"dataset": "x"})), r"setting 'dataset' is 'x'.*--dataset"),
    (small(("mine", "bpr", {"clusters": 4})), r"mine: unknown setting 'clusters'"),
    (small("bpr", "gmf", embedding_size=0), r"bpr: setting 'embedding_size' is 0"),
]


@pytest.mark.parametrize(
    ("declared", "complaint"), IMPOSSIBLE, ids=[complaint[:30] for _, complaint in IMPOSSIBLE]
)
def test_an_impossible_plan_is_refused_before_anything_is_loaded(
    declared: Plan, complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        cells(declared)


def test_an_unknown_algorithm_gets_a_suggestion() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'gmf'"):
        cells(small("gmff"))


# ---- a finished cell


def test_a_cell_holds_what_the_run_alone_gives_and_no_model(tmp_path: Path) -> None:
    (finished,) = run_plan(small("bpr", seeds=(4,)), tmp_path)
    run = coterie.run("bpr", seed=4, **SMALL)
    assert (finished.result["metrics"], finished.result["full"]) == (run.metrics, run.full)
    assert [line["HR@10"] for line in finished.curve] == [line["HR@10"] for line in run.curve]
    assert run.evaluation is not None
    users = finished.users()
    assert list(users.index) == [str(run.catalogue.user_ids[u]) for u in run.evaluation.users]
    for name, values in run.evaluation.table.items():
        assert users[name].tolist() == pytest.approx(values, abs=1e-6)
    assert {p.name for p in finished.folder.iterdir()} - {".lock"} == {
        "cell.json",
        "metrics.jsonl",
        "result.json",
        "users.csv",
    }


def test_users_keep_their_ids_whatever_they_are(tmp_path: Path) -> None:
    users = ["007", "7", "NA", "nan", "", "a,b"][:4]
    rows = [f'"{u}",{i},{n * 9 + i}' for n, u in enumerate(users) for i in range(5)]
    (tmp_path / "likes.csv").write_text("user_id,item_id,timestamp\n" + "\n".join(rows) + "\n")
    (finished,) = run_plan(Plan((str(tmp_path / "likes.csv"),), ("popular",)), tmp_path / "cells")
    assert sorted(finished.users().index) == sorted(users)


# ---- run once


def test_cells_are_run_once(tmp_path: Path) -> None:
    first = run_plan(small(), tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")}
    progress = Recorder()
    again = run_plan(small(), tmp_path, progress)
    assert progress.began == []
    assert progress.lines == ["4 of 4 runs are already finished"]
    assert [(o.cell.name, o.result, o.curve) for o in again] == [
        (o.cell.name, o.result, o.curve) for o in first
    ]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")} == before


def test_a_larger_plan_runs_what_is_new(tmp_path: Path) -> None:
    run_plan(small(), tmp_path)
    assert begun(small("popular", "random", "bpr", seeds=(1, 2)), tmp_path) == [
        "random on synthetic, seed 1",
        "popular on synthetic, seed 2",
        "random on synthetic, seed 2",
        "bpr on synthetic, seed 2",
    ]


def test_a_label_is_only_a_label(tmp_path: Path) -> None:
    """Another name for the same settings, also twice in one plan, is the same cell."""
    run_plan(small("bpr"), tmp_path)
    progress = Recorder()
    results = run_plan(small(("one", "bpr", {}), ("two", "bpr", {"epochs": 3})), tmp_path, progress)
    assert progress.began == []
    assert [o.cell.method.label for o in results] == ["one", "two", "one", "two"]


@pytest.mark.parametrize(
    "change", [{"epochs": 4}, {"reg_bias": 0.5}, {"data_seed": 9}, {"cutoffs": 5}]
)
def test_another_setting_is_another_cell(tmp_path: Path, change: dict[str, Any]) -> None:
    run_plan(small("bpr", seeds=(0,)), tmp_path)
    assert begun(small("bpr", seeds=(0,), **change), tmp_path) == ["bpr on synthetic, seed 0"]
    assert begun(small("bpr", seeds=(0,)), tmp_path) == [], "the first one is still there"


def write_likes(path: Path, extra: str = "") -> str:
    rows = [f"u{u},i{(u * 3 + i) % 11},{u * 100 + i}" for u in range(9) for i in range(6)]
    path.write_text("\n".join(["user_id,item_id,timestamp", *rows]) + "\n" + extra)
    return str(path)


def test_other_data_under_the_same_name_is_another_cell(tmp_path: Path) -> None:
    declared = Plan((write_likes(tmp_path / "likes.csv"),), ("popular",))
    assert len(begun(declared, tmp_path / "cells")) == 1
    assert begun(declared, tmp_path / "cells") == []
    write_likes(tmp_path / "likes.csv", "u0,i10,999\n")
    assert len(begun(declared, tmp_path / "cells")) == 1


def test_a_changed_test_file_is_another_cell(tmp_path: Path) -> None:
    """A setting names the file; what is in it counts."""
    train = write_likes(tmp_path / "train.csv")
    held = tmp_path / "test.csv"
    held.write_text("user_id,item_id,timestamp\nu0,i9,9999\nu1,i1,9999\n")
    declared = Plan((train,), ("popular",), {"split": "own", "test_file": str(held)})
    (first,) = run_plan(declared, tmp_path / "cells")
    held.write_text("user_id,item_id,timestamp\nu0,i8,9999\nu1,i1,9999\nu2,i2,9999\n")
    (second,) = run_plan(declared, tmp_path / "cells")
    assert (first.result["tested_users"], second.result["tested_users"]) == (2, 3)


def test_weights_reused_from_a_run_that_changed_make_another_cell(tmp_path: Path) -> None:
    declared = small("bpr", seeds=(0,), start_from=str(tmp_path / "earlier"))
    names = []
    for epochs in (1, 2):
        shutil.rmtree(tmp_path / "earlier", ignore_errors=True)
        coterie.run("bpr", out=tmp_path / "earlier", epochs=epochs, **DATA)
        names += [o.folder.name for o in run_plan(declared, tmp_path / "cells")]
    assert names[0] != names[1]


def test_other_code_is_another_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_plan(small("popular", seeds=(0,)), tmp_path)
    edited = cell_cache.code_version("popular") | {"source": "edited"}
    monkeypatch.setattr(cell_cache, "code_version", lambda name: edited)
    assert begun(small("popular", seeds=(0,)), tmp_path) == ["popular on synthetic, seed 0"]


def test_a_cell_that_cannot_be_read_is_run_again(tmp_path: Path) -> None:
    (finished,) = run_plan(small("popular", seeds=(0,)), tmp_path)
    (finished.folder / "result.json").write_text('{"algorithm": "pop')
    assert begun(small("popular", seeds=(0,)), tmp_path) == ["popular on synthetic, seed 0"]
    assert (
        json.loads((finished.folder / "result.json").read_text())["metrics"]
        == finished.result["metrics"]
    )


def test_data_is_loaded_once_for_every_set_of_filters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    load = preparation.load_data

    def counted(wanted: Any, progress: Progress) -> Any:
        loaded.append(wanted.choice.dataset)
        return load(wanted, progress)

    monkeypatch.setattr(preparation, "load_data", counted)
    file = write_likes(tmp_path / "likes.csv")
    run_plan(
        Plan((file,), ("popular", "random", ("core", "popular", {"core": 2})), seeds=(0, 1)),
        tmp_path / "cells",
    )
    assert loaded == [file, file], "as it is, and its core"


# ---- interrupted


def test_an_interrupted_plan_goes_on(tmp_path: Path) -> None:
    # Six cells; the fifth, BPR with seed 1, is interrupted while it trains.
    declared = small("popular", "bpr", "gmf")
    progress = Stopper(5, interrupt)
    with pytest.raises(
        Interrupted, match=r"4 of 6 runs are finished and saved\. Continue with the same command"
    ):
        run_plan(declared, tmp_path, progress)
    assert progress.began[-1] == "bpr on synthetic, seed 1"
    progress = Recorder()
    results = run_plan(declared, tmp_path, progress)
    assert progress.lines == ["4 of 6 runs are already finished"]
    assert progress.began == ["bpr on synthetic, seed 1", "gmf on synthetic, seed 1"]
    assert [o.result["metrics"] for o in results] == [
        coterie.run(name, seed=seed, **({} if name == "popular" else {"epochs": 3}), **DATA).metrics
        for seed in (0, 1)
        for name in ("popular", "bpr", "gmf")
    ]


ALONE = f"""
import json, os, signal, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_plan import Recorder, Stopper, cell_cache, run_plan, small
folder, nth, code = Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
cell_cache.code_version = code.get  # sources may be edited while the tests run
watch = Stopper(nth, lambda: os.kill(os.getpid(), signal.SIGKILL)) if nth else Recorder()
run_plan(small("popular", "bpr", "gmf"), folder, watch)
print(*watch.began, sep=";")
"""


def only_node(folder: Path, nth: int = 0) -> subprocess.Popen[str]:
    """The same plan in another process, which is killed in the n-th training if n is not 0."""
    code = json.dumps({name: cell_cache.code_version(name) for name in ("popular", "bpr", "gmf")})
    command = [sys.executable, "-c", ALONE, str(folder), str(nth), code]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_killed_process_leaves_what_it_finished_and_nothing_half_done(tmp_path: Path) -> None:
    process = only_node(tmp_path, 5)  # BPR with seed 1
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, err
    finished = [path.parent for path in tmp_path.rglob("result.json")]
    assert len(finished) == 4
    assert all(
        (folder / "cell.json").exists() and (folder / "users.csv").exists() for folder in finished
    )
    assert begun(small("popular", "bpr", "gmf"), tmp_path) == [
        "bpr on synthetic, seed 1",
        "gmf on synthetic, seed 1",
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no locks of this kind")
def test_processes_share_a_plan_without_doing_anything_twice(tmp_path: Path) -> None:
    processes = [only_node(tmp_path) for _ in range(2)]
    answers = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], answers
    done = [name for out, _ in answers for name in out.strip().split(";") if name]
    assert sorted(done) == sorted(
        f"{name} on synthetic, seed {seed}" for name in ("popular", "bpr", "gmf") for seed in (0, 1)
    )
    assert len(list(tmp_path.rglob("result.json"))) == 6


@pytest.mark.skipif(sys.platform == "win32", reason="there are no locks of this kind")
def test_a_cell_that_another_process_runs_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process locks a cell and finishes it; its result is used."""
    (theirs,) = run_plan(small("popular", seeds=(0,)), tmp_path / "theirs")
    place = tmp_path / "ours" / theirs.folder.name
    place.mkdir(parents=True)
    held = cell_cache.run_folder.locked(place)
    held.__enter__()

    def meanwhile(_: float) -> None:
        shutil.copytree(theirs.folder, place, dirs_exist_ok=True)
        held.__exit__(None, None, None)

    monkeypatch.setattr(plan_runner.time, "sleep", meanwhile)
    progress = Recorder()
    results = run_plan(small("popular", "bpr", seeds=(0,)), tmp_path / "ours", progress)
    assert progress.began == ["bpr on synthetic, seed 0"]
    assert results[0].result == theirs.result


@pytest.mark.slow
def test_worker_processes_share_the_cells(tmp_path: Path) -> None:
    declared = small("popular", "bpr", "gmf", seeds=(0, 1))
    alone = run_plan(declared, tmp_path / "alone")
    shared = run_plan(declared, tmp_path / "shared", workers=3)
    assert [o.result["metrics"] for o in shared] == [o.result["metrics"] for o in alone]
    assert len(list((tmp_path / "shared").rglob("result.json"))) == 6


def test_no_workers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"workers is 0; expected at least 1 process. .* --workers"
    ):
        run_plan(small("popular"), tmp_path, workers=0)


# ---- progress


def test_progress_is_over_the_whole_plan(tmp_path: Path) -> None:
    run_plan(small("popular"), tmp_path)
    progress = Recorder()
    early = (
        "early",
        "gmf",
        {"validation": True, "patience": 1, "epochs": 500, "learning_rate": 0.1},
    )
    results = run_plan(small("popular", "bpr", early), tmp_path, progress)
    assert all(o.result["rounds"] < 500 for o in results), "one method stops before its end"
    assert [(total, pytest.approx(done)) for total, done in progress.bars if total] == [(4, 4)], (
        "finished cells are not counted"
    )


def test_within_a_run_the_bar_moves_with_training_and_evaluation(tmp_path: Path) -> None:
    steps: list[tuple[float, str]] = []

    class Fine(Progress):
        @contextmanager
        def task(self, label: str, total: float | None) -> Iterator[Advance]:
            yield lambda n=1, note="": steps.append((n, note))

    run_plan(small("bpr", seeds=(0,), epochs=10), tmp_path, Fine())
    begins = next(n for n, (_, note) in enumerate(steps) if note.endswith(": Evaluating"))
    training = [step for step, _ in steps[:begins] if step > 1e-9]
    assert training == pytest.approx([(1 - EVALUATION) / 10] * 10)
    assert sum(step for step, _ in steps[begins:]) == pytest.approx(EVALUATION)
    assert [step for step, _ in steps[begins:] if step > 1e-9], "the evaluation moves the bar"


def test_the_time_left_is_known_once_every_method_has_a_finished_run(tmp_path: Path) -> None:
    took = {"popular": 2.0, "bpr": 7.0}
    popular, bpr, *others = (
        replace(run, result={"seconds": took[run.cell.method.label], "evaluation_seconds": 3.0})
        for run in run_plan(small("popular", "bpr"), tmp_path)
    )
    waiting = {run.folder: run.cell for run in others}
    times = RunTimes()
    times.add(popular)
    assert times.left(waiting) is None, "no run of bpr has finished"
    times.add(bpr)
    assert times.left(waiting) == pytest.approx(15)
    times.begin(others[1].cell)
    assert times.left(waiting) == pytest.approx(15, abs=1)
    shared = RunTimes(workers=2)
    shared.add(popular)
    shared.add(bpr)
    assert shared.left(waiting) == pytest.approx(7.5)


def test_the_share_of_the_evaluation_is_that_of_finished_runs(tmp_path: Path) -> None:
    (run,) = run_plan(small("popular", seeds=(0,)), tmp_path)
    times = RunTimes()
    assert times.evaluation_share(run.cell) == EVALUATION
    seconds = {"seconds": 1.0, "curve_seconds": 2.0, "evaluation_seconds": 9.0}
    times.add(replace(run, result=run.result | seconds))
    assert times.evaluation_share(run.cell) == 0.75


# ---- errors


def test_divergence_is_a_result_and_is_cached(tmp_path: Path) -> None:
    declared = small("popular", ("wild", "gmf", {"learning_rate": 1e30}), seeds=(0,))
    popular, wild = run_plan(declared, tmp_path)
    assert popular.diverged is None
    assert str(wild.diverged).startswith("training diverged at round 1")
    assert begun(declared, tmp_path) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"file.* cannot be written .*--cells"):
        run_plan(small("popular"), tmp_path / "file")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    held = {"split": "own", "test_file": str(tmp_path / "none.csv")}
    with pytest.raises(ConfigError, match=r"none\.csv cannot be read"):
        run_plan(Plan((write_likes(tmp_path / "a.csv"),), ("popular",), held), tmp_path / "cells")


def test_a_leak_stops_the_plan(tmp_path: Path) -> None:
    train = write_likes(tmp_path / "train.csv")
    declared = Plan((train,), ("popular",), {"split": "own", "test_file": train})
    with pytest.raises(LeakError):
        run_plan(declared, tmp_path / "cells")


# ---- evaluated on validation


def on_validation(*methods: Any, **changes: Any) -> list[CellResult]:
    folder = changes.pop("folder")
    declared = Plan(
        ("synthetic",), methods, SMALL | {"validation": True} | changes, part="validation"
    )
    return run_plan(declared, folder)


@pytest.mark.parametrize("patience", [0, 99])
def test_on_validation_the_best_counts_with_patience_and_the_last_without(
    tmp_path: Path, patience: int
) -> None:
    changes = {"epochs": 10, "evaluate_every": 2, "learning_rate": 0.2, "patience": patience}
    (finished,) = on_validation("bpr", folder=tmp_path, **changes)
    values = [line["HR@10"] for line in finished.curve]
    assert {line["part"] for line in finished.curve} == {"validation"}
    best = values.index(max(values))
    assert best < len(values) - 1, "the best is not the last, so the case distinguishes them"
    counts = finished.curve[best if patience else -1]
    assert (finished.result["metric"], finished.result["value"]) == ("HR@10", counts["HR@10"])
    assert finished.result["best_round"] == counts["round"]
    assert not {"metrics", "full"} & finished.result.keys()
    assert not (finished.folder / "users.csv").exists()


def test_evaluation_on_another_part_is_another_cell(tmp_path: Path) -> None:
    on_validation("bpr", folder=tmp_path)
    (on_test,) = run_plan(Plan(("synthetic",), ("bpr",), SMALL | {"validation": True}), tmp_path)
    assert "metrics" in on_test.result


def test_without_a_validation_part_nothing_is_trained(tmp_path: Path) -> None:
    progress = Recorder()
    with pytest.raises(coterie.CoterieError, match="validation=true"):
        run_plan(Plan(("synthetic",), ("bpr",), SMALL, part="validation"), tmp_path, progress)
    assert progress.began == []


def test_reused_weights_may_know_the_validation_part(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="start_from"):
        on_validation("bpr", folder=tmp_path, start_from=str(tmp_path))


def test_plain_tuples_are_methods() -> None:
    assert cells(small(("a", "bpr", {})))[0].method == Method("a", "bpr", {})
    assert os.fspath(plan_runner.cache_folder()).endswith("coterie")
