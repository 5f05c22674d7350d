"""A live run in a real browser, from its first round to its end, with a console that restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browser import needs_browser
from browsing import Tab
from consoles import free_port, serving

from coterie.experiments import run_folder

pytest.importorskip("fastapi")
pytest.importorskip("plotly")
pytestmark = [pytest.mark.long, needs_browser]

RECORD = """
window.seen = []
const Usual = window.EventSource
window.EventSource = class extends Usual {
  constructor(address) {
    super(address)
    for (const name of ['begin', 'round']) {
      this.addEventListener(name, (event) => {
        const line = JSON.parse(event.data)
        const measured = 'metrics' in line
        window.seen.push({ name, id: Number(event.lastEventId), round: line.round, measured })
      })
    }
  }
}
"""
"""Keeps what the browser received, apart from what the page made of it."""
EVERY = 100
ROUNDS = 4_000
REQUEST = {
    "algorithm": "fedavg",
    "dataset": "synthetic",
    "settings": {
        "rounds": str(ROUNDS),
        "evaluate_every": str(EVERY),
        "n_users": "300",
        "n_items": "200",
    },
}


def test_nothing_is_lost_and_nothing_comes_twice(tmp_path: Path, chromium: Any) -> None:
    port = free_port()
    tab = Tab(chromium)
    page = tab.page
    page.add_init_script(RECORD)
    with serving(tmp_path, port=port) as first:
        run = first.write("/api/start", REQUEST).data["run"]
        tab.open(f"{first.url}#/run?run={run}", "running")
        page.locator(".measurements tbody tr").nth(2).wait_for(state="attached", timeout=60_000)
        assert tab.problems == []
    page.get_by_text("The console does not answer").wait_for()
    missed = page.evaluate("window.seen.length")
    page.wait_for_timeout(2_000)
    assert page.evaluate("window.seen.length") == missed
    with serving(tmp_path, port=port):
        page.get_by_text("The console does not answer").wait_for(state="hidden", timeout=30_000)
        page.locator(".badge.finished").wait_for(timeout=300_000)
        page.get_by_text("What the server receives").wait_for()
        seen = page.evaluate("window.seen")
        shown = [int(text) for text in tab.text(".measurements td:first-child")]
    expected = list(range(EVERY, ROUNDS + 1, EVERY))
    assert [one["round"] for one in seen if one["measured"]] == expected
    assert [one["name"] for one in seen].count("begin") == 1
    ids = [one["id"] for one in seen]
    assert ids == sorted(set(ids))
    (folder,) = tmp_path.iterdir()
    assert [line["round"] for line in run_folder.read_metrics(folder)] == expected
    assert shown == expected
    # While the console was away, requests failed; nothing else did.
    assert all("ERR_" in problem for problem in tab.problems)
