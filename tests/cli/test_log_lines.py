"""Logs as JSON and as text: every line can be read, and tells when, what and how important."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path

import pytest

from coterie.cli import log_lines
from coterie.cli.federation import progress_of
from coterie.cli.log_lines import LEVELS, JsonLines, LogLevel, errors_as_lines
from coterie.cli.main import main
from coterie.errors import CoterieError, Interrupted, NoQuorum, RunError


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[dict]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_a_message_is_one_line(capsys: pytest.CaptureFixture[str]):
    JsonLines().log('two\nlines, "quotes" and ü')
    (line,) = lines_of(capsys)
    assert (line["event"], line["level"]) == ("log", "info")
    assert line["message"] == 'two\nlines, "quotes" and ü'
    assert datetime.fromisoformat(line["time"]).tzinfo is not None


def test_a_task_has_a_beginning_an_end_and_progress(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(log_lines, "EVERY", -1.0)
    with JsonLines().task("Training", 3) as advance:
        advance(2, "2 nodes")
        advance()
    begin, first, second, end = lines_of(capsys)
    assert (begin["event"], begin["task"], begin["total"]) == ("begin", "Training", 3)
    assert [line["done"] for line in (first, second, end)] == [2, 3, 3]
    assert [line["note"] for line in (first, second, end)] == ["2 nodes"] * 3
    assert end["seconds"] >= 0


def test_progress_is_not_written_all_the_time(capsys: pytest.CaptureFixture[str]):
    with JsonLines().task("Training", 1000) as advance:
        for _ in range(1000):
            advance()
    assert [line["event"] for line in lines_of(capsys)] == ["begin", "end"]


def test_a_task_that_fails_has_no_end(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(ValueError, match="broken"), JsonLines().task("Training", 3):
        raise ValueError("broken")
    assert [line["event"] for line in lines_of(capsys)] == ["begin"]


def log_all(log_format: str, level: LogLevel) -> None:
    progress = progress_of(log_format, level)
    progress.debug("details")
    progress.log("news")
    progress.warn("trouble")
    with progress.task("Training", 3) as advance:
        advance()
    with progress.estimated_task("Measuring", 3, lambda: 1.0) as advance:
        advance()


SHOWN = {
    "debug": ["details", "news", "trouble", "Training", "Measuring"],
    "info": ["news", "trouble", "Training", "Measuring"],
    "warning": ["trouble"],
    "error": [],
}


@pytest.mark.parametrize("level", LEVELS)
def test_json_lines_from_a_level_on(level: LogLevel, capsys: pytest.CaptureFixture[str]):
    log_all("json", level)
    lines = lines_of(capsys)
    assert [line.get("message") or line["task"] for line in lines if line["event"] != "end"] == (
        SHOWN[level]
    )
    importance = {"details": "debug", "news": "info", "trouble": "warning"}
    assert all(line["level"] == importance.get(line.get("message", ""), "info") for line in lines)


@pytest.mark.parametrize("level", LEVELS)
def test_text_lines_from_a_level_on(level: LogLevel, capsys: pytest.CaptureFixture[str]):
    log_all("text", level)
    text = capsys.readouterr().err
    assert [word for word in SHOWN["debug"] if word in text] == SHOWN[level]
    assert ("warning: trouble" in text) == ("trouble" in SHOWN[level])


@pytest.mark.parametrize(
    ("error", "message", "code", "level"),
    [
        (RunError("no folder"), "no folder", 2, "error"),
        (NoQuorum("too few nodes"), "too few nodes", 3, "error"),
        (CoterieError("wrong"), "wrong", 1, "error"),
        (Interrupted("resume it"), "interrupted: resume it", 130, "warning"),
        (KeyboardInterrupt(), "interrupted", 130, "warning"),
        (ValueError("a bug"), "ValueError('a bug')", 1, "error"),
    ],
)
def test_an_error_that_ends_a_command_is_one_line(error, message, code, level, capsys):
    with pytest.raises(SystemExit) as end, errors_as_lines():
        raise error
    assert end.value.code == code
    (line,) = lines_of(capsys)
    assert (line["event"], line["level"], line["message"]) == ("exit", level, message)
    assert line["exit_code"] == code
    assert ("Traceback" in line.get("traceback", "")) == isinstance(error, ValueError)


@pytest.mark.parametrize("command", ["serve", "join"])
@pytest.mark.parametrize("log_format", ["json", "text"])
def test_a_mistake_is_logged_in_the_format_of_all_lines(
    command: str, log_format: str, capsys, monkeypatch, tmp_path: Path
):
    """Also at the level error, and only once."""
    arguments = {
        "serve": ["--config", str(tmp_path / "missing.yaml")],
        "join": ["--data", str(tmp_path / "missing.csv"), "--store", str(tmp_path / "a.db")],
    }[command]
    options = ["--insecure", "--server", "10.0.0.1:1", "--log-level", "error"]
    monkeypatch.setattr(
        sys, "argv", ["coterie", command, *arguments, *options, "--log-format", log_format]
    )
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    if log_format == "text":
        assert line.startswith("error: ")
    else:
        assert json.loads(line)["exit_code"] == 2
        assert json.loads(line)["level"] == "error"
