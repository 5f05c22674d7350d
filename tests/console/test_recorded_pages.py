"""The pages of clusters and of users in a real browser, over recordings of real runs."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import needs_browser
from browsing import CANARY, WIDTHS, Tab
from consoles import Console, serving

import coterie
from coterie.console.folders import id_of
from coterie.console.recordings.record import record_run
from coterie.console.recordings.recording import NAME, Recording
from coterie.experiments import run_folder

pytest.importorskip("fastapi")
pytest.importorskip("plotly")
pytestmark = [pytest.mark.slow, needs_browser]

SMALL: dict[str, Any] = {"n_users": 60, "n_items": 40, "n_groups": 2, "mean_interactions": 10}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("recorded") / "runs"
    coterie.run("fedfast", rounds=6, clusters=4, participation=0.2, out=root / "fedfast", **SMALL)
    coterie.run("fedbso", rounds=3, clusters=3, out=root / "fedbso", **SMALL)
    rates = "uniform(0, 1)"
    coterie.run("pfpl+", epochs=4, disclosure=rates, out=root / "pfpl", **SMALL)
    coterie.run("fedavg", rounds=2, out=root / "new", **SMALL)
    coterie.run("ease", out=root / "ease", **SMALL)
    for name in ("fedfast", "fedbso", "pfpl"):
        record_run(root / name).write(root / name)
        with_canaries(root / name)
    with_canaries(root / "ease")
    federation = root / "federation"
    federation.mkdir()
    (federation / "terms.json").write_text("{}")
    (federation / "status.json").write_text(json.dumps({"state": "stopped", "round": 1}))
    return root


def with_canaries(run: Path) -> None:
    """Every id and title becomes markup that would change the title of the page."""
    catalogue = run_folder.read_catalogue(run)
    hostile = replace(
        catalogue,
        user_ids=np.array([f"{CANARY}{n}" for n in range(len(catalogue.user_ids))], object),
        item_ids=np.array([f"{CANARY}{n}" for n in range(len(catalogue.item_ids))], object),
        item_texts=np.array([f"{n} {CANARY}" for n in range(len(catalogue.item_ids))], object),
    )
    run_folder.write_catalogue(run, hostile)


def address(console: Console, page: str, run: Path, user: int | None = None) -> str:
    suffix = "" if user is None else f"&user={user}"
    return f"{console.url}#/{page}?run={id_of(run)}{suffix}"


@pytest.mark.long
@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_is_whole(console: Console, folder: Path, chromium: Any, width: int) -> None:
    """At both widths: nothing is executed, nothing overflows, nothing comes from elsewhere."""
    tab = Tab(chromium, width)
    pages = {
        f"{console.url}#/clusters": "Choose a run",
        f"{console.url}#/user": "Choose a run",
        address(console, "clusters", folder / "fedfast"): "Map of users",
        address(console, "clusters", folder / "fedbso", 3): "Inspect this user",
        address(console, "clusters", folder / "pfpl"): "Map of users",
        address(console, "clusters", folder / "new"): "not recorded yet",
        address(console, "clusters", folder / "ease"): "ease is centralised",
        address(console, "clusters", folder / "federation"): "A deployment cannot be shown",
        address(console, "user", folder / "federation"): "cannot be inspected",
        address(console, "user", folder / "pfpl"): "60 users",
        address(console, "user", folder / "pfpl", 3): "What attackers infer",
        address(console, "user", folder / "fedfast", 3): "There is no attacker for fedfast",
        address(console, "user", folder / "ease", 3): "add most to the score",
        address(console, "user", folder / "new", 3): "not recorded yet",
    }
    for where, sees in pages.items():
        tab.is_whole(where, sees)
    # The browser itself reports the refusal to inspect a federation.
    assert all("422" in problem or "409" in problem for problem in tab.problems), tab.problems
    tab.asked_only(console)


def test_the_scrubber_by_keyboard(console: Console, folder: Path, chromium: Any) -> None:
    """What the page says of a round is what the recording has."""
    found = Recording.read(folder / "fedfast").user_map
    assert found is not None
    tab = Tab(chromium)
    page = tab.page
    tab.open(address(console, "clusters", folder / "fedfast"), "Map of users")
    slider = page.locator("#round")
    assert slider.get_attribute("aria-valuetext") == "Round 0, before the first round"
    slider.focus()
    before = pixels(page)
    page.keyboard.press("ArrowRight")
    page.get_by_text("Round 1 of 6").wait_for()
    selected = int((found.selections[1] > 0).sum())
    assert slider.get_attribute("aria-valuetext") == f"Round 1, {selected} selected"
    assert pixels(page) != before
    page.keyboard.press("End")
    page.get_by_text("Round 6 of 6").wait_for()
    changed = int((found.clusters[6] != found.clusters[5]).sum())
    tiles = dict(zip(tab.text(".tiles dt"), tab.text(".tiles dd"), strict=True))
    assert tiles["Changed cluster"].startswith(f"{changed}{100 * changed / 60:.1f} %")
    page.keyboard.press("Home")
    page.get_by_text("Round 0 of 6").wait_for()
    assert pixels(page) == before
    assert tab.problems == []


@pytest.mark.long
def test_the_rounds_play_by_themselves(console: Console, folder: Path, chromium: Any) -> None:
    tab = Tab(chromium)
    page = tab.page
    tab.open(address(console, "clusters", folder / "fedfast"), "Map of users")
    page.get_by_role("button", name="Play").click()
    page.get_by_text("Round 6 of 6").wait_for(timeout=15_000)
    page.get_by_role("button", name="Play").wait_for()
    assert float(page.locator("canvas").get_attribute("data-rate")) > 0
    assert tab.problems == []


def pixels(page: Any) -> str:
    return str(page.evaluate("document.querySelector('canvas').toDataURL()"))


@pytest.mark.long
def test_a_user_is_found_on_the_map_and_inspected(
    console: Console, folder: Path, chromium: Any, tmp_path: Path
) -> None:
    tab = Tab(chromium)
    page = tab.page
    tab.open(address(console, "clusters", folder / "pfpl"), "Map of users")
    page.get_by_label("Find a user").fill("nobody")
    page.keyboard.press("Enter")
    page.get_by_text("No user on the map has the id nobody").wait_for()
    page.get_by_label("Find a user").fill(f"{CANARY}3"[:80])
    page.keyboard.press("Enter")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Save the map as CSV").click()
    saved = tmp_path / "users.csv"
    waiting.value.save_as(saved)
    assert len(saved.read_text().splitlines()) == 61
    tab.open(address(console, "user", folder / "pfpl", 3), "What attackers infer")
    recording = Recording.read(folder / "pfpl")
    assert recording.received is not None
    updates = recording.received.of(3)
    tiles = dict(zip(tab.text(".tiles dt"), tab.text(".tiles dd"), strict=True))
    assert tiles["Updates received"].startswith(str(len(updates)))
    assert tiles["Item rows received"] == str(sum(len(each.items) for each in updates))
    assert CANARY in tab.text("main h1")[0]
    history = run_folder.read_catalogue(folder / "pfpl").seen.of(3)
    heading = page.get_by_role("heading", name="History", exact=True)
    shown = page.locator("section", has=heading).locator("li")
    assert shown.count() == len(history)
    assert tab.problems == []


@pytest.mark.long
def test_a_run_is_recorded_with_the_token(console: Console, folder: Path, chromium: Any) -> None:
    run = {"run": id_of(folder / "new")}
    assert console.post("/api/record", run).status == 403
    assert not (folder / "new" / NAME).exists()
    tab = Tab(chromium)
    tab.open(f"{console.url}#token={console.token}", "May start and stop runs")
    tab.open(address(console, "clusters", folder / "new"), "not recorded yet")
    tab.page.get_by_role("button", name="Record this run").click()
    tab.page.get_by_text("Map of users").wait_for(timeout=60_000)
    assert tab.problems == []
    refused = console.write("/api/record", {"run": id_of(folder / "federation")})
    assert refused.status >= 400
    assert "cannot be recorded" in refused.data["error"]


def test_command_lines_of_a_user_make_what_the_page_shows(
    console: Console, folder: Path, tmp_path: Path
) -> None:
    root = tmp_path / "a run"
    shutil.copytree(folder / "pfpl", root)
    catalogue = run_folder.read_catalogue(root)
    names = [f"-user {n}; $(false) 'x'" for n in range(len(catalogue.user_ids) - 1)]
    # A line break in a pasted line would run what stands before it.
    ids = np.array([*names, "a\nb"], object)
    run_folder.write_catalogue(root, replace(catalogue, user_ids=ids))
    with serving(tmp_path) as own:
        run = id_of(root.resolve())
        found = own.get(f"/api/user?run={run}&user=3").data
        last = own.get(f"/api/user?run={run}&user=59").data
    recommends, infers = (shlex.split(each["command"]) for each in found["commands"])
    shown = [item["id"] for item in found["user"]["recommended"]]
    printed = json.loads(output_of([*recommends, "--json"]))
    assert [item["item"] for item in printed["items"]] == shown
    inferred = Recording.read(root).inferred
    assert inferred is not None
    figures = json.loads(output_of([*infers, "--json"]))["figures"]
    means = {each["attacker"]: each["claims"] for each in figures if each["pi"] == "all"}
    shown_means = inferred.claims[-1].mean(axis=1).tolist()
    assert means == pytest.approx(dict(zip(inferred.attackers, shown_means, strict=True)))
    assert [each["command"].split()[1] for each in last["commands"]] == ["disclosure"]
    item_based = console.get(f"/api/user?run={id_of(folder / 'ease')}&user=3").data
    assert shlex.split(item_based["commands"][0]["command"])[-1] == "--why"


def output_of(command: list[str]) -> str:
    assert command[0] == "coterie"
    done = subprocess.run(
        [sys.executable, "-m", "coterie.cli.main", *command[1:]],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_one_click_copies_the_command_line_of_a_user(
    console: Console, folder: Path, chromium: Any
) -> None:
    tab = Tab(chromium)
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab.open(address(console, "user", folder / "ease", 3), "The recommendations on the command")
    heading = tab.page.get_by_role("heading", name="The recommendations on the command line")
    card = tab.page.locator("section", has=heading)
    card.get_by_role("button", name="Copy").click()
    card.get_by_role("button", name="Copied").wait_for()
    copied = tab.page.evaluate("navigator.clipboard.readText()")
    user_id = str(run_folder.read_catalogue(folder / "ease").user_ids[3])
    expected = ["coterie", "recommend", str(folder / "ease"), f"--user={user_id}", "--why"]
    assert shlex.split(copied) == expected


def test_hostile_requests_are_refused(console: Console, folder: Path) -> None:
    run = id_of(folder / "pfpl")
    for path in (
        "/api/map?run=../../etc/passwd",
        f"/api/map/points?run={id_of(folder / 'new')[::-1]}",
        f"/api/user?run={run}&user=60",
        f"/api/user?run={run}&user=-1",
        f"/api/user?run={run}&user=1e9",
        f"/api/users?run={run}&search={'x' * 300}",
        f"/api/users?run={id_of(folder / 'federation')}",
    ):
        reply = console.get(path)
        assert 400 <= reply.status < 500, path
        assert "Traceback" not in reply.body.decode()


@pytest.mark.long
def test_a_damaged_recording_is_an_error_of_one_line(tmp_path: Path, runs: Path) -> None:
    shutil.copytree(runs / "fedavg-0", tmp_path / "runs" / "one")
    (tmp_path / "runs" / "one" / NAME).write_bytes(b"PK\x03\x04 not a recording")
    with serving(tmp_path / "runs") as console:
        run = id_of((tmp_path / "runs" / "one").resolve())
        for path in (
            f"/api/map?run={run}",
            f"/api/map/points?run={run}",
            f"/api/user?run={run}&user=0",
        ):
            reply = console.get(path)
            assert 400 <= reply.status < 500
            assert "coterie record" in reply.data["error"]
