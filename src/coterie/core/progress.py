"""How long work tells a person about itself. The library only calls; the command line draws."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Advance(Protocol):
    def __call__(self, steps: float = 1, note: str = "") -> None: ...


class Progress:
    """Watches and says nothing; what a quiet run and the Python API use."""

    def log(self, text: str) -> None:
        """One line that stays."""

    @contextmanager
    def task(self, label: str, total: float | None) -> Iterator[Advance]:
        """A piece of work with a bar; the body calls what it gets for every step done."""
        yield lambda steps=1, note="": None


SILENT = Progress()
