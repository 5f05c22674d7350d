"""Logs for machines: every line on standard error is a JSON object."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from coterie.core.progress import Advance, Progress

EVERY = 10.0
"""Seconds between two lines about a task that goes on."""


class JsonLines(Progress):
    """One object a line: when, which event, and its message or its progress."""

    def log(self, text: str) -> None:
        write("log", message=text)

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


def write(event: str, **values: object) -> None:
    """Write one line at once: a reader may follow it."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    line = json.dumps({"time": now, "event": event, **values}, ensure_ascii=False)
    print(line, file=sys.stderr, flush=True)
