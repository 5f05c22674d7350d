"""Terminal output: progress on standard error, results on standard output."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Literal

from rich.console import Console
from rich.progress import (
    BarColumn,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress import (
    Progress as Bars,
)
from rich.table import Table
from rich.text import Text

from coterie.core.printable import one_line, printable
from coterie.core.progress import SILENT, Advance, Progress
from coterie.report.table import table_width

WIDEST = 100

# No emoji: rich would put one in place of `:cd:` in a fingerprint.
out = Console(highlight=False, emoji=False)
err = Console(stderr=True, highlight=False, emoji=False)


class TimeLeft(ProgressColumn):
    """The time left, by the speed so far or by an estimate; empty while it is not known."""

    def __init__(self, estimate: Callable[[], float | None] | None = None) -> None:
        super().__init__()
        self.estimate = estimate

    def render(self, task: Task) -> Text:
        seconds = task.time_remaining if self.estimate is None else self.estimate()
        if seconds is None or task.finished:
            return Text("")
        return Text(f"{timedelta(seconds=round(seconds))} left", style="progress.remaining")


class ScreenProgress(Progress):
    """Progress bars with a note, the elapsed time and the remaining time."""

    def log(self, text: str) -> None:
        err.print(printable(text), style="dim", markup=False, soft_wrap=True)

    def warn(self, text: str) -> None:
        err.print(f"warning: {printable(text)}", markup=False, soft_wrap=True)

    def debug(self, text: str) -> None:
        self.log(text)

    @contextmanager
    def task(self, label: str, total: float | None) -> Iterator[Advance]:
        with self._bar(label, total, TimeLeft()) as advance:
            yield advance

    def estimated_task(
        self, label: str, total: float, seconds_left: Callable[[], float | None]
    ) -> AbstractContextManager[Advance]:
        return self._bar(label, total, TimeLeft(seconds_left))

    @contextmanager
    def _bar(self, label: str, total: float | None, left: TimeLeft) -> Iterator[Advance]:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            TextColumn("{task.percentage:>3.0f}%" if total else ""),
            TimeElapsedColumn(),
            left,
            TextColumn("{task.fields[note]}", markup=False),
        )
        start = time.perf_counter()
        label = one_line(label)
        if not err.is_terminal and total:
            err.print(f"{label} ...", markup=False, soft_wrap=True)
        with Bars(*columns, console=err, transient=False, disable=not err.is_terminal) as progress:
            bar = progress.add_task(label, total=total, note="")

            def advance(steps: float = 1, note: str = "") -> None:
                shown = one_line(note) or progress.tasks[0].fields["note"]
                progress.update(bar, advance=steps, note=shown)

            yield advance
            progress.update(bar, total=total or 1, completed=total or 1)
        # Printed only after success: a failure prints its own single line.
        if not err.is_terminal and not total:
            seconds = time.perf_counter() - start
            err.print(f"{label}: {seconds:.1f} s", markup=False, soft_wrap=True)


def progress_for(silent: bool) -> Progress:
    """Progress on the screen, or none for --quiet and --json."""
    return SILENT if silent else ScreenProgress()


def table_columns() -> int:
    """How wide a table may be that can be split: 100 letters, or less on a narrow terminal."""
    return min(out.width, WIDEST) if out.is_terminal else WIDEST


def show_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: int = 1,
    title: str | None = None,
    bold: Collection[tuple[int, int]] = (),
    texts: Collection[int] = (),
) -> None:
    """Print a table; the first `left` columns and `texts` are text, the others are numbers.

    `bold` are (row, column) places. In a file or a pipe a row is never folded. Without titles of
    columns there is no row for them.
    """
    rows = [[one_line(cell) for cell in row] for row in rows]
    header = [one_line(name) for name in header]
    if title:
        out.print(printable(title), style="bold", markup=False, soft_wrap=True)
    table = Table(header_style="bold", show_header=any(header))
    for index, name in enumerate(header):
        justify: Literal["left", "right"] = "right"
        if index < left or index in texts:
            justify = "left"
        table.add_column(name, justify=justify, overflow="fold")
    for number, row in enumerate(rows):
        table.add_row(
            *(
                Text(cell, style="bold" if (number, column) in bold else "")
                for column, cell in enumerate(row)
            )
        )
    # Titles of columns may be folded between words.
    longest_words = [max(name.split(), key=len, default="") for name in header]
    width = table_width(longest_words, rows)
    if out.is_terminal or width <= out.width:
        out.print(table)
    else:
        Console(highlight=False, emoji=False, width=width).print(table)
