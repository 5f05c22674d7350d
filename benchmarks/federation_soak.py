"""Many rounds while nodes are killed and restarted: does anything grow? Prints JSON.

    python benchmarks/federation_soak.py --rounds 1000 --kill-every 4

`quorum: 1.0` makes the server repeat a round until every node has answered, so that the model must
be that of an undisturbed simulation, bit for bit. Memory, open files and threads of the server and
of the node that is never killed are sampled every second; slopes are those of a straight line
through the second half of the samples, in MB an hour.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from federation_rounds import Site, megabytes

import coterie


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="ml-100k")
    parser.add_argument("--algorithm", default="fedfast")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--participation", type=float, default=0.03)
    parser.add_argument("--kill-every", type=float, default=4.0, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1800)
    given = parser.parse_args()
    settings = {
        "algorithm": given.algorithm,
        "rounds": given.rounds,
        "participation": given.participation,
        "evaluate_every": given.rounds,
        "quorum": 1.0,
        "round_seconds": 30,
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
    samples: dict[str, list[Sample]] = {"server": [], "node": []}
    next_kill = began + kill_every
    while server.poll() is None:
        now = time.monotonic()
        if now > began + seconds:
            raise SystemExit("too slow")
        if now > next_kill:
            # The first node is never killed, so that it can grow.
            victim = draws.randrange(1, site.n_nodes)
            nodes[victim].send_signal(signal.SIGKILL)
            nodes[victim].wait()
            nodes[victim] = site.join(victim)
            kills += 1
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


def growth(samples: list[Sample]) -> dict[str, float]:
    later = np.array(samples[len(samples) // 2 :])
    slope = np.polyfit(later[:, 0], later[:, 1], 1)[0] * 3600
    return {
        "megabytes": later[-1, 1],
        "megabytes_an_hour": round(float(slope), 1),
        "files": [int(later[0, 2]), int(later[:, 2].max()), int(later[-1, 2])],
        "threads": [int(later[0, 3]), int(later[:, 3].max()), int(later[-1, 3])],
    }


if __name__ == "__main__":
    main()
