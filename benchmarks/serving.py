"""How fast `coterie api` recommends, and whether a reload under load fails a request. Prints JSON.

    python benchmarks/serving.py
    python benchmarks/serving.py --dataset ml-100k --seconds 5

Trains FedALS for a few rounds, starts `coterie api` by its command on one core, and loads it from
another process. `single` and `batch` send as fast as the server answers. `half` sends half of the
2,000 recommendations a second at fixed times: a request that had to wait for the previous reply
counts from the time at which it was due. `reload` replaces the model while requests run.
`per_core_second` is the rate by the processor time that the server used: what it would reach with a
core of its own, where other programs share the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import coterie

TARGET = 2_000
"""Recommendations a second that one core must reach."""
SINGLE = "single"
BATCH = "batch"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="ml-1m")
    parser.add_argument("--embedding-size", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", nargs=2, help="Two finished runs, instead of training them.")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        print(json.dumps(asyncio.run(load(json.loads(given.work)))))
        return
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(Path(folder), given), indent=2))


def measure(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    runs = [folder / "first", folder / "second"]
    for n, run in enumerate(runs):
        if given.runs:
            shutil.copytree(given.runs[n], run)
        else:
            train(run, given, seed=n + 1)
    served = folder / "served"
    served.symlink_to(runs[0])
    port = free_port()
    core = sorted(os.sched_getaffinity(0))[0]
    server = start_server(served, port, core)
    try:
        users = [str(user) for user in coterie.Run.load(runs[0]).catalogue.user_ids]
        work = {
            "port": port,
            "users": users,
            "connections": given.connections,
            "seconds": given.seconds,
            "batch_size": given.batch_size,
        }
        one_by_one = per_core(server.pid, lambda: client(work | {"kind": SINGLE}))
        batches = per_core(server.pid, lambda: client(work | {"kind": BATCH}))
        half = {"rate": TARGET / 2}
        half_single = client(work | {"kind": SINGLE} | half)
        half_batch = client(work | {"kind": BATCH} | half)
        under_reload = reload_under_load(work | {"kind": SINGLE} | half, served, runs)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(20)
    return {
        "dataset": given.dataset,
        "users": len(users),
        "load_average": os.getloadavg()[0],
        "single": one_by_one,
        "batch": batches,
        "half_load_single": half_single,
        "half_load_batch": half_batch,
        "reload": under_reload,
        "server_exit_code": server.returncode,
    }


def train(out: Path, given: argparse.Namespace, seed: int) -> None:
    coterie.run(
        "fedals",
        given.dataset,
        seed=seed,
        out=out,
        embedding_size=given.embedding_size,
        rounds=given.rounds,
        evaluate_every=given.rounds,
    )


def start_server(served: Path, port: int, core: int) -> subprocess.Popen[bytes]:
    """The server on one core, once it answers."""
    command = [sys.executable, "-m", "coterie.cli.main", "api", str(served)]
    server = subprocess.Popen(
        [*command, "--address", f"127.0.0.1:{port}"],
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        stdout=subprocess.DEVNULL,
    )
    end = time.monotonic() + 120
    while time.monotonic() < end and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return server
    raise SystemExit(f"the server did not start (exit code {server.poll()})")


def client(work: dict[str, Any]) -> dict[str, Any]:
    """The figures of a client in its own process."""
    return finished(start_client(work))


def per_core(server: int, measured: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Figures, with the recommendations by processor time of the server."""
    before = processor_seconds(server)
    figures = measured()
    used = processor_seconds(server) - before
    return figures | {"per_core_second": round(figures["recommendations"] / used)}


def processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start_client(work: dict[str, Any]) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--work", json.dumps(work)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def finished(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = process.communicate(timeout=300)
    return dict(json.loads(out))


def reload_under_load(work: dict[str, Any], served: Path, runs: list[Path]) -> dict[str, Any]:
    """Figures of requests during which the model is replaced several times."""
    process = start_client(work)
    swaps = 0
    end = time.monotonic() + work["seconds"]
    while time.monotonic() < end:
        time.sleep(2)
        swaps += 1
        fresh = served.with_name("fresh")
        fresh.symlink_to(runs[swaps % 2])
        fresh.replace(served)
    return finished(process) | {"models_written": swaps}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


# The client: raw HTTP over asyncio, because a library would take longer than the server


@dataclass
class Figures:
    latencies: list[float] = field(default_factory=list)
    recommended: int = 0
    errors: int = 0
    versions: set[str] = field(default_factory=set)


async def load(work: dict[str, Any]) -> dict[str, Any]:
    """Send requests for some seconds; returns rate, latencies and errors."""
    figures = Figures()
    drawn = np.random.default_rng(0).choice(work["users"], 100_000).tolist()
    place = 0
    began = time.perf_counter()
    end = began + work["seconds"]
    n_connections = work["connections"]
    size = work["batch_size"] if work["kind"] == BATCH else 1
    gap = n_connections * size / work["rate"] if "rate" in work else 0.0

    def next_users() -> list[str]:
        nonlocal place
        place = (place + size) % (len(drawn) - size)
        return drawn[place : place + size]

    async def connection(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", work["port"])
        due = began + gap * number / n_connections
        while (now := time.perf_counter()) < end:
            sent = min(due, now) if gap else now
            if now < due:
                await asyncio.sleep(due - now)
                # The client's own clock may wake it late, which is not the server's time.
                sent = time.perf_counter()
            writer.write(request(work["kind"], next_users()))
            body = await reply(reader)
            figures.latencies.append(time.perf_counter() - sent)
            if body is None:
                figures.errors += 1
            else:
                figures.recommended += size
                figures.versions.add(body[-20:-2].decode())
            due += gap
        writer.close()

    await asyncio.gather(*(connection(n) for n in range(n_connections)))
    seconds = time.perf_counter() - began
    ordered = np.sort(figures.latencies) * 1000
    return {
        "recommendations": figures.recommended,
        "recommendations_per_second": round(figures.recommended / seconds),
        "requests_per_second": round(len(ordered) / seconds),
        "p50_ms": round(float(np.percentile(ordered, 50)), 2),
        "p95_ms": round(float(np.percentile(ordered, 95)), 2),
        "p99_ms": round(float(np.percentile(ordered, 99)), 2),
        "errors": figures.errors,
        "versions": len(figures.versions),
    }


def request(kind: str, users: list[str]) -> bytes:
    if kind == SINGLE:
        path = f"/recommendations?user={users[0]}&n=10"
        return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    body = json.dumps({"users": users, "n": 10})
    return (
        "POST /recommendations/batch HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


async def reply(reader: asyncio.StreamReader) -> bytes | None:
    """The body of a reply; None if it is not a success."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    body = await reader.readexactly(length)
    return body if head.startswith(b"HTTP/1.1 200") else None


if __name__ == "__main__":
    main()
