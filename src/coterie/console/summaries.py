"""What the table of runs shows of each run, read from its small files.

A summary is read again only when a file has changed, so that a folder of many runs opens quickly.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from coterie.console.folders import FoundFolder
from coterie.console.recordings.recording import NAME as RECORDING
from coterie.console.round_lines import first_and_last
from coterie.core.printable import one_line
from coterie.deployment.server_status import FINISHED
from coterie.deployment.traffic import STATUS, read_status
from coterie.errors import CoterieError
from coterie.experiments import run_folder
from coterie.experiments.round_log import NAME as ROUNDS
from coterie.report.steps import is_federated, step_name
from coterie.types import JsonObject

RunState = Literal["starting", "running", "finished", "stopped", "unreadable"]

RESULT = "result.json"
CONFIG = "config.yaml"
LOCK = ".lock"
WATCHED = (RESULT, CONFIG, ROUNDS, STATUS)
"""Files whose change makes a summary old."""
LONGEST = 300
"""Letters of a text in the table."""

FileStamps = tuple[tuple[int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class RunSummary:
    id: str
    name: str
    folder: str
    kind: str
    state: RunState = "unreadable"
    algorithm: str = ""
    dataset: str = ""
    protocol: str = ""
    seed: int | None = None
    metric: str = ""
    """The first headline metric, or the one that the curve follows."""
    value: float | None = None
    round: int | None = None
    rounds: int | None = None
    """Rounds in all, if that is known."""
    steps: str = "rounds"
    """What is counted: rounds, epochs, or the only step there is."""
    is_federated: bool = True
    """False of a finished run that is known to be centralised."""
    is_recorded: bool = False
    seconds: float | None = None
    n_bytes: int | None = None
    changed: float = 0.0
    """When a file was written last."""
    error: str = ""
    """Why it cannot be read."""

    def as_json(self) -> JsonObject:
        """The fields by name. `asdict` copies each deeply, which takes ten times as long."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class RunSummaries:
    """Summaries by id, as they were when the files had their stamps."""

    known: dict[str, tuple[FileStamps, RunSummary]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, folder: FoundFolder) -> RunSummary:
        """The summary of a run; whether it is running is looked up every time."""
        stamp = _stamp(folder)
        with self.lock:
            before = self.known.get(folder.id)
        if before is not None and before[0] == stamp:
            summary = before[1]
        else:
            summary = _read(folder, stamp)
            with self.lock:
                self.known[folder.id] = (stamp, summary)
        if folder.has(RECORDING):
            summary = replace(summary, is_recorded=True)
        if summary.state != "finished" and _is_running(folder):
            return replace(summary, state="running")
        return summary


def _is_running(folder: FoundFolder) -> bool:
    return folder.has(LOCK) and run_folder.is_held(folder.path / LOCK)


def _stamp(folder: FoundFolder) -> FileStamps:
    return tuple(_stamp_of(folder.path / name) if folder.has(name) else None for name in WATCHED)


def _stamp_of(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _read(folder: FoundFolder, stamp: FileStamps) -> RunSummary:
    changed = max((found[0] for found in stamp if found is not None), default=0) / 1e9
    empty = RunSummary(folder.id, folder.name, one_line(folder.path), folder.kind, changed=changed)
    try:
        if folder.has(RESULT):
            return _of_result(empty, run_folder.read_result(folder.path))
        return _of_unfinished(empty, folder)
    except (CoterieError, OSError) as error:
        return replace(empty, error=_short(error))


def _of_result(empty: RunSummary, result: JsonObject) -> RunSummary:
    headline = _texts(result["headline"])
    metric = headline[0] if headline else ""
    return replace(
        empty,
        state="finished",
        algorithm=_short(result["algorithm"]),
        dataset=_short(result["dataset"]),
        protocol=_short(result["protocol"]),
        seed=_count(result["seed"]),
        metric=_short(metric),
        value=_number(result["metrics"].get(metric)),
        round=_count(result["rounds"]),
        rounds=_count(result["rounds"]),
        steps=step_name(result),
        is_federated=is_federated(result),
        seconds=_number(result["seconds"]),
        n_bytes=_sum_of_bytes(result),
    )


def _of_unfinished(empty: RunSummary, folder: FoundFolder) -> RunSummary:
    """From the log of rounds; a run of an earlier version has its config only."""
    about: JsonObject = {}
    last: JsonObject = {}
    rounds: object = None
    if folder.has(ROUNDS):
        first, last = first_and_last(folder.path / ROUNDS)
        about = first.get("begin", {})
        rounds = first.get("rounds")
    if not about and folder.has(CONFIG):
        about = run_folder.read_config(folder.path)
    status = read_status(folder.path) if folder.has(STATUS) else {}
    metric = about.get("metric", "")
    metrics = status.get("metrics", {}) or last.get("metrics", {})
    is_finished = folder.kind == "federation" and status.get("state") == FINISHED
    return replace(
        empty,
        state="finished" if is_finished else "stopped",
        algorithm=_short(about.get("algorithm", "")),
        dataset=_short(about.get("dataset", "")),
        protocol=_short(about.get("protocol", "") or ""),
        seed=_count(about.get("seed")),
        metric=_short(metric),
        value=_number(metrics.get(metric)) if isinstance(metrics, dict) else None,
        # The log has some rounds only, and also those that a federation has undone.
        round=_count(status.get("round", last.get("round", last.get("after")))),
        rounds=_count(rounds),
        steps=_short(about.get("steps", "rounds")),
        seconds=_number(last.get("seconds")),
        n_bytes=_sum_of_bytes(last),
    )


def _sum_of_bytes(values: JsonObject) -> int | None:
    up = _count(values.get("bytes_up"))
    down = _count(values.get("bytes_down"))
    return None if up is None or down is None else up + down


def _short(value: object) -> str:
    return one_line(value)[:LONGEST]


def _texts(values: object) -> list[str]:
    return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []


def _count(value: object) -> int | None:
    return value if type(value) is int else None


def _number(value: object) -> float | None:
    """A finite number; what a file holds instead is left out."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None
