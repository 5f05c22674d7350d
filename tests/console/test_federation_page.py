"""A real federation in a real browser: followed while it trains, stopped by the page, resumed."""

from __future__ import annotations

import re
from typing import Any

import pytest
from browser import needs_browser
from browsing import Tab
from consoles import Console, serving
from deployment.test_federation import Site, keyed, site  # noqa: F401  a fixture

from coterie.console.folders import id_of

pytest.importorskip("fastapi")
pytest.importorskip("plotly")
pytestmark = [pytest.mark.long, needs_browser]

ROUNDS = 600
FEDERATION = f"embedding_size: 5\nrounds: {ROUNDS}\nparticipation: 0.3\nquorum: 1.0\n"
KINDS = {
    "metrics": "algorithm: fedfast\nclusters: 4\nevaluate_every: 20\n",
    "budget": "algorithm: fcf\nepsilon: 8\n",
}
SECONDS = 120_000


def tiles(tab: Tab) -> dict[str, str]:
    return dict(zip(tab.text(".tiles dt"), tab.text(".tiles dd"), strict=True))


def shown_round(tab: Tab) -> int:
    """The round that the page shows."""
    found = re.match(r"Round ([\d,]+) of 600", tab.text(".progress .round-count")[0])
    assert found is not None
    return int(found[1].replace(",", ""))


def begin(site: Site) -> None:  # noqa: F811
    """The server, which resumes if there is something to resume; nodes connect by themselves."""
    server = site.serve("--keys", "keys")
    site.wait(lambda: "serving at" in site.log(server), 60)


def watch(console: Console, chromium: Any, site: Site) -> Tab:  # noqa: F811
    tab = Tab(chromium)
    tab.open(f"{console.url}#token={console.token}", "May start and stop runs")
    tab.open(f"{console.url}#/run?run={id_of(site.folder / 'run')}", "Nodes connected")
    tab.page.locator(".title .badge.running").wait_for(timeout=SECONDS)
    tab.page.wait_for_function(
        "() => /^Round [1-9]/.test(document.querySelector('.round-count')?.textContent)",
        timeout=SECONDS,
    )
    return tab


@pytest.mark.parametrize("kind", KINDS)
def test_a_federation_is_followed_stopped_and_resumed(
    kind: str,
    site: Site,  # noqa: F811
    chromium: Any,
) -> None:
    site.files(2, FEDERATION + KINDS[kind])
    site.make_keys("ann", "bob")
    begin(site)
    for node, name in enumerate(("ann", "bob")):
        site.join(node, *keyed(name))
    site.wait((site.folder / "run" / "status.json").exists)
    with serving(site.folder) as console:
        tab = watch(console, chromium, site)
        page = tab.page
        page.get_by_role("heading", name="Nodes", exact=True).wait_for(timeout=SECONDS)
        check_progress(tab, kind)
        assert sorted(tab.text("section:has(h2:text-is('Nodes')) td:first-child")) == ["ann", "bob"]
        assert set(tab.text("section:has(h2:text-is('Nodes')) .badge")) == {"answers"}

        page.get_by_role("button", name="Stop").click()
        page.locator(".title .badge.stopped").wait_for(timeout=SECONDS)
        site.wait(lambda: site.started[0].poll() is not None, 60)
        stopped = site.status()["round"]
        assert 0 < stopped < ROUNDS
        page.get_by_text(f"Round {stopped} of {ROUNDS}").wait_for()
        # A federation is resumed where its keys are, not by the console.
        assert page.get_by_role("button", name="Resume").count() == 0
        page.get_by_text("coterie serve --config").wait_for()

        begin(site)
        page.locator(".title .badge.running").wait_for(timeout=SECONDS)
        page.wait_for_function(
            "round => Number(/Round ([\\d,]+)/.exec(document.querySelector('.round-count')"
            "?.textContent)?.[1].replaceAll(',', '')) > round",
            arg=stopped,
            timeout=SECONDS,
        )
        page.locator(".title .badge.finished").wait_for(timeout=3 * SECONDS)
        assert site.status()["round"] == ROUNDS
        assert tab.problems == []


def check_progress(tab: Tab, kind: str) -> None:
    """What the page says while the federation trains, against what comes a moment later."""
    first = shown_round(tab)
    tab.page.wait_for_timeout(3_000)
    assert first < shown_round(tab) < ROUNDS
    found = tiles(tab)
    assert found["Nodes connected"].startswith("2")
    assert found["Users"].startswith("200")
    assert found["Refused"].startswith("0")
    assert re.match(r"\d[\d,.]* [kM]?B", found["Sent by nodes"])
    assert tab.page.get_by_text(re.compile("about .* left")).count() == 1
    if kind == "budget":
        spent = float(re.match(r"[\d.]+", found["Privacy spent"])[0])  # type: ignore[index]
        assert 0 < spent < 8
        assert "of ε = 8" in found["Privacy spent"]
    else:
        assert "Privacy spent" not in found
        tab.page.get_by_text("during training").wait_for(timeout=SECONDS)
