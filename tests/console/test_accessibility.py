"""axe-core finds no serious fault on the pages of the console and on the device page.

It comes from npm into a temporary folder, for this test alone.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from browsing import Tab, browser, needs_browser
from consoles import serving

import coterie
from coterie.console.folders import id_of
from coterie.console.recordings.record import record_run

pytest.importorskip("fastapi")
pytest.importorskip("plotly")
pytestmark = [pytest.mark.slow, pytest.mark.long, needs_browser]

VERSION = "axe-core@4.10.3"
SERIOUS = ("serious", "critical")
SMALL: dict[str, Any] = {"n_users": 60, "n_items": 40, "n_groups": 2, "mean_interactions": 10}


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("axe")
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not here")
    command = [npm, "install", "--no-save", "--ignore-scripts", "--prefix", str(folder), VERSION]
    try:
        done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("npm does not answer")
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if done.returncode or not script.exists():
        pytest.skip(f"npm cannot fetch {VERSION}")
    return script.read_text()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as opened:
        yield opened


def faults(tab: Tab, axe: str) -> list[str]:
    """Serious faults of the page that is open. The debugger adds the script: the policy of the
    page would not."""
    tab.page.evaluate(axe)
    found = tab.page.evaluate("axe.run({ resultTypes: ['violations'] })")
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:120]}"
        for one in found["violations"]
        if one["impact"] in SERIOUS
    ]


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
            found[where] = faults(tab, axe)
    assert {where: each for where, each in found.items() if each} == {}


def test_the_device_page(chromium: Any, axe: str) -> None:
    """As it is before it has joined a federation."""
    static = Path(coterie.__file__).parent / "device" / "static"
    tab = Tab(chromium)
    tab.page.route("**/*", partial(answer, static))
    tab.page.goto("http://127.0.0.1/index.html")
    tab.page.wait_for_timeout(1000)
    assert tab.page.locator("h1, h2").count() > 0
    assert faults(tab, axe) == []


def answer(static: Path, route: Any) -> None:
    """The page's own files; there is no gateway."""
    name = route.request.url.split("/", 3)[3].removeprefix("static/")
    if (static / name).is_file():
        route.fulfill(path=static / name)
    else:
        route.fulfill(status=404, body="{}")
