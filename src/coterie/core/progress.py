"""Progress reporting. The library calls this interface; the command line draws it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Advance(Protocol):
    def __call__(self, steps: float = 1, note: str = "") -> None: ...


class Progress:
    """Reports nothing: the default of the Python API and of quiet runs."""

    def log(self, text: str) -> None:
        """Print one permanent line."""

    def warn(self, text: str) -> None:
        """Print one permanent line about what whoever runs this should look into."""
        self.log(text)

    def debug(self, text: str) -> None:
        """Print one permanent line of details, where they are asked for."""

    @contextmanager
    def task(self, label: str, total: float | None) -> Iterator[Advance]:
        """Show a bar for a task; the body calls the yielded function after each step."""
        yield lambda steps=1, note="": None

    def estimated_task(
        self, label: str, total: float, seconds_left: Callable[[], float | None]
    ) -> AbstractContextManager[Advance]:
        """A task whose steps take different times; `seconds_left` gives None while unknown."""
        return self.task(label, total)


SILENT = Progress()
