"""Many nodes of one server: how long a round takes, and what the server needs. Prints JSON.

    python benchmarks/federation_load.py --nodes 100
    python benchmarks/federation_load.py --nodes 1000 --dataset ml-1m --rounds 5

The server is `coterie serve` with TLS and keys. Nodes are threads of a few processes, each with its
own store, key and connection, and the code of `coterie join`. Every node takes part in every round:
`participation` is 1 unless it is set. `lost` counts messages without a reply.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from federation_rounds import Site

import coterie
from coterie import kernels
from coterie.algorithms.registry import algorithm
from coterie.data.options import ReadOptions
from coterie.deployment.address import Address
from coterie.deployment.fleet.client import FleetClient
from coterie.deployment.fleet.join import NodeUsers
from coterie.deployment.fleet.listener import allow_connections
from coterie.deployment.fleet.node_loop import NodeLoop
from coterie.deployment.node_private_store import NodeStore
from coterie.deployment.node_service import NodeService

SWITCH_SECONDS = 0.05
"""How long a thread of a node keeps the interpreter; 0.005 by default."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="ml-100k")
    parser.add_argument("--algorithm", default="fedfast")
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--participation", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=1800, help="to wait for round 1")
    given = parser.parse_args()
    settings = {
        "algorithm": given.algorithm,
        "rounds": given.rounds,
        "participation": given.participation,
        "evaluate_every": given.rounds,
        "round_seconds": 300,
        "wait_seconds": given.seconds,
    }
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        site = Site(Path(folder), coterie.load(given.dataset), given.nodes, settings)
        stack.callback(site.stop)
        print(json.dumps(measure(site, given.processes, given.seconds)))


def measure(site: Site, n_processes: int, seconds: float) -> dict[str, Any]:
    server = site.serve(seconds)
    context = multiprocessing.get_context("spawn")
    shares = [range(k, site.n_nodes, n_processes) for k in range(n_processes)]
    hosts = [
        context.Process(
            target=host,
            args=(str(site.folder), site.server, list(share), site.settings["algorithm"]),
            daemon=True,
        )
        for share in shares
    ]
    began = time.monotonic()
    for process in hosts:
        process.start()
    site.wait(lambda: site.status().get("round", 0) >= 1, seconds)
    first = time.monotonic() - began
    most = 0
    while server.poll() is None:
        most = max(most, peak_megabytes(server.pid) or most)
        time.sleep(0.2)
    for process in hosts:
        process.kill()
    status = site.status()
    if server.returncode:
        raise SystemExit((site.folder / "0.log").read_text())
    return {
        "nodes": site.n_nodes,
        **site.settings,
        "first_result_seconds": round(first, 1),
        "median_round_seconds": round(status["seconds_per_round"], 3),
        "lost": status["unanswered"],
        "refused": status["refused"],
        "updates": status["updates"],
        "server_megabytes": most,
        "equal": site.equals_simulation(),
    }


def host(folder: str, server: str, nodes: list[int], name: str) -> None:
    """Run some of the nodes, each in a thread.

    Hundreds of threads of one process wait for each other as separate nodes do not. So kernels are
    loaded before, and threads ask for the interpreter less often.
    """
    allow_connections()
    sys.setswitchinterval(SWITCH_SECONDS)
    chosen = algorithm(name)
    for family in chosen.kernels_for(chosen.settings()):
        kernels.load(family)
    threads = [threading.Thread(target=node, args=(Path(folder), server, k)) for k in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def node(folder: Path, server: str, k: int) -> None:
    store = NodeStore.create(folder / f"{k}.db")
    users = NodeUsers(folder / f"{k}.csv", ReadOptions(), simulated=True)
    users.put(store, users.read())
    key = folder / "nodes" / f"n{k}.key"
    client = FleetClient.to(Address.of(server), key, folder / "keys" / "ca.pem")
    NodeLoop(client, NodeService(store).answer).run()


def peak_megabytes(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")]
    return found[0] // 1024 if found else 0


if __name__ == "__main__":
    main()
