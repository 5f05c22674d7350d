"""How far a replay is: a small file beside the run, for the page that waits for the recording."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from coterie.console.plain_json import finite
from coterie.core.plain_files import read_json_object
from coterie.errors import CoterieError
from coterie.experiments import run_folder

NAME = "recording.progress"
EVERY = 0.5
"""Seconds between two writes."""


@dataclass(slots=True)
class ReplayProgress:
    """Writes the file while a replay plays its rounds."""

    folder: Path
    rounds: int
    began: float = field(default_factory=time.monotonic)
    written: float = -math.inf

    def played(self, n: int) -> None:
        now = time.monotonic()
        if now - self.written < EVERY:
            return
        self.written = now
        text = f'{{"round": {n}, "rounds": {self.rounds}, "seconds": {now - self.began:.3f}}}\n'
        run_folder.write_text(self.folder, NAME, text)


@contextmanager
def replay_progress(folder: Path, rounds: int) -> Iterator[ReplayProgress]:
    """A replay of so many rounds; the file is removed at its end, also if it fails."""
    try:
        yield ReplayProgress(folder, rounds)
    finally:
        (folder / NAME).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class PlayedSoFar:
    """What the page shows of a replay."""

    round: int
    rounds: int
    seconds: float


def read_progress(folder: Path) -> PlayedSoFar | None:
    """How far the replay of a run is; None if that is not known."""
    try:
        found = finite(read_json_object(folder / NAME))
        return PlayedSoFar(int(found["round"]), int(found["rounds"]), float(found["seconds"]))
    except (CoterieError, OSError, LookupError, TypeError, ValueError):
        return None
