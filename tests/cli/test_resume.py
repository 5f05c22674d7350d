"""Interrupted runs: Ctrl-C prints how to resume; a resumed run equals an uninterrupted one."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from calling import SMALL, Done, call_apart, settings, start

LONG = settings(rounds=300, evaluate_every=10, n_users=600, n_items=300)


def wait_for(file: Path, process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 60
    while not file.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, f"{file} never came"
        time.sleep(0.005)


def stop(process: subprocess.Popen[str], with_signal: signal.Signals) -> Done:
    process.send_signal(with_signal)
    try:
        out, err = process.communicate(timeout=60)
    finally:
        # Some shells make their children ignore Ctrl-C.
        process.kill()
    return Done(process.returncode, out, err)


def outcome(folder: Path) -> tuple[bytes, bytes, list[dict[str, Any]], dict[str, Any]]:
    """Everything in a run folder except times and paths."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    result = json.loads((folder / "result.json").read_text())
    untimed = [{key: value for key, value in line.items() if key != "seconds"} for line in lines]
    left_out = ("seconds", "curve_seconds", "evaluation_seconds", "run")
    summary = {key: value for key, value in result.items() if key not in left_out}
    model = (folder / "model.npz").read_bytes()
    return model, (folder / "users.csv").read_bytes(), untimed, summary


def test_ctrl_c_prints_how_to_resume_and_the_checkpoint_recommends(tmp_path):
    """A running run is locked; after Ctrl-C it exits with 130 and its checkpoint is usable."""
    endless = ["--set", "rounds=1000000", "--set", "evaluate_every=1000"]
    process = start("run", "fedfast", *SMALL, *endless, "-q", "--out", "stopped", cwd=tmp_path)
    folder = tmp_path / "stopped"
    wait_for(folder / "checkpoint.npz", process)
    busy = call_apart("resume", "stopped", cwd=tmp_path)
    assert "stopped is being written by another process" in busy.error
    done = stop(process, signal.SIGINT)
    assert done.code == 130
    assert (
        done.err.strip()
        == "interrupted: stopped holds the progress so far. Resume with: coterie resume stopped"
    )
    assert "Traceback" not in done.err
    assert not (folder / "result.json").exists()
    shown = call_apart("recommend", "stopped", "--user", "1", "-n", "3", cwd=tmp_path)
    assert shown.err.startswith("stopped is not finished: this is the model of its last checkpoint")
    found = call_apart("recommend", "stopped", "--user", "1", "-n", "3", "--json", cwd=tmp_path)
    assert len(json.loads(found.out)["items"]) == 3


def test_resume_of_a_wrong_folder_prints_the_reason(tmp_path, coterie):
    assert "is not a run folder: it does not exist" in coterie("resume", "nowhere").error
    (tmp_path / "empty").mkdir()
    assert "has no config.yaml" in coterie("resume", "empty").error


def test_resume_of_a_finished_run_changes_nothing(coterie, tmp_path):
    assert (
        coterie("run", "fedavg", *SMALL, "--set", "rounds=2", "--out", "done", "--quiet").code == 0
    )
    before = {file.name: file.read_bytes() for file in (tmp_path / "done").iterdir()}
    again = coterie("resume", "done")
    assert again.code == 0
    assert "is finished; nothing is left to do" in again.err + again.out
    assert {file.name: file.read_bytes() for file in (tmp_path / "done").iterdir()} == before


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> tuple[Any, float]:
    """The outcome of an uninterrupted run, and its seconds from the first file to the last."""
    place = tmp_path_factory.mktemp("uninterrupted")
    process = start("run", "fedfast", *LONG, "--quiet", "--out", "run", cwd=place)
    wait_for(place / "run" / "config.yaml", process)
    began = time.monotonic()
    process.communicate(timeout=120)
    assert process.returncode == 0
    return outcome(place / "run"), time.monotonic() - began


@pytest.mark.slow
@pytest.mark.parametrize(
    "trial", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 5))]
)
def test_killed_and_resumed_run_equals_an_uninterrupted_one(trial, uninterrupted, tmp_path):
    """Kill the run at a random time, kill the resumed run at another, then let it finish."""
    expected, seconds = uninterrupted
    rng = np.random.default_rng()
    often = ["--set", f"checkpoint_every={(0, 1, 3, 7, 50)[trial]}"]
    process = start("run", "fedfast", *LONG, *often, "--quiet", "--out", "run", cwd=tmp_path)
    wait_for(tmp_path / "run" / "config.yaml", process)
    moments = rng.uniform(0, 0.8 * seconds, 2)
    time.sleep(moments[0])
    stop(process, signal.SIGKILL)
    process = start("resume", "run", "--quiet", cwd=tmp_path)
    time.sleep(moments[1])
    stop(process, signal.SIGKILL)
    done = call_apart("resume", "run", "--quiet", cwd=tmp_path)
    assert done.code == 0, done.err
    assert outcome(tmp_path / "run") == expected, f"killed after {moments}"


@pytest.mark.long
def test_interrupted_and_resumed_run_equals_an_uninterrupted_one(uninterrupted, tmp_path):
    expected, seconds = uninterrupted
    often = ["--set", "checkpoint_every=2"]
    process = start("run", "fedfast", *LONG, *often, "--quiet", "--out", "run", cwd=tmp_path)
    wait_for(tmp_path / "run" / "checkpoint.npz", process)
    time.sleep(np.random.default_rng().uniform(0, seconds / 5))
    assert stop(process, signal.SIGINT).code == 130
    assert not (tmp_path / "run" / "result.json").exists()
    done = call_apart("resume", "run", "--quiet", cwd=tmp_path)
    assert done.code == 0, done.err
    assert outcome(tmp_path / "run") == expected
