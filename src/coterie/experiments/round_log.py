"""rounds.jsonl: the progress of a run, one line after another while it trains.

A run appends to the file and never changes it, so that readers can go on from the byte where they
stopped. There are two kinds of lines:

    {"begin": {...}, "after": n, "rounds": total, "at": time}    training begins, or resumes
    {"round": n, "at": time, ..., "part": ..., "metrics": {...}} the costs so far, and a measurement

Rounds after `n` that stand before a line "begin" are trained again and no longer count. Costs are
sums since the first round. Every measured round has a line, and so has the last one before an
interrupt; other rounds have one now and then.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from coterie.experiments.history import TrainingHistory
from coterie.experiments.run_folder import not_written
from coterie.types import JsonObject

NAME = "rounds.jsonl"
SECONDS_BETWEEN_LINES = 0.25
"""Rounds without a measurement have a line at most this often: rounds may take a millisecond."""
COSTS_OF_LINE = ("round", "seconds", "updates", "dropped", "bytes_up", "bytes_down")
NOT_METRICS = ("round", "seconds", "part", "updates", "bytes_up", "bytes_down")
"""Keys of a measurement that are no metrics."""


class RoundLog:
    """Appends the progress of one training to the file of a run folder."""

    def __init__(
        self,
        folder: Path,
        about: JsonObject,
        epsilon_spent: Callable[[int], float] | None = None,
    ) -> None:
        """`about` describes the run; `epsilon_spent` is of a round, if there is a budget."""
        self.path = folder / NAME
        self.about = about
        self.epsilon_spent = epsilon_spent
        self.total = 0
        self.measured = 0
        """Measurements that have a line."""
        self.logged = 0
        """The last round that has a line."""
        self.written_at = 0.0

    def begin(self, history: TrainingHistory, total: int) -> None:
        """Training begins or resumes after the last round of the history."""
        self.total = total
        self.measured = len(history.curve)
        self.logged = history.round
        self._write({"begin": self.about, "after": history.round, "rounds": total})

    def step(self, history: TrainingHistory) -> None:
        """A round is over, and perhaps measured."""
        is_measured = len(history.curve) > self.measured
        is_due = time.monotonic() > self.written_at + SECONDS_BETWEEN_LINES
        is_last = history.round == self.total
        if is_measured or is_due or is_last:
            # Accounting may take a second: a round without a measurement does not wait for it.
            self._write_round(history, has_budget=is_measured or is_last)

    def interrupt(self, history: TrainingHistory) -> None:
        """Training is interrupted: its last round has a line, too."""
        if history.round > self.logged:
            self._write_round(history, has_budget=True)

    def _write_round(self, history: TrainingHistory, has_budget: bool) -> None:
        line: JsonObject = {name: getattr(history, name) for name in COSTS_OF_LINE}
        line["seconds"] = round(history.seconds, 6)
        line["refused"] = dict(history.refused)
        if self.epsilon_spent is not None and has_budget:
            line["epsilon_spent"] = self.epsilon_spent(history.round)
        if len(history.curve) > self.measured:
            self.measured = len(history.curve)
            found = history.curve[-1]
            line["part"] = found["part"]
            line["metrics"] = {k: v for k, v in found.items() if k not in NOT_METRICS}
        self._write(line)
        self.logged = history.round

    def _write(self, line: JsonObject) -> None:
        content = json.dumps(line | {"at": round(time.time(), 3)}, allow_nan=False).encode()
        try:
            with _appending(self.path) as file:
                file.write(content + b"\n")
        except OSError as error:
            raise not_written(self.path, error) from None
        self.written_at = time.monotonic()


@contextmanager
def _appending(path: Path) -> Iterator[BinaryIO]:
    """The file at its end. What a killed process wrote of a line is removed first."""
    with path.open("ab") as file:
        size = file.tell()
        whole = _whole_lines(path, size)
        if whole < size:
            os.truncate(path, whole)
        yield file


def _whole_lines(path: Path, size: int) -> int:
    """The bytes up to the end of the last complete line."""
    if not size:
        return 0
    with path.open("rb") as file:
        file.seek(size - 1)
        if file.read(1) == b"\n":
            return size
        file.seek(0)
        return file.read(size).rfind(b"\n") + 1
