"""Logs of a server or node: as JSON objects on standard error, and from which level on."""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, NoReturn

from coterie.core.printable import printable
from coterie.core.progress import SILENT, Advance, Progress
from coterie.errors import BudgetSpent, CoterieError, Interrupted

EVERY = 10.0
"""Seconds between two lines about a task that goes on."""
INTERRUPTED = Interrupted.exit_code
LogLevel = Literal["debug", "info", "warning", "error"]
LEVELS = ("debug", "info", "warning", "error")
"""From the least important one. Errors are those that end the command."""


@dataclass(frozen=True, slots=True)
class FromLevel(Progress):
    """Shows what has a level, or a more important one. Tasks have the level info."""

    shown: Progress
    level: LogLevel

    def has(self, level: LogLevel) -> bool:
        return LEVELS.index(level) >= LEVELS.index(self.level)

    def log(self, text: str) -> None:
        if self.has("info"):
            self.shown.log(text)

    def warn(self, text: str) -> None:
        if self.has("warning"):
            self.shown.warn(text)

    def debug(self, text: str) -> None:
        if self.has("debug"):
            self.shown.debug(text)

    @contextmanager
    def task(self, label: str, total: float | None) -> Iterator[Advance]:
        shown = self.shown if self.has("info") else SILENT
        with shown.task(label, total) as advance:
            yield advance

    def estimated_task(
        self, label: str, total: float, seconds_left: Callable[[], float | None]
    ) -> AbstractContextManager[Advance]:
        shown = self.shown if self.has("info") else SILENT
        return shown.estimated_task(label, total, seconds_left)


class LoggedExit(SystemExit):
    """The end of a command whose error is logged already."""


@contextmanager
def errors_as_lines() -> Iterator[None]:
    """Log what ends the body as a JSON line, also a bug with its traceback."""
    try:
        yield
    except KeyboardInterrupt:
        _end("interrupted", INTERRUPTED, "warning")
    except Interrupted as stop:
        _end(f"interrupted: {stop}", INTERRUPTED, "warning")
    except BudgetSpent as stop:
        _end(f"stopped: {stop}", stop.exit_code, "warning")
    except CoterieError as error:
        _end(str(error), error.exit_code)
    except Exception as error:
        _end(repr(error), 1, traceback=traceback.format_exc())


def _end(message: str, exit_code: int, level: LogLevel = "error", **more: str) -> NoReturn:
    write("exit", level, message=message, exit_code=exit_code, **more)
    raise LoggedExit(exit_code)


class JsonLines(Progress):
    """One object a line: when, how important, which event, and its message or its progress."""

    def log(self, text: str) -> None:
        write("log", message=text)

    def warn(self, text: str) -> None:
        write("log", "warning", message=text)

    def debug(self, text: str) -> None:
        write("log", "debug", message=text)

    @contextmanager
    def task(self, label: str, total: float | None) -> Iterator[Advance]:
        began = time.monotonic()
        shown = began
        done = 0.0
        last_note = ""
        write("begin", task=label, total=total)

        def advance(steps: float = 1, note: str = "") -> None:
            nonlocal done, shown, last_note
            done += steps
            last_note = note or last_note
            if time.monotonic() > shown + EVERY:
                shown = time.monotonic()
                write("progress", task=label, done=done, total=total, note=last_note)

        yield advance
        seconds = round(time.monotonic() - began, 3)
        write("end", task=label, done=done, total=total, note=last_note, seconds=seconds)


def write(event: str, level: LogLevel = "info", **values: object) -> None:
    """Write one line at once: a reader may follow it."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    entry = {"time": now, "level": level, "event": event, **values}
    print(printable(json.dumps(entry, ensure_ascii=False)), file=sys.stderr, flush=True)
