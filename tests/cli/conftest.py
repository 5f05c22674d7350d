"""Fixtures that call the command line, in this process or in its own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from calling import SMALL, Done, call_apart

from coterie.cli.main import main


@pytest.fixture
def coterie_with_figures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., Done]:
    """Call `coterie("run", "gmf")` through the entry point; only synthetic data is available."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path / "no data"))
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str | Path) -> Done:
        monkeypatch.setattr(sys, "argv", ["coterie", *map(str, arguments)])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        return Done(code, *capsys.readouterr())

    return call


@pytest.fixture
def coterie(
    coterie_with_figures: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Done]:
    """The same without plotly, whose script is 5 MB on every page."""
    monkeypatch.setitem(sys.modules, "plotly", None)
    return coterie_with_figures


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for runs that several tests read."""
    return tmp_path_factory.mktemp("runs of several tests")


@pytest.fixture(scope="session")
def json_run(place: Path) -> tuple[Done, Path]:
    """One BPR run with --json, and its folder."""
    folder = place / "bpr"
    arguments = ["run", "bpr", *SMALL, "--set", "epochs=4", "--json", "--out", folder]
    return call_apart(*arguments, cwd=place), folder


@pytest.fixture(scope="session")
def bpr_run(json_run: tuple[Done, Path]) -> Path:
    done, folder = json_run
    assert done.code == 0, done.err
    return folder
