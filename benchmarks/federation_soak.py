"""Many rounds while nodes are killed and restarted: does anything grow? Prints JSON.

    python benchmarks/federation_soak.py --rounds 4000 --kill-every 4

`quorum: 1.0` makes the server repeat a round until every node has answered, so that the model must
be that of an undisturbed simulation, bit for bit. A node is killed only when a round has ended
since the last kill, so that a busy machine makes the run longer and does not stop it. Memory
(VmRSS), open files and threads of the server and of the node that is never killed are sampled every
second. Of the second half of the samples, the first, the largest and the last are shown.
`megabytes_an_hour` are slopes of memory in it: Theil and Sen's, each with the ends of its 95 %
interval. `medians` goes through the medians of 10 seconds. Messages and TLS buffers that come and
go move them by 1 MB, so that a slope of 1 MB an hour needs 20 minutes or more to be seen; 1,000
rounds are not enough. `lowest` goes through the lowest samples of 30 seconds, which have few such
buffers: memory that is lost is in every sample, the lowest included.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from federation_rounds import Site, megabytes
from scipy.stats import theilslopes

import coterie

MEDIAN_OF = 10
"""Samples whose median counts."""
LOWEST_OF = 30
"""Samples whose lowest counts."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="ml-100k")
    parser.add_argument("--algorithm", default="fedfast")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=4000)
    parser.add_argument("--participation", type=float, default=0.03)
    parser.add_argument("--kill-every", type=float, default=4.0, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3600)
    given = parser.parse_args()
    settings = {
        "algorithm": given.algorithm,
        "rounds": given.rounds,
        "participation": given.participation,
        "evaluate_every": given.rounds,
        "quorum": 1.0,
        "round_seconds": 120,
    }
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        site = Site(Path(folder), coterie.load(given.dataset), given.nodes, settings)
        stack.callback(site.stop)
        print(json.dumps(soak(site, given.kill_every, given.seed, given.seconds)))


def soak(site: Site, kill_every: float, seed: int, seconds: float) -> dict[str, Any]:
    draws = random.Random(seed)
    server = site.serve(seconds)
    nodes = [site.join(k) for k in range(site.n_nodes)]
    site.wait(lambda: site.status().get("round", 0) >= 1, seconds)
    began = time.monotonic()
    kills = 0
    round_at_kill = 0
    samples: dict[str, list[Sample]] = {"server": [], "node": []}
    next_kill = began + kill_every
    while server.poll() is None:
        now = time.monotonic()
        if now > began + seconds:
            raise SystemExit("too slow")
        if now > next_kill and (round_now := site.status()["round"]) > round_at_kill:
            # The first node is never killed, so that it can grow.
            victim = draws.randrange(1, site.n_nodes)
            nodes[victim].send_signal(signal.SIGKILL)
            nodes[victim].wait()
            nodes[victim] = site.join(victim)
            kills += 1
            round_at_kill = round_now
            next_kill = now + kill_every * draws.uniform(0.5, 1.5)
        for name, pid in (("server", server.pid), ("node", nodes[0].pid)):
            if (sample := sample_of(pid, now - began)) is not None:
                samples[name].append(sample)
        time.sleep(1)
    if server.returncode:
        raise SystemExit((site.folder / "0.log").read_text())
    status = site.status()
    return {
        "nodes": site.n_nodes,
        **site.settings,
        "kills": kills,
        "seconds": round(time.monotonic() - began, 1),
        "median_round_seconds": round(status["seconds_per_round"], 3),
        "unanswered": status["unanswered"],
        "equal": site.equals_simulation(),
        **{name: growth(found) for name, found in samples.items()},
    }


Sample = tuple[float, float, int, int]
"""Time, megabytes, open files, threads."""


def sample_of(pid: int, now: float) -> Sample | None:
    try:
        files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
        return now, megabytes(pid), files, threads
    except (OSError, StopIteration):
        return None


def growth(samples: list[Sample]) -> dict[str, Any]:
    """What the second half of the samples shows."""
    later = np.array(samples[len(samples) // 2 :])  # (samples, 4)
    hours = later[:, 0] / 3600
    return {
        "megabytes_an_hour": {
            "medians": slope(hours, later[:, 1], MEDIAN_OF, np.median),
            "lowest": slope(hours, later[:, 1], LOWEST_OF, np.min),
        },
        **{
            name: [float(column[0]), float(column.max()), float(column[-1])]
            for name, column in zip(("megabytes", "files", "threads"), later.T[1:], strict=True)
        },
    }


def slope(
    hours: np.ndarray, megabytes: np.ndarray, window: int, summary: Callable[[np.ndarray], Any]
) -> list[float]:
    """The slope through one figure for each window, and the ends of its 95 % interval."""
    windows = max(2, len(hours) // window)
    x = [np.median(each) for each in np.array_split(hours, windows)]
    y = [summary(each) for each in np.array_split(megabytes, windows)]
    found = theilslopes(y, x)
    return [round(float(v), 2) for v in (found.slope, found.low_slope, found.high_slope)]


if __name__ == "__main__":
    main()
