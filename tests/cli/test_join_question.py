"""Whether `coterie join` asks before it joins, and what it says where it cannot."""

from __future__ import annotations

import sys

import pytest
import typer

from coterie.cli.federation import _confirmed
from coterie.core.progress import Progress


class Log(Progress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def log(self, text: str) -> None:
        self.lines.append(text)


@pytest.mark.parametrize("answer", [True, False])
def test_a_question_on_a_terminal(answer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(typer, "confirm", lambda question, **options: answer)
    log = Log()
    assert _confirmed("Join?", log) == answer
    assert log.lines == []


def test_no_terminal_means_yes_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    log = Log()
    assert _confirmed("Join?", log)
    assert log.lines == [
        "Join? Yes: there is no terminal to ask at. --yes answers in advance.",
    ]
