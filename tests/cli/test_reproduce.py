"""`coterie reproduce`: quick runs, interrupted runs, repeated runs and wrong names."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest
from cli.calling import call_apart, start

pytest.importorskip("plotly")


@pytest.mark.parametrize(("name", "right"), [("fedfasst", "fedfast"), ("stfedrec", "sttfedrec")])
def test_unknown_paper(tmp_path: Path, name: str, right: str) -> None:
    line = call_apart("reproduce", name, cwd=tmp_path).error
    assert line.startswith(f"unknown paper {name!r}")
    assert line.endswith(f"Did you mean {right!r}?")


def test_unknown_item(tmp_path: Path) -> None:
    line = call_apart("reproduce", "fedfast", "--only", "table3", cwd=tmp_path).error
    assert line.startswith("unknown item 'table3' in --only")
    assert "table2" in line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "item"),
    [
        pytest.param("fedfast", "section5", marks=pytest.mark.long),
        ("fpl", "movielens"),
        pytest.param("sttfedrec", "precision", marks=pytest.mark.long),
        pytest.param("leaks", "negatives", marks=pytest.mark.long),
    ],
)
def test_quick_run(tmp_path: Path, name: str, item: str) -> None:
    """Without the papers' data, synthetic data is used and the report says so."""
    if name == "sttfedrec":
        pytest.importorskip("torch")
    arguments = ("reproduce", name, "--quick", "--only", item, "--cells", "cells", "-q")
    process = start(*arguments, cwd=tmp_path)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    place = tmp_path / "runs" / f"reproduce-{name}-{item}-quick"
    assert str(place.relative_to(tmp_path)) in out
    found = json.loads((place / "found.json").read_text())
    assert found["quick"]
    (table,) = found["items"][0]["tables"]
    assert table["dataset"] == "synthetic"
    assert len(table["rows"]) >= 2
    assert {claim["verdict"] for claim in found["items"][0]["claims"]} == {"cannot be tested"}
    assert any("not available" in text for text in found["items"][0]["absent"])
    assert "A quick look" in (place / "report.html").read_text()
    assert "synthetic" in (place / "report.md").read_text()
    n_png = len(list((place / "figures").glob("*.png")))
    n_svg = len(list((place / "figures").glob("*.svg")))
    assert n_png == n_svg > 0
    began = time.monotonic()
    assert call_apart(*arguments, cwd=tmp_path).out == out
    assert time.monotonic() - began < 30, "a second run reads the finished cells"


@pytest.mark.long
def test_the_same_command_continues_an_interrupted_reproduction(tmp_path: Path) -> None:
    arguments = ("reproduce", "leaks", "--quick", "--cells", "cells")
    process = start(*arguments, cwd=tmp_path)
    while not list((tmp_path / "cells").glob("*/result.json")):
        time.sleep(0.05)
        assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "cells").glob("*/result.json")}
    done = call_apart(*arguments, cwd=tmp_path)
    assert done.code == 0, done.err
    verb = "is" if len(times) == 1 else "are"
    assert f"{len(times)} of 6 runs {verb} already finished" in done.err
    unchanged = [path.stat().st_mtime_ns == time_ns for path, time_ns in times.items()]
    assert all(unchanged), "finished runs are not repeated"
