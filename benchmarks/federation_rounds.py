"""How long a round of a federation takes, and what its processes cost. Prints JSON.

    python benchmarks/federation_rounds.py
    python benchmarks/federation_rounds.py --nodes 3 --rounds 100 --set secure_aggregation=ring

A server and nodes on this machine, started by the documented commands, with TLS and keys.
`first_result_seconds` is the time from the start of the last node to the end of the first round,
`median_round_seconds` that of the server's own durations. `equal` says whether the model is that of
the simulator, bit for bit. `idle` is what a node costs while it waits: share of a core, and MB, at
once after training, and after it has given back the memory of training. `answer_milliseconds` is
the time in which a node answers for 10 users, when warm.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

import numpy as np
import pandas as pd

import coterie
from coterie.algorithms.registry import algorithm
from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.deployment import certificates
from coterie.deployment.enrolment import FederationTerms
from coterie.deployment.fleet import join
from coterie.deployment.fleet.join import NodeUsers
from coterie.deployment.key_making import make_key
from coterie.deployment.node_private_store import NodeStore
from coterie.deployment.node_service import TRAIN, NodeService
from coterie.deployment.server import serve
from coterie.deployment.server_config import ServerConfig
from coterie.experiments import run_folder

COTERIE = [sys.executable, "-m", "coterie.cli.main"]
IDLE_SECONDS = 10.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="ml-100k")
    parser.add_argument("--algorithm", default="fedfast")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--participation", type=float, default=0.03)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--without-idle", action="store_true", help="measure rounds only")
    given = parser.parse_args()
    settings = {
        "algorithm": given.algorithm,
        "evaluate_every": given.rounds,
        **length(given.algorithm, given.rounds, given.participation),
        **dict(part.split("=", 1) for part in given.set),
    }
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        site = Site(Path(folder), coterie.load(given.dataset), given.nodes, settings)
        stack.callback(site.stop)
        print(json.dumps(site.measure(given.seconds, not given.without_idle)))


def length(name: str, rounds: int, participation: float) -> dict[str, Any]:
    """Settings for so many rounds; of FPL, in which every member takes part, as many epochs."""
    wanted = {"rounds": rounds, "participation": participation}
    if "rounds" not in algorithm(name).settings.model_fields:
        wanted = {"epochs": rounds, "rounds_an_epoch": 1}
    return wanted


class Site:
    """A folder with the files of a federation, and its processes."""

    def __init__(
        self, folder: Path, data: Interactions, n_nodes: int, settings: dict[str, Any]
    ) -> None:
        self.folder = folder
        self.n_nodes = n_nodes
        self.n_users = data.n_users
        self.settings = settings
        self.children: list[subprocess.Popen[bytes]] = []
        self.server = f"127.0.0.1:{free_port()}"
        write_files(folder, data, n_nodes, settings)
        # As `coterie node key` and `coterie federation add` do, in one process for all nodes.
        certificates.init(folder / "keys", ["127.0.0.1"])
        for k in range(n_nodes):
            make_key(folder / "nodes", f"n{k}")
            certificates.add(folder / "keys", f"n{k}", folder / "nodes" / f"n{k}.pub")

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{len(self.children)}.log").open("wb")
        child = subprocess.Popen([*COTERIE, *command], cwd=self.folder, stdout=log, stderr=log)
        self.children.append(child)
        return child

    def serve(self, seconds: float) -> subprocess.Popen[bytes]:
        """Start the server, and wait until it listens."""
        options = ("--config", "fed.yaml", "--keys", "keys", "--out", "run")
        server = self.start("serve", *options, "--server", self.server)
        self.wait(lambda: b"serving at" in (self.folder / "0.log").read_bytes(), seconds)
        return server

    def measure(self, seconds: float, idle: bool = True) -> dict[str, Any]:
        server = self.serve(seconds)
        nodes = [self.join(k) for k in range(self.n_nodes)]
        began = time.monotonic()
        self.wait(lambda: self.status().get("round", 0) >= 1, seconds)
        first = time.monotonic() - began
        self.wait(lambda: server.poll() is not None, seconds)
        status = self.status()
        if server.returncode:
            raise SystemExit((self.folder / "0.log").read_text())
        found = {
            "nodes": self.n_nodes,
            **self.settings,
            "first_result_seconds": round(first, 2),
            "median_round_seconds": round(status["seconds_per_round"], 4),
            "total_seconds": round(time.monotonic() - began, 2),
            "unanswered": status["unanswered"],
            "equal": self.equals_simulation(),
        }
        if idle:
            found["idle"] = idle_cost(nodes[0].pid)
            found["answer_milliseconds"] = self.answer_milliseconds()
        return found

    def join(self, k: int) -> subprocess.Popen[bytes]:
        key = f"nodes/n{k}.key"
        return self.start(
            "join",
            "--data",
            f"{k}.csv",
            "--store",
            f"{k}.db",
            "--server",
            self.server,
            "--key",
            key,
            "--ca",
            "keys/ca.pem",
            "--as-simulated",
        )

    def status(self) -> dict[str, Any]:
        path = self.folder / "run" / "status.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def equals_simulation(self) -> bool:
        """Whether the model of a simulation with the federation's settings has the same bits."""
        config = run_folder.read_settings(self.folder / "run")
        simulated = coterie.run(**config | {"dataset": str(self.folder / "all.csv")})
        model = dict(run_folder.read_arrays(self.folder / "run", "model.npz"))
        expected = simulated.model.shared_arrays()
        return all(np.array_equal(model[name], array) for name, array in expected.items())

    def answer_milliseconds(self, users: int = 10, rounds: int = 30) -> float:
        """The median time in which a node with all users answers for `users` of them, when warm."""
        terms = FederationTerms.from_json((self.folder / "run" / "terms.json").read_text())
        config = terms.config | {"rounds": rounds, "participation": users / self.n_users}
        store = NodeStore.create(self.folder / "all.db")
        users_of_node = NodeUsers(self.folder / "all.csv", ReadOptions())
        users_of_node.put(store, users_of_node.read())
        node = TimedNode(NodeService(store))
        (self.folder / "timed").mkdir()
        service = ServerConfig(items="items.csv")
        serve(self.folder / "timed", replace(terms, config=config, run="timed"), node, service)
        store.close()
        return round(1000 * median(node.seconds[rounds // 3 :]), 2)

    def wait(self, until: Any, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not until():
            if time.monotonic() > end or self.children[0].poll():
                logs = [path.read_text()[-500:] for path in self.folder.glob("*.log")]
                raise SystemExit("\n".join(["stopped, or too slow", *logs]))
            time.sleep(0.02)

    def stop(self) -> None:
        for child in self.children:
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
        for child in self.children:
            child.wait(20)


class TimedNode:
    """One node in this process, and the time of its answers to training messages."""

    keyed = False
    refused: ClassVar[dict[str, int]] = {}
    last_refused: ClassVar[dict[str, str]] = {}

    def __init__(self, service: NodeService) -> None:
        self.service = service
        self.seconds: list[float] = []

    def fingerprint(self, name: str) -> str:
        return ""

    def limit_replies(self, kind: str, most_bytes: Mapping[str, int]) -> None:
        pass

    def signed(self, name: str, text: str, signature: str) -> bool:
        return False

    def joined(self) -> dict[str, int]:
        return {"node": 0}

    def send(
        self, kind: str, out: Mapping[str, bytes], seconds: float | None = None
    ) -> dict[str, bytes]:
        began = time.perf_counter()
        reply = self.service.answer(kind, out["node"])
        if kind == TRAIN:
            self.seconds.append(time.perf_counter() - began)
        return {"node": reply}


def write_files(folder: Path, data: Interactions, n_nodes: int, settings: dict[str, Any]) -> None:
    times = data.times if data.times is not None else np.zeros(len(data.users), int)
    users = data.user_ids[data.users]
    items = data.item_ids[data.items]
    whole = pd.DataFrame({"user_id": users, "item_id": items, "timestamp": times})
    whole.to_csv(folder / "all.csv", index=False)
    for k in range(n_nodes):
        whole[data.users % n_nodes == k].to_csv(folder / f"{k}.csv", index=False)
    pd.DataFrame({"item_id": data.item_ids}).to_csv(folder / "items.csv", index=False)
    keys = settings | {"items": "items.csv", "least_nodes": n_nodes}
    (folder / "fed.yaml").write_text("".join(f"{key}: {value}\n" for key, value in keys.items()))


def idle_cost(pid: int) -> dict[str, float]:
    """The share of a core and the memory of a process that waits."""
    before = cpu_seconds(pid)
    time.sleep(IDLE_SECONDS)
    share = (cpu_seconds(pid) - before) / IDLE_SECONDS
    warm = megabytes(pid)
    time.sleep(join.IDLE_SECONDS + 30)
    return {"core": round(share, 4), "warm_megabytes": warm, "megabytes": megabytes(pid)}


def megabytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    kilobytes = next(int(line.split()[1]) for line in status.splitlines() if "VmRSS" in line)
    return round(kilobytes / 1024, 1)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


if __name__ == "__main__":
    main()
