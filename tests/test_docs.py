"""The site builds, and nothing in it points nowhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    pytest.importorskip("furo")
    pytest.importorskip("myst_parser")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-d",
        str(tmp_path / "doctrees"),
        str(DOCS),
        str(tmp_path / "site"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    for page in (
        "index",
        "quick-start",
        "own-data",
        "own-algorithm",
        "own-model",
        "choosing",
        "api",
        "papers/fpl",
        "papers/sttfedrec",
    ):
        assert (tmp_path / "site" / f"{page}.html").stat().st_size > 5000
