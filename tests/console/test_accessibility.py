"""axe-core finds no serious fault on the pages of the console."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from axe import faults
from browser import needs_browser
from browsing import Tab
from consoles import serving

import coterie
from coterie.console.folders import id_of
from coterie.console.recordings.record import record_run

pytest.importorskip("fastapi")
pytest.importorskip("plotly")
pytestmark = [pytest.mark.slow, pytest.mark.long, needs_browser]

SMALL: dict[str, Any] = {"n_users": 60, "n_items": 40, "n_groups": 2, "mean_interactions": 10}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_console(runs: Path, tmp_path: Path, chromium: Any, axe: str, scheme: str) -> None:
    root = tmp_path / "runs"
    shutil.copytree(runs, root)
    coterie.run("fedfast", rounds=4, clusters=3, out=root / "fedfast", **SMALL)
    coterie.run("pfpl+", epochs=3, disclosure="uniform(0, 1)", out=root / "pfpl", **SMALL)
    for name in ("fedfast", "pfpl"):
        record_run(root / name).write(root / name)
    fast = id_of(root / "fedfast")
    pages = {
        "/runs": "fedavg-0",
        f"/compare?run={id_of(root / 'fedavg-0')}&run={id_of(root / 'fedavg-1')}": "Metrics",
        f"/run?run={fast}": "What the server receives",
        "/start": "Settings of fedfast",
        "/papers": "No reproductions yet",
        "/clusters": "Choose a run",
        f"/clusters?run={fast}&user=3": "Inspect this user",
        f"/clusters?run={id_of(root / 'fedavg-0')}": "not recorded yet",
        f"/user?run={fast}": "60 users",
        f"/user?run={id_of(root / 'pfpl')}&user=3": "What attackers infer",
    }
    with serving(root) as console:
        tab = Tab(chromium, scheme=scheme)
        found = {}
        for where, sees in pages.items():
            tab.open(f"{console.url}#{where}", sees)
            tab.page.wait_for_timeout(500)
            found[where] = faults(tab.page, axe)
    assert {where: each for where, each in found.items() if each} == {}
