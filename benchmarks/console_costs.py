"""How fast the console opens a folder of 500 runs, and what 20 viewers cost a run. Prints JSON.

    python benchmarks/console_costs.py
    python benchmarks/console_costs.py --repeats 5 --only viewers

`open` starts `coterie console` on 500 runs and measures the first reply with all of them, and the
second one, when nothing has changed. `page_seconds` are five openings in Chromium, from the request
of the page to the frame with the first rows, by the browser's own clock, where Playwright is
installed; the quietest one counts, since other programs may share the machine. `viewers` trains the
same run alone and with 20 connections that follow it, in turns, and compares the processor time and
the duration of training. The server of the console and the run share the machine, as they do for
somebody who watches an own run.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib import util
from pathlib import Path
from typing import Any, NamedTuple

import coterie
from coterie.console.folders import id_of

MOST_OPEN_SECONDS = 1.0
MOST_RATIO = 1.05
OPENINGS = 5
PAINTED = """
const look = () => {
  if (!document.querySelector('.runs-table tbody tr')) return requestAnimationFrame(look)
  // The frame after the one in which the rows are there has them on the screen.
  requestAnimationFrame(() => { window.painted = performance.now() })
}
requestAnimationFrame(look)
"""
"""Notes when the first rows are on the screen, in milliseconds since the page was requested."""
COMMAND = [sys.executable, "-m", "coterie.cli.main"]


class Console(NamedTuple):
    process: subprocess.Popen[str]
    port: int
    token: str


class Trained(NamedTuple):
    """What one run took."""

    processor_seconds: float
    training_seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--viewers", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=6_000)
    parser.add_argument("--only", choices=["open", "viewers"])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found: dict[str, Any] = {}
        if given.only != "viewers":
            found["open"] = measure_open(Path(folder) / "many", given.runs)
        if given.only != "open":
            found["viewers"] = measure_viewers(Path(folder) / "one", given)
    print(json.dumps(found | {"load": os.getloadavg()}, indent=2))


def measure_open(folder: Path, n_runs: int) -> dict[str, Any]:
    template = folder / "run-0"
    coterie.run("fedavg", rounds=20, n_users=200, n_items=100, out=template)
    for number in range(1, n_runs):
        place = folder / f"run-{number}"
        place.mkdir()
        for name in ("config.yaml", "metrics.jsonl", "rounds.jsonl", "users.csv"):
            shutil.copyfile(template / name, place / name)
        # One run in ten is not finished: it is read from its log.
        if number % 10:
            shutil.copyfile(template / "result.json", place / "result.json")
    with serving(folder) as console:
        seconds = []
        for _ in range(2):
            began = time.perf_counter()
            found = get(console.port, "/api/runs")
            seconds.append(round(time.perf_counter() - began, 4))
            assert len(found["runs"]) == n_runs
        page = page_seconds(console, n_runs)
    return {
        "runs": n_runs,
        "first_seconds": seconds[0],
        "again_seconds": seconds[1],
        "page_seconds": page,
        "at_most": MOST_OPEN_SECONDS,
        "holds": max(*seconds, min(page, default=0.0)) <= MOST_OPEN_SECONDS,
    }


def page_seconds(console: Console, n_runs: int) -> list[float]:
    """Until a browser shows the first rows of the table, several times; [] without a browser."""
    browser = shutil.which("chromium")
    if browser is None or util.find_spec("playwright") is None:
        return []
    from playwright.sync_api import sync_playwright

    seconds = []
    with sync_playwright() as started:
        opened = started.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for _ in range(OPENINGS):
            page = opened.new_context().new_page()
            page.add_init_script(PAINTED)
            page.goto(f"http://127.0.0.1:{console.port}/#/runs")
            page.wait_for_function("() => window.painted")
            seconds.append(round(page.evaluate("window.painted") / 1000, 4))
            page.locator(".runs-table tbody tr").nth(n_runs - 1).wait_for()
            assert page.get_by_text(f"{n_runs} of {n_runs} runs").count() == 1
            page.close()
        opened.close()
    return seconds


def measure_viewers(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    folder.mkdir()
    train(folder / "warm-up", 50)
    alone = []
    watched = []
    console_seconds = []
    for number in range(given.repeats):
        alone.append(train(folder / f"alone-{number}", given.rounds))
        with serving(folder) as console:
            run = folder / f"watched-{number}"
            viewers = Viewers(console.port, id_of(run), given.viewers)
            before = processor_seconds(console.process.pid)
            watched.append(train(run, given.rounds, viewers))
            console_seconds.append(processor_seconds(console.process.pid) - before)
            viewers.check()
    ratios = {
        name: round(
            statistics.median(
                getattr(one, name) / getattr(other, name)
                for one, other in zip(watched, alone, strict=True)
            ),
            4,
        )
        for name in Trained._fields
    }
    seconds = statistics.median(one.training_seconds for one in watched)
    share = round(statistics.median(console_seconds) / seconds, 4)
    return {
        "viewers": given.viewers,
        "repeats": given.repeats,
        "training_seconds": round(seconds, 2),
        "alone": alone,
        "watched": watched,
        "ratio_of_processor_time": ratios["processor_seconds"],
        "ratio_of_training_time": ratios["training_seconds"],
        "console_share_of_a_core": share,
        "at_most": MOST_RATIO,
        # On a single core, the console would take its share from the run.
        "holds": max(ratios["processor_seconds"], 1 + share) <= MOST_RATIO,
    }


def train(folder: Path, rounds: int, viewers: Viewers | None = None) -> Trained:
    settings = {"rounds": rounds, "n_users": 1000, "evaluate_every": max(1, rounds // 100)}
    pairs = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    command = [*COMMAND, "run", "fedavg", *pairs, "--out", str(folder), "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        if viewers is not None:
            wait_for(folder / "rounds.jsonl")
            viewers.connect()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    result = json.loads((folder / "result.json").read_text())
    return Trained(round(used.ru_utime + used.ru_stime, 3), round(result["seconds"], 3))


class Viewers:
    """Connections that follow one run and read all that comes."""

    def __init__(self, port: int, run: str, number: int) -> None:
        self.port = port
        self.run = run
        self.bytes = [0] * number

    def connect(self) -> None:
        for number in range(len(self.bytes)):
            threading.Thread(target=self._follow, args=(number,), daemon=True).start()

    def _follow(self, number: int) -> None:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port)) as connection:
            connection.request("GET", f"/api/events?run={self.run}")
            stream = connection.getresponse()
            try:
                while block := stream.read1(1 << 16):
                    self.bytes[number] += len(block)
            except OSError:
                return

    def check(self) -> None:
        """Every viewer received the rounds."""
        assert min(self.bytes) > 10_000, self.bytes


@contextmanager
def serving(folder: Path) -> Iterator[Console]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    with subprocess.Popen(
        [*COMMAND, "console", str(folder), "--port", str(port)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as process:
        try:
            assert process.stdout is not None
            lines = "".join(process.stdout.readline() for _ in range(3))
            token = re.findall(r"#token=(\S+)", lines)[0]
            # The console reads all algorithms when it begins; this is not what is measured.
            get(port, "/api/choices")
            yield Console(process, port, token)
        finally:
            process.terminate()


def get(port: int, path: str) -> Any:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())


def processor_seconds(number: int) -> float:
    fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.05)


if __name__ == "__main__":
    main()
