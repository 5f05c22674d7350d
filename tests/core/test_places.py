"""Cache and data folders, and progress reporting."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from coterie.cli import screen
from coterie.core.paths import cache_folder, data_folder
from coterie.core.progress import SILENT


def test_cache_folder_of_each_platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for platform, expected in (
        ("linux", tmp_path / ".cache" / "coterie"),
        ("darwin", tmp_path / "Library" / "Caches" / "coterie"),
        ("win32", tmp_path / "local" / "coterie"),
    ):
        monkeypatch.setattr(sys, "platform", platform)
        assert cache_folder() == expected


def test_cache_folder_follows_the_usual_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "c"))
    assert cache_folder() == tmp_path / "c" / "coterie"


def test_data_folder_is_the_one_named_else_in_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COTERIE_DATA", "~/my data")
    assert data_folder() == tmp_path / "my data"
    monkeypatch.setenv("COTERIE_DATA", "")
    assert data_folder() == cache_folder() / "data"
    monkeypatch.delenv("COTERIE_DATA")
    assert data_folder() == cache_folder() / "data"


def test_silence(capsys: pytest.CaptureFixture[str]) -> None:
    SILENT.log("nothing")
    with SILENT.task("work", 3) as advance:
        advance()
        advance(2, note="done")
    assert capsys.readouterr() == ("", "")


def drawn(monkeypatch: pytest.MonkeyPatch, total: float | None, terminal: bool) -> str:
    """The output of a task of two steps."""
    console = Console(force_terminal=terminal, width=120, record=True, stderr=True)
    monkeypatch.setattr(screen, "err", console)
    with screen.ScreenProgress().task("Training gmf", total) as advance:
        advance()
        advance(note="test HR@10 0.1234")
    return console.export_text()


def test_bar_shows_label_share_and_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    text = drawn(monkeypatch, total=2, terminal=True)
    assert "Training gmf" in text
    assert "100%" in text
    assert "test HR@10 0.1234" in text


def test_work_of_unknown_length_has_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    text = drawn(monkeypatch, total=None, terminal=True)
    assert "Training gmf" in text
    assert "%" not in text


def test_log_file_gets_a_line_and_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(monkeypatch, total=2, terminal=False).strip() == "Training gmf ..."


def test_time_left_is_the_estimate_or_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(force_terminal=True, width=120, record=True, stderr=True)
    monkeypatch.setattr(screen, "err", console)
    seconds: list[float | None] = [None]
    with screen.ScreenProgress().estimated_task("4 runs", 4, lambda: seconds[0]) as advance:
        time.sleep(0.25)
        advance(1)
        time.sleep(0.25)
        assert "left" not in console.export_text(clear=False)
        seconds[0] = 75.4
        time.sleep(0.25)
        assert "0:01:15 left" in console.export_text(clear=False)


def test_brackets_in_a_label_are_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(width=120, record=True, stderr=True)
    monkeypatch.setattr(screen, "err", console)
    screen.ScreenProgress().log("[red]a[/red] file [0]")
    assert console.export_text().strip() == "[red]a[/red] file [0]"


def test_a_fingerprint_has_no_emoji(capsys: pytest.CaptureFixture[str]) -> None:
    screen.ScreenProgress().log("SHA-256 1A:CD:9A:AB:00")
    screen.show_table(["key"], [["1A:CD:9A:AB:00"]])
    captured = capsys.readouterr()
    assert "1A:CD:9A:AB:00" in captured.err
    assert "1A:CD:9A:AB:00" in captured.out


def test_brackets_in_a_table_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    screen.show_table(
        ["item", "text"], [["1", "Alien [Director's cut]"], ["2", "[bold]x[/nonsense]"]]
    )
    text = capsys.readouterr().out
    assert "Alien [Director's cut]" in text
    assert "[bold]x[/nonsense]" in text
