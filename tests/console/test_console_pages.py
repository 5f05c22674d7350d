"""The pages in a real browser: no error, no sideways scrolling, no text that becomes markup."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from browser import needs_browser
from browsing import CANARY, WIDTHS, Tab
from consoles import Console, write_run

from coterie.console.folders import id_of
from coterie.experiments import run_folder
from coterie.reproduce.scoreboard import ORDER

pytest.importorskip("fastapi")
pytest.importorskip("plotly")
pytestmark = [pytest.mark.slow, needs_browser]

NAME = "<img src=x onerror=alert(1)>"
"""What a file may be named."""


@pytest.fixture(scope="module")
def folder(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pages") / "runs"
    shutil.copytree(runs, root)
    write_run(root / NAME, algorithm=CANARY, dataset=CANARY, protocol=CANARY, headline=[CANARY])
    hostile = root / "hostile"
    shutil.copytree(runs / "fedavg-0", hostile)
    result = json.loads((hostile / "result.json").read_text())
    result |= {"dataset": CANARY, "algorithm": CANARY, "server_receives": [CANARY]}
    (hostile / "result.json").write_text(json.dumps(result))
    config = (hostile / "config.yaml").read_text()
    (hostile / "config.yaml").write_text(
        config.replace("dataset_name: null", f"dataset_name: {json.dumps(CANARY)}").replace(
            "cluster: ''", f"cluster: {json.dumps(CANARY)}"
        )
    )
    half = root / "half"
    half.mkdir()
    begin = {"begin": {"algorithm": CANARY, "dataset": CANARY, "metric": CANARY}, "after": 0}
    line = {"round": 3, "refused": {CANARY: 2}, "bytes_down": 9, "part": CANARY}
    lines = [begin | {"rounds": 9}, line | {"metrics": {CANARY: 0.5}}]
    (half / "rounds.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    write_federation(root / "federation")
    write_paper(root / "paper")
    (root / f"{NAME}.csv").write_text(f"user_id,item_id,{NAME}\n1,2,{NAME}\n1,3,4\n2,2,1\n")
    return root


def write_federation(folder: Path) -> None:
    folder.mkdir()
    status = {
        "state": "stopped",
        "round": 3,
        "rounds": 9,
        "nodes": 2,
        "enrolled": 2,
        "users": 10,
        "silent": [CANARY],
        "last_contact": {CANARY: "2026-01-01T00:00:00+00:00", "ann": "2026-01-01T00:00:00+00:00"},
        "updates": 30,
        "dropped": 1,
        "refused": {"malformed update": 3},
        "last_refused": {"malformed update": CANARY},
        "bytes_up": 1000,
        "bytes_down": 2000,
        "epsilon": 5.0,
        "epsilon_spent": 1.25,
        "metrics": {},
        "note": CANARY,
    }
    (folder / "terms.json").write_text("{}")
    (folder / "status.json").write_text(json.dumps(status))


def write_paper(folder: Path) -> None:
    folder.mkdir()
    part = {"verdict": "holds", "evidence": CANARY, "effect": None}
    claim = {
        "said": f"said {CANARY}",
        "where": CANARY,
        "verdict": ORDER[0],
        "ours": False,
        "by": {CANARY: {"verdict": ORDER[0], "parts": [part]}},
    }
    found = {
        "paper": "fedfast",
        "title": f"A paper {CANARY}",
        "reference": CANARY,
        "quick": True,
        "missing": CANARY,
        "command": CANARY,
        "items": [{"title": CANARY, "about": CANARY, "claims": [claim]}],
    }
    (folder / "found.json").write_text(json.dumps(found))


def pages(console: Console, folder: Path) -> dict[str, str]:
    """Address -> a text that the page shows."""

    def of(*names: str) -> str:
        return "&".join(f"run={id_of(folder / name)}" for name in names)

    base = f"{console.url}#"
    return {
        f"{base}/runs": "fedavg-0",
        f"{base}/compare?{of('fedavg-0', 'fedavg-1', 'popular-0', 'popular-1')}": "Paired tests",
        f"{base}/compare?{of('fedavg-0', 'hostile')}": "Settings that differ",
        f"{base}/run?{of('fedavg-0')}": "What the server receives",
        f"{base}/run?{of('hostile')}": "What the server receives",
        f"{base}/run?{of(NAME)}": "Result",
        f"{base}/run?{of('half')}": "Round 3 of 9",
        f"{base}/run?{of('federation')}": "Nodes at the end",
        f"{base}/start": "Settings of fedfast",
        f"{base}/papers": "A paper",
    }


@pytest.mark.long
@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_is_whole(console: Console, folder: Path, chromium: Any, width: int) -> None:
    """Every text of the data is a canary: none is executed, and none becomes an element."""
    tab = Tab(chromium, width)
    tab.open(f"{console.url}#token={console.token}", "May start and stop runs")
    assert console.token not in tab.page.url
    for address, sees in pages(console, folder).items():
        tab.is_whole(address, sees)
    assert tab.problems == []
    tab.asked_only(console)


def test_canaries_are_shown_as_they_are(console: Console, folder: Path, chromium: Any) -> None:
    tab = Tab(chromium)
    tab.open(f"{console.url}#/runs", NAME)
    assert NAME in tab.text(".runs-table td.name a")
    tab.open(f"{console.url}#/run?run={id_of(folder / 'federation')}", "Nodes at the end")
    assert CANARY in tab.text("#main td")
    tab.open(f"{console.url}#/papers", "A paper")
    assert tab.page.get_by_text(CANARY, exact=True).count() > 1
    assert tab.problems == []


def test_search_filter_sort_and_select(console: Console, chromium: Any) -> None:
    tab = Tab(chromium)
    page = tab.page
    tab.open(f"{console.url}#/runs", "fedavg-0")

    def names() -> list[str]:
        return tab.text(".runs-table td.name a")

    page.keyboard.press("/")
    page.keyboard.type("popular seed 1")
    assert names() == ["popular-1"]
    page.get_by_label("Search runs").fill("")
    page.get_by_label("Any algorithm").select_option("fedavg")
    page.get_by_role("button", name="Run", exact=True).click()
    assert names() == ["fedavg-0", "fedavg-1"]
    page.get_by_role("button", name="Run", exact=True).click()
    assert names() == ["fedavg-1", "fedavg-0"]
    for name in ("fedavg-0", "fedavg-1"):
        page.get_by_label(f"Select {name}").check()
    assert "coterie report" in tab.text(".command-line")[0]
    page.get_by_role("button", name="Compare 2 runs").click()
    page.get_by_text("1 method, 2 runs").wait_for()
    assert tab.problems == []


@pytest.mark.long
def test_figures_are_saved_and_the_axis_changes(
    console: Console, folder: Path, chromium: Any, tmp_path: Path
) -> None:
    tab = Tab(chromium)
    page = tab.page
    ids = "&".join(f"run={id_of(folder / name)}" for name in ("fedavg-0", "fedavg-1"))
    tab.open(f"{console.url}#/compare?{ids}", "Metrics")
    page.locator(".figure .main-svg").first.wait_for()
    page.get_by_role("button", name="megabytes").first.click()
    saved = {}
    for kind in ("SVG", "PNG", "CSV"):
        with page.expect_download() as waiting:
            page.get_by_role("button", name=f"Save HR@10 as {kind}").click()
        saved[kind] = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(saved[kind])
    assert saved["SVG"].read_text().startswith("<svg")
    assert saved["PNG"].read_bytes().startswith(b"\x89PNG")
    header, *rows = saved["CSV"].read_text().splitlines()
    assert header == "series,megabytes,HR@10,low,high"
    assert len(rows) == 4
    line = run_folder.read_metrics(folder / "fedavg-0")[0]
    first = (line["bytes_up"] + line["bytes_down"]) / 1e6
    assert float(rows[0].split(",")[1]) == pytest.approx(first, rel=0.05)
    assert tab.problems == []


@pytest.mark.long
def test_a_token_is_asked_for_and_checked(console: Console, folder: Path, chromium: Any) -> None:
    tab = Tab(chromium)
    page = tab.page
    tab.open(f"{console.url}#/start", "Settings of fedfast")
    page.get_by_role("button", name="Start", exact=True).click()
    page.locator("dialog input").fill("wrong")
    page.get_by_role("button", name="Enter", exact=True).click()
    page.get_by_text("the token is wrong").wait_for()
    # The browser itself reports the refusal; nothing else is wrong.
    assert all("403" in problem for problem in tab.problems)
    tab.problems.clear()
    page.locator("dialog input").fill(console.token)
    page.get_by_role("button", name="Enter", exact=True).click()
    page.get_by_text("May start and stop runs").wait_for()
    page.get_by_text("The same on the command line").wait_for()
    page.locator("#setting-rounds").fill("0")
    page.get_by_text("setting 'rounds' is 0").wait_for()
    page.locator("#setting-rounds").fill("7")
    page.get_by_text("--set rounds=7").wait_for()
    page.locator("#dataset").select_option(str(folder / f"{NAME}.csv"))
    page.get_by_role("button", name="Look at the data").click()
    page.get_by_text("First rows").wait_for()
    assert NAME in tab.text("#main td")
    assert page.locator("main img").count() == 0
    page.locator("#role-rating").select_option("item_id")
    page.get_by_text("Uses column item_id.").first.wait_for()
    assert all("422" in problem for problem in tab.problems)
