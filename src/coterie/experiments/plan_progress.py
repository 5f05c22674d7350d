"""Progress of a plan: the share that is done, the time left, and a line for every finished run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import mean

from coterie.core.progress import Advance, Progress
from coterie.experiments.cell_cache import CellResult
from coterie.experiments.plan import Cell
from coterie.report.table import shown
from coterie.types import JsonObject

EVALUATION = 0.3
"""The share of a run that its evaluation counts for until a run of the method is finished."""


class RunTimes:
    """What the finished runs of a plan took, by method and dataset."""

    def __init__(self, workers: int = 1) -> None:
        self.workers = workers
        self.seconds: dict[tuple[str, str], list[float]] = {}
        self.shares: dict[tuple[str, str], list[float]] = {}
        self.running: tuple[Cell, float] | None = None

    def add(self, run: CellResult) -> None:
        """Count a finished run; one that diverged ended early."""
        if run.diverged:
            return
        seconds = seconds_of(run.result)
        if self.running is not None and self.running[0] is run.cell:
            # A run of this process also had to be prepared; another process may have run it.
            seconds = max(seconds, time.monotonic() - self.running[1])
        self.seconds.setdefault(_kind(run.cell), []).append(seconds)
        self.shares.setdefault(_kind(run.cell), []).append(evaluation_share(run.result))

    def begin(self, cell: Cell) -> None:
        """A run begins in this process."""
        self.running = cell, time.monotonic()

    def evaluation_share(self, cell: Cell) -> float:
        """The share of a run that its evaluation takes; 0 if the run ends with training."""
        if cell.part == "validation":
            return 0.0
        return mean(self.shares.get(_kind(cell), [EVALUATION]))

    def left(self, waiting: Mapping[Path, Cell]) -> float | None:
        """Seconds until all runs are finished; None while a method has no finished run."""
        cells = list(waiting.values())
        if not all(_kind(cell) in self.seconds for cell in cells):
            return None
        expected = sum(mean(self.seconds[_kind(cell)]) for cell in cells)
        return (expected - self._done(cells)) / max(min(self.workers, len(cells)), 1)

    def _done(self, waiting: list[Cell]) -> float:
        """Seconds of the current run that are over, at most what such a run takes."""
        if self.running is None or self.running[0] not in waiting:
            return 0.0
        cell, began = self.running
        return min(time.monotonic() - began, mean(self.seconds[_kind(cell)]))


def _kind(cell: Cell) -> tuple[str, str]:
    return cell.method.label, cell.experiment.choice.dataset


def seconds_of(result: JsonObject) -> float:
    """The seconds of training, of the curve and of the evaluation."""
    parts = ("seconds", "curve_seconds", "evaluation_seconds")
    return float(sum(result.get(part, 0.0) for part in parts))


def evaluation_share(result: JsonObject) -> float:
    """The share of a run's seconds that its final evaluation took."""
    whole = seconds_of(result)
    return float(result.get("evaluation_seconds", 0.0)) / whole if whole else EVALUATION


class CellProgress(Progress):
    """The progress of one run as a fraction of one step of the plan's progress.

    Training moves it up to the share that is left for the evaluation.
    """

    def __init__(
        self, name: str, advance: Advance, progress: Progress, evaluation: float = 0.0
    ) -> None:
        self.name = name
        self.advance = advance
        self.progress = progress
        self.evaluation = evaluation
        self.done = 0.0

    def log(self, text: str) -> None:
        self.progress.log(f"{self.name}: {text}")

    @contextmanager
    def task(self, label: str, total: float | None) -> Iterator[Advance]:
        first, last = self._span(label)
        # Training may have stopped before its last step.
        self._move(first - self.done, f"{self.name}: {label}")

        def forward(steps: float = 1, note: str = "") -> None:
            fraction = steps / total * (last - first) if total else 0.0
            self._move(min(fraction, last - self.done), f"{self.name}: {note}" if note else "")

        yield forward

    def complete(self) -> None:
        self._move(1 - self.done)

    def _span(self, label: str) -> tuple[float, float]:
        """Where a task begins and ends, as shares of the run; other tasks do not move it."""
        if label.startswith("Training"):
            return 0.0, 1 - self.evaluation
        if label.startswith("Evaluating"):
            return 1 - self.evaluation, 1.0
        return self.done, self.done

    def _move(self, fraction: float, note: str = "") -> None:
        fraction = max(fraction, 0.0)
        self.done += fraction
        self.advance(fraction, note)


class RunLog:
    """A line for every finished run: its name, its headline metric and its seconds."""

    def __init__(self, total: int, progress: Progress) -> None:
        self.total = total
        self.progress = progress
        self.count = 0

    def add(self, run: CellResult) -> None:
        self.count += 1
        name = f"run {self.count} of {self.total}: {run.cell.name}"
        if run.diverged:
            self.progress.log(f"{name}: diverged")
            return
        metric = str(run.result["convergence"]["metric"])
        value = shown(metric, run.result["metrics"][metric])
        self.progress.log(f"{name}: {metric} {value}, {seconds_of(run.result):,.1f} s")
