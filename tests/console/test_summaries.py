"""The table of runs: what is read of each, and when it is read again."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from consoles import write_run

from coterie.console import summaries
from coterie.console.folders import Folders, FoundFolder
from coterie.console.summaries import RunSummaries
from coterie.experiments import run_folder


def found(folder: Path) -> FoundFolder:
    (one,) = Folders.of([folder]).found().values()
    return one


def test_a_finished_run(tmp_path: Path) -> None:
    summary = RunSummaries().of(found(write_run(tmp_path / "one", seed=3)))
    assert summary.state == "finished"
    assert (summary.algorithm, summary.dataset, summary.seed) == ("fedavg", "synthetic", 3)
    assert (summary.metric, summary.value) == ("HR@10", 0.25)
    assert (summary.round, summary.seconds, summary.n_bytes) == (20, 1.5, 3000)
    assert (summary.steps, summary.is_federated, summary.is_recorded) == ("rounds", True, False)


@pytest.mark.parametrize(
    ("settings", "bytes_down", "expected"),
    [
        ({"epochs": 5, "lr": 1}, 9, ("epochs", True)),
        ({"reg": 1}, 0, ("step", False)),
        (None, 0, ("epochs", False)),
        (7, 9, ("rounds", True)),
    ],
)
def test_steps_are_rounds_or_epochs(
    tmp_path: Path, settings: object, bytes_down: int, expected: tuple[str, bool]
) -> None:
    folder = write_run(tmp_path / "one", settings=settings, bytes_down=bytes_down)
    summary = RunSummaries().of(found(folder))
    assert (summary.steps, summary.is_federated) == expected


def test_a_recording_is_seen_though_nothing_else_has_changed(tmp_path: Path) -> None:
    known = RunSummaries()
    folder = write_run(tmp_path / "one")
    assert not known.of(found(folder)).is_recorded
    (folder / "recording.npz").write_bytes(b"")
    assert known.of(found(folder)).is_recorded


@pytest.mark.parametrize(
    "changes",
    [
        {"metrics": {"HR@10": float("nan")}},
        {"metrics": {"HR@10": 10**400}},
        {"metrics": {"HR@10": "<b>"}},
        {"metrics": {"HR@10": True}},
        {"headline": [None, 3]},
        {"headline": []},
    ],
)
def test_a_value_that_is_no_number_is_left_out(tmp_path: Path, changes: dict[str, object]) -> None:
    summary = RunSummaries().of(found(write_run(tmp_path / "one", **changes)))
    assert summary.state == "finished"
    assert summary.value is None


@pytest.mark.parametrize("text", ["", "[]", "{", '{"algorithm": 3}', "\xff", "[" * 100_000])
def test_a_broken_result_has_its_reason(tmp_path: Path, text: str) -> None:
    folder = write_run(tmp_path / "one")
    (folder / "result.json").write_bytes(text.encode("latin-1"))
    summary = RunSummaries().of(found(folder))
    assert summary.state == "unreadable"
    assert "cannot be read" in summary.error


def test_an_unfinished_run_is_read_from_its_log(tmp_path: Path) -> None:
    about = {"algorithm": "fcf", "dataset": "x", "metric": "HR@10", "steps": "epochs"}
    begin = {"begin": about, "after": 0}
    last = {"round": 7, "seconds": 2.0, "bytes_up": 1, "bytes_down": 2, "metrics": {"HR@10": 0.5}}
    lines = [begin | {"rounds": 20}, {"round": 3}, last]
    (tmp_path / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    summary = RunSummaries().of(found(tmp_path))
    assert (summary.state, summary.algorithm) == ("stopped", "fcf")
    assert (summary.round, summary.rounds, summary.value) == (7, 20, 0.5)
    assert summary.steps == "epochs"
    with run_folder.locked(tmp_path):
        assert RunSummaries().of(found(tmp_path)).state == "running"


@pytest.mark.parametrize("round_", [9, 4], ids=["a quick last round", "rounds that were undone"])
def test_the_round_of_a_federation_is_that_of_its_status(tmp_path: Path, round_: int) -> None:
    """The log has some rounds only, and also those that were rolled back."""
    lines = [{"begin": {}, "after": 0, "rounds": 20}, {"round": 7}]
    (tmp_path / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "status.json").write_text(json.dumps({"state": "stopped", "round": round_}))
    (tmp_path / "terms.json").write_text("{}")
    assert RunSummaries().of(found(tmp_path)).round == round_


def test_a_changed_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(tmp_path / "one")
    read = []
    usual = run_folder.read_result
    monkeypatch.setattr(
        summaries.run_folder, "read_result", lambda path: read.append(path) or usual(path)
    )
    known = RunSummaries()
    known.of(found(folder))
    known.of(found(folder))
    assert len(read) == 1
    text = (folder / "result.json").read_text().replace("0.25", "0.75")
    (folder / "result.json").write_text(text)
    os.utime(folder / "result.json", ns=(1, time.time_ns() + 10**9))
    assert known.of(found(folder)).value == 0.75
    assert len(read) == 2


def test_the_holder_of_a_lock_is_known_while_it_holds(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    assert run_folder.holder(lock) is None
    with run_folder.locked(tmp_path):
        assert run_folder.holder(lock) == os.getpid()
    assert run_folder.holder(lock) is None
