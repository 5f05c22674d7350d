"""What a recording costs, and how many frames a second the map of 10,000 users has. Prints JSON.

    python benchmarks/console_map.py
    python benchmarks/console_map.py --users 2000 --rounds 20

`recording` trains FedFast and replays it with `coterie record`. `map` opens the page of clusters in
Chromium, with its processes on a single core, and plays all rounds; the page counts its frames
itself, and the milliseconds that drawing takes. The core also has the server of the console, which
is idle by then; on a machine with other work, compare cores and loads.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from importlib import util
from pathlib import Path
from typing import Any

from console_costs import serving

import coterie
from coterie.console.folders import id_of
from coterie.console.recordings.record import record_run
from coterie.console.recordings.recording import NAME

LEAST_RATE = 30.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--items", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--core", type=int, default=min(os.sched_getaffinity(0)))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        recorded = measure_recording(run, given)
        drawn = measure_map(run, given.core)
    print(json.dumps({"recording": recorded, "map": drawn, "load": os.getloadavg()}, indent=2))


def measure_recording(run: Path, given: argparse.Namespace) -> dict[str, Any]:
    trained = coterie.run(
        "fedfast", n_users=given.users, n_items=given.items, rounds=given.rounds, out=run
    )
    recording = record_run(run)
    recording.write(run)
    training = trained.result["seconds"]
    return {
        "users": given.users,
        "rounds": given.rounds,
        "training_seconds": round(training, 2),
        "replay_seconds": round(recording.seconds, 2),
        "ratio": round(recording.seconds / training, 2),
        "megabytes": round((run / NAME).stat().st_size / 1e6, 1),
        "difference_of_models": recording.difference,
    }


def measure_map(run: Path, core: int) -> dict[str, Any] | str:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None or util.find_spec("playwright") is None:
        return "needs Playwright and Chromium"
    from playwright.sync_api import sync_playwright

    os.sched_setaffinity(0, {core})
    with serving(run.parent) as console, sync_playwright() as started:
        opened = started.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = opened.new_page(viewport={"width": 1200, "height": 900})
        began = time.perf_counter()
        page.goto(f"http://127.0.0.1:{console.port}/#/clusters?run={id_of(run.resolve())}")
        page.get_by_role("button", name="Play").wait_for(timeout=60_000)
        seconds = time.perf_counter() - began
        page.get_by_role("button", name="Play").click()
        page.locator("canvas[data-rate]").wait_for()
        rates = []
        busy = []
        for _ in range(10):
            page.wait_for_timeout(1100)
            rates.append(float(page.locator("canvas").get_attribute("data-rate") or 0))
            busy.append(float(page.locator("canvas").get_attribute("data-milliseconds") or 0))
        opened.close()
    middle = sorted(rates)[len(rates) // 2]
    return {
        "core": core,
        "open_seconds": round(seconds, 2),
        "frames_a_second": rates,
        "median": middle,
        "milliseconds_a_frame": busy,
        "is_enough": middle >= LEAST_RATE,
    }


if __name__ == "__main__":
    main()
