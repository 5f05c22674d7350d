"""Stopped runs as a person meets them: Ctrl-C says how to go on, and after kill -9 the outcome is the one without it."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from calling import SMALL, Done, call_apart, start

LONG = [
    "--set",
    "rounds=300",
    "--set",
    "evaluate_every=10",
    "--set",
    "n_users=600",
    "--set",
    "n_items=300",
]


def wait_for(file: Path, process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 60
    while not file.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, f"{file} never came"
        time.sleep(0.005)


def stopped(process: subprocess.Popen[str], how: signal.Signals) -> Done:
    process.send_signal(how)
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()  # a shell may have told its children to ignore Ctrl-C: nothing runs on
    return Done(process.returncode, out, err)


def outcome(folder: Path) -> tuple[bytes, bytes, list[dict[str, Any]], dict[str, Any]]:
    """All that a run leaves, but for how long things took and where they lie."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    result = json.loads((folder / "result.json").read_text())
    untimed = [{key: value for key, value in line.items() if key != "seconds"} for line in lines]
    kept = {key: value for key, value in result.items() if key not in ("seconds", "run")}
    return (folder / "model.npz").read_bytes(), (folder / "users.csv").read_bytes(), untimed, kept


def test_ctrl_c_says_how_to_go_on_and_the_checkpoint_answers(tmp_path):
    """While it runs nobody else may write; after Ctrl-C it exits with 130, and what it learned can be used."""
    endless = [
        *SMALL,
        "--set",
        "rounds=1000000",
        "--set",
        "evaluate_every=1000",
        "--quiet",
        "--out",
        "stopped",
    ]
    process = start("run", "fedfast", *endless, cwd=tmp_path)
    folder = tmp_path / "stopped"
    wait_for(folder / "checkpoint.npz", process)
    busy = call_apart("resume", "stopped", cwd=tmp_path)
    assert "stopped is being written by another process" in busy.error
    done = stopped(process, signal.SIGINT)
    assert done.code == 130
    assert (
        done.err.strip()
        == "interrupted: stopped holds the progress so far. Resume with: coterie resume stopped"
    )
    assert "Traceback" not in done.err
    assert not (folder / "result.json").exists()
    found = call_apart("recommend", "stopped", "--user", "1", "-n", "3", "--json", cwd=tmp_path)
    assert len(json.loads(found.out)["items"]) == 3


def test_what_cannot_be_resumed_says_why(tmp_path, coterie):
    assert "is not a run folder: it does not exist" in coterie("resume", "nowhere").error
    (tmp_path / "empty").mkdir()
    assert "has no config.yaml" in coterie("resume", "empty").error


def test_a_finished_run_has_nothing_left_to_do(coterie, tmp_path):
    assert (
        coterie("run", "fedavg", *SMALL, "--set", "rounds=2", "--out", "done", "--quiet").code == 0
    )
    before = {file.name: file.read_bytes() for file in (tmp_path / "done").iterdir()}
    again = coterie("resume", "done")
    assert again.code == 0
    assert "is finished; nothing is left to do" in again.err + again.out
    assert {file.name: file.read_bytes() for file in (tmp_path / "done").iterdir()} == before


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> tuple[Any, float]:
    """A run that nobody stops, and how long it takes from its first file to its last."""
    place = tmp_path_factory.mktemp("undisturbed")
    process = start("run", "fedfast", *LONG, "--quiet", "--out", "run", cwd=place)
    wait_for(place / "run" / "config.yaml", process)
    began = time.monotonic()
    process.communicate(timeout=120)
    assert process.returncode == 0
    return outcome(place / "run"), time.monotonic() - began


@pytest.mark.slow
@pytest.mark.parametrize("trial", range(5))
def test_kill_at_any_moment_and_resume_is_the_run_without_it(trial, undisturbed, tmp_path):
    """Killed at a random moment, and what goes on killed at another one; checkpoints as often as in a real run or more."""
    expected, takes = undisturbed
    chance = np.random.default_rng()
    often = ["--set", f"checkpoint_every={(0, 1, 3, 7, 50)[trial]}"]
    process = start("run", "fedfast", *LONG, *often, "--quiet", "--out", "run", cwd=tmp_path)
    wait_for(tmp_path / "run" / "config.yaml", process)
    moments = chance.uniform(0, 0.8 * takes, 2)
    time.sleep(moments[0])
    stopped(process, signal.SIGKILL)
    process = start("resume", "run", "--quiet", cwd=tmp_path)
    time.sleep(moments[1])
    stopped(process, signal.SIGKILL)
    done = call_apart("resume", "run", "--quiet", cwd=tmp_path)
    assert done.code == 0, done.err
    assert outcome(tmp_path / "run") == expected, f"killed after {moments}"


@pytest.mark.slow
def test_ctrl_c_at_any_moment_and_resume_is_the_run_without_it(undisturbed, tmp_path):
    expected, takes = undisturbed
    process = start(
        "run",
        "fedfast",
        *LONG,
        "--set",
        "checkpoint_every=2",
        "--quiet",
        "--out",
        "run",
        cwd=tmp_path,
    )
    wait_for(tmp_path / "run" / "checkpoint.npz", process)
    time.sleep(np.random.default_rng().uniform(0, takes / 5))
    assert stopped(process, signal.SIGINT).code == 130
    assert not (tmp_path / "run" / "result.json").exists()
    done = call_apart("resume", "run", "--quiet", cwd=tmp_path)
    assert done.code == 0, done.err
    assert outcome(tmp_path / "run") == expected
