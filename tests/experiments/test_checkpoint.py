"""Checkpoints: bit-exact, written atomically, bound to one run on one dataset, versioned."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.core.records import Record
from coterie.errors import RunError
from coterie.experiments import checkpoint
from coterie.experiments.history import Point, TrainingHistory
from coterie.experiments.run_folder import locked, read_arrays, write_arrays


@dataclass(frozen=True, slots=True)
class State(Record):
    rows: np.ndarray
    labels: np.ndarray
    step: int


def state(n: int = 0, size: int = 3) -> State:
    rows = np.full((size, 2), n, np.float32)
    rows[0] = np.nan, -0.0
    return State(rows, np.arange(size, dtype=np.int32) - 1, n)


def point(n: int = 4, size: int = 3, best: bool = True) -> Point:
    curve = (
        {"round": 2, "part": "test", "HR@10": 0.1 + 0.2, "seconds": 1e-300},
        {"round": 4, "part": "test", "HR@10": 1 / 3},
    )
    history = TrainingHistory(
        np.arange(size, dtype=np.int64) * 2**40,
        round=n,
        seconds=0.1,
        updates=17,
        dropped=3,
        refused=Counter({"stale round": 2, "not finite": 1}),
        bytes_up=2**53 + 1,
        bytes_down=2**60 + 7,
        curve=curve,
        best=1,
    )
    return Point(state(n, size), history, state(n - 2, size) if best else None)


def same_record(one: Any, other: Any) -> bool:
    return (one is None) == (other is None) and (
        one is None
        or all(
            (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
            for a, b in zip(one.arrays().values(), other.arrays().values(), strict=True)
        )
    )


def same(one: Point, other: Point) -> bool:
    return (
        same_record(one.state, other.state)
        and same_record(one.best, other.best)
        and one.history.to_json() == other.history.to_json()
        and one.history.selections.tolist() == other.history.selections.tolist()
    )


def read(folder: Path, data: str = "data") -> Point | None:
    return checkpoint.read(folder, State, data, {})


# Round trip.


@pytest.mark.parametrize("best", [False, True])
def test_a_point_comes_back_to_the_bit(best, tmp_path):
    """NaN, negative zero, integers beyond 2^53, and floats without a short decimal form."""
    checkpoint.write(tmp_path, point(best=best), "data", {})
    back = read(tmp_path)
    assert back is not None
    assert same(back, point(best=best))
    assert isinstance(back.state.step, int)
    assert isinstance(back.history.refused, Counter)
    assert back.history.curve[0]["HR@10"] == 0.1 + 0.2


@settings(deadline=None, max_examples=15)
@given(
    st.floats(0, 1e9),
    st.integers(0, 2**62),
    st.dictionaries(st.text(max_size=9), st.integers(1, 99)),
)
def test_any_history_comes_back(tmp_path_factory, seconds, updates, refused):
    folder = tmp_path_factory.mktemp("any")
    history = TrainingHistory(
        np.zeros(1, np.int64), seconds=seconds, updates=updates, refused=Counter(refused)
    )
    checkpoint.write(folder, Point(state(), history), "data", {})
    back = read(folder)
    assert back is not None
    assert back.history.to_json() == history.to_json()


def test_a_history_continues_from_where_it_was(tmp_path):
    """A history that was read continues like one that was never written."""
    from coterie.algorithms.algorithm import Costs

    checkpoint.write(tmp_path, point(), "data", {})
    back = read(tmp_path)
    assert back is not None
    step = Costs(np.array([0, 2], np.int32), 1, 1, Counter({"not finite": 1}), 5, 7)
    one, other = (
        j.after(step, 0.5).measured("test", {"HR@10": 0.4}, "HR@10")
        for j in (back.history, point().history)
    )
    assert one.to_json() == other.to_json()
    assert one.selections.tolist() == other.selections.tolist() == [1, 2**40, 2**41 + 1]
    assert one.best == 2


def test_before_the_first_checkpoint_there_is_none(tmp_path):
    assert read(tmp_path) is None


def test_the_last_checkpoint_counts(tmp_path):
    for n in (2, 3, 9):
        checkpoint.write(tmp_path, point(n), "data", {})
    found = read(tmp_path)
    assert found is not None
    assert found.history.round == 9
    assert [file.name for file in tmp_path.iterdir()] == [checkpoint.NAME]


# Complete or absent.


def test_other_data_is_refused(tmp_path):
    checkpoint.write(tmp_path, point(), "the data it was trained on", {})
    with pytest.raises(
        RunError, match="the data or the privacy preferences have changed since the run began"
    ):
        read(tmp_path, "other data")


@pytest.mark.parametrize("cut", [0, 1, 100, -1])
def test_a_broken_file_is_refused_and_named(cut, tmp_path):
    """Damage from outside gives one error line, not a traceback."""
    checkpoint.write(tmp_path, point(), "data", {})
    file = tmp_path / checkpoint.NAME
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(RunError, match=checkpoint.NAME):
        read(tmp_path)


def test_a_file_of_something_else_is_refused_and_named(tmp_path):
    np.savez(tmp_path / checkpoint.NAME, rows=np.zeros(3))
    with pytest.raises(RunError, match=checkpoint.NAME):
        read(tmp_path)


@pytest.mark.parametrize(
    ("with_format", "message"),
    [
        (None, "1, of an earlier Coterie; expected format 2. Start again"),
        (1, "1, of an earlier Coterie; expected format 2. Start again"),
        (3, "3, of a later Coterie; expected at most 2. Update coterie."),
    ],
)
def test_another_format_is_refused_in_one_line(with_format, message, tmp_path):
    """Checkpoints of early development versions have no format number: that is format 1."""
    checkpoint.write(tmp_path, point(), "data", {})
    arrays = read_arrays(tmp_path, checkpoint.NAME)
    about = json.loads(arrays["about"].tobytes())
    del about["format"]
    if with_format is not None:
        about["format"] = with_format
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    write_arrays(tmp_path / checkpoint.NAME, arrays)
    for read_it in (read, checkpoint.state_arrays):
        with pytest.raises(RunError, match=f"has checkpoint format {message}") as caught:
            read_it(tmp_path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("at", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_one_before(at, tmp_path, monkeypatch):
    checkpoint.write(tmp_path, point(2), "data", {})

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(*(os, "fsync", fail) if at == "fsync" else (Path, "replace", fail))
    with pytest.raises(RunError, match="No space left on device"):
        checkpoint.write(tmp_path, point(9), "data", {})
    monkeypatch.undo()
    found = read(tmp_path)
    assert found is not None
    assert same(found, point(2))
    assert [file.name for file in tmp_path.iterdir()] == [checkpoint.NAME]


def test_partial_files_of_a_killed_process_are_ignored(tmp_path):
    checkpoint.write(tmp_path, point(2), "data", {})
    whole = (tmp_path / checkpoint.NAME).read_bytes()
    (tmp_path / f".{checkpoint.NAME}.{os.getpid()}").write_bytes(whole[: len(whole) // 2])
    (tmp_path / f".{checkpoint.NAME}.1").write_bytes(b"")
    found = read(tmp_path)
    assert found is not None
    assert same(found, point(2))
    checkpoint.write(tmp_path, point(9), "data", {})  # the partial files do not interfere
    again = read(tmp_path)
    assert again is not None
    assert again.history.round == 9


def test_content_is_on_disk_before_the_rename(tmp_path, monkeypatch):
    """Otherwise a power cut could leave the name without the content."""
    order = []
    fsync = os.fsync
    replace = Path.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (order.append("fsync"), fsync(fd))[1])
    monkeypatch.setattr(
        Path, "replace", lambda self, target: (order.append("replace"), replace(self, target))[1]
    )
    checkpoint.write(tmp_path, point(), "data", {})
    assert order[:2] == ["fsync", "replace"]


def test_a_reader_gets_a_complete_file_while_another_process_writes(tmp_path):
    """`recommend` works from any checkpoint during training."""
    size = 20_000
    checkpoint.write(tmp_path, point(4, size), "data", {})
    done = threading.Event()
    seen: list[int] = []
    faults: list[Exception] = []

    def reading() -> None:
        while not done.is_set():
            try:
                found = read(tmp_path)
                assert found is not None
                assert same(found, point(found.history.round, size))
                seen.append(found.history.round)
            except Exception as fault:
                faults.append(fault)
                return

    reader = threading.Thread(target=reading)
    reader.start()
    for n in range(5, 40):
        checkpoint.write(tmp_path, point(n, size), "data", {})
    done.set()
    reader.join()
    assert not faults
    assert seen == sorted(seen)
    assert len(set(seen)) > 1


# One writer at a time.


def test_two_cannot_write_into_one_folder(tmp_path):
    with (
        locked(tmp_path),
        pytest.raises(RunError, match="is being written by another process"),
        locked(tmp_path),
    ):
        pytest.fail("both have the lock")
    with locked(tmp_path):
        pass


def test_without_a_folder_there_is_nothing_to_lock():
    with locked(None), locked(None):
        pass


def test_a_lock_ends_with_the_process_however_it_ends(tmp_path):
    script = (
        "import sys, time; from pathlib import Path\n"
        "from coterie.experiments.run_folder import locked\n"
        "with locked(Path(sys.argv[1])): print('locked', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(RunError, match="another process"), locked(tmp_path):
            pytest.fail("both have the lock")
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    with locked(tmp_path):
        pass
