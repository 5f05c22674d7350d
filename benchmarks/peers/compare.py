"""Seconds of a round beside those of peers, on the same samples, in one run. Prints JSON.

    benchmarks/peers/make_environment.sh             # once: Flower's simulation, in its own .venv
    python benchmarks/peers/compare.py [--algorithm fedavg|pfedrec] [--dataset ml-100k]
        [--repeats 3] [--only loop flower ...] [--as-published]

Everybody takes part, with 32 dimensions, one local epoch, four negatives, batches of 256, SGD:
FedAvg with GMF, or PFedRec with its authors' learning rates. All have the same samples, which are
drawn before the peers are timed; a round of Coterie draws its own. A round is training of all
clients and averaging; in PFedRec, Coterie's clients also score all items, and the peers' do not.

loop       a loop over clients in PyTorch, as published repositories have: a module, a DataLoader
           and an optimizer for each. PyTorch has one thread or all, whichever is faster. `best` is
           the fastest of: a DataLoader or slices of tensors, one process or one for every core.
flower     Flower's simulation with the same client in a ClientApp, FedAvg on the server; two
           clients at a time on two cores. `best` has slices of tensors.
implicit   an epoch of `implicit`'s centralised BPR in C++ with all threads, for scale: it trains
           on a triple for every interaction, not on five samples.

Rounds of Coterie are measured before and after every peer. `core` figures are CPU time of all
threads and processes, which does not depend on other load on the machine. `difference` is the
largest difference between the item rows that the loop and Coterie have after one round. A peer
that is not installed is skipped, which its entry says. `--as-published` leaves the fastest ways
out, which takes a third of the time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_clients import Job, train_client

from coterie.algorithms import registry
from coterie.algorithms.local.samples import draw
from coterie.core.progress import SILENT
from coterie.data.datasets import load
from coterie.data.splits import split
from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.federated import nodes, trainer
from coterie.federated.federation import AnyWorld, Federation
from coterie.federated.trainer import Context

FOLDER = Path(__file__).parent
PEERS = ("loop", "flower", "implicit")
FIGURES = ("round_s", "round_core_s", "best_s", "best_core_s")
CORES = os.cpu_count() or 1
WARM_UP = 5
ROUNDS = 20
BOTH: dict[str, Any] = {
    "participation": 1.0,
    "embedding_size": 32,
    "batch_size": 256,
    "average": "all",
}
"""`average=all` is what the peers compute: the mean over all clients."""
SETTINGS: dict[str, dict[str, Any]] = {
    "fedavg": BOTH | {"model": "gmf"},
    "pfedrec": BOTH | {"learning_rate": 0.1, "item_rate": 80.0, "start_scale": 1.0},
}
"""Of PFedRec, the settings in its authors' program."""


class OurRounds:
    """Rounds of Coterie, measured whenever asked."""

    def __init__(self, federation: Federation[Any, Any], world: AnyWorld, training: TrainingSet):
        engine = LocalEngine.over(world, training, 1)
        self.work = trainer.federated_trainer(federation, world, engine, Context(0, SILENT))
        self.first = self.work.start()[0]
        self.after_one = self.work.step(self.first, 1)[0]
        self.seconds: list[float] = []
        self.core_seconds: list[float] = []

    def measure(self) -> None:
        state = self.first
        for n in range(1, WARM_UP + ROUNDS + 1):
            began = time.perf_counter()
            spent = time.process_time()
            state = self.work.step(state, n)[0]
            if n > WARM_UP:
                self.seconds.append(time.perf_counter() - began)
                self.core_seconds.append(time.process_time() - spent)

    def medians(self) -> dict[str, float]:
        return {
            "round_s": round(statistics.median(self.seconds), 5),
            "round_core_s": round(statistics.median(self.core_seconds), 5),
        }


def job_of(algorithm: str, world: AnyWorld, training: TrainingSet, state: Any) -> Job:
    """The first round of Coterie, for a peer."""
    node_world, (node,) = nodes.share_out(world, training, 1)
    samples = draw(node_world, node.users, 0, node)
    rows = np.repeat(samples.offsets[:-1], samples.counts)
    s = world.settings
    personal = algorithm == "pfedrec"
    return Job(
        algorithm=algorithm,
        starts=samples.starts,
        items=samples.items[rows + samples.places],
        targets=samples.targets,
        own=state.score_functions if personal else state.user_rows,
        item_rows=state.item_rows,
        dense=np.empty(0, np.float32) if personal else state.dense,
        batch_size=s.batch_size,
        learning_rate=s.learning_rate,
        item_learning_rate=s.item_learning_rate(world.n_items) if personal else s.learning_rate,
        reg=0.0 if personal else s.reg,
    )


# The loop over clients


def averaged(job: Job, clients: range) -> dict[str, Tensor]:
    """The share of some clients in the mean of all models, trained one after the other."""
    shared = job.shared()
    all_weights = sum(job.weight(client) for client in range(job.n_clients))
    total = {name: torch.zeros_like(values) for name, values in shared.items()}
    for client in clients:
        model, _ = train_client(job, client, shared, torch.tensor(job.own[client]))
        weight = job.weight(client) / all_weights
        for name, values in total.items():
            values += weight * model[name]
    return total


def loop(job: Job) -> dict[str, Tensor]:
    """A round of all clients in this process."""
    return averaged(job, range(job.n_clients))


def part_of_loop(job: Job, first: int) -> dict[str, np.ndarray]:
    torch.set_num_threads(1)
    part = averaged(job, range(first, job.n_clients, CORES))
    return {name: values.numpy() for name, values in part.items()}


def loop_in_processes(job: Job, pool: ProcessPoolExecutor) -> dict[str, Tensor]:
    """A round in one process for every core."""
    parts = list(pool.map(partial(part_of_loop, job), range(CORES)))
    return {name: torch.tensor(sum(part[name] for part in parts)) for name in parts[0]}


def seconds(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def faster_threads(job: Job) -> int:
    """The faster number of threads for PyTorch: one or all."""
    taken = {}
    for threads in sorted({1, CORES}):
        torch.set_num_threads(threads)
        taken[threads] = seconds(partial(loop, job), 1)
    return min(taken, key=lambda threads: taken[threads])


def fastest_ways(job: Job, sliced: Job, repeats: int) -> dict[str, float]:
    """Seconds of a round in other ways than the published one."""
    tried = {"slices": seconds(partial(loop, sliced), repeats)}
    with ProcessPoolExecutor(CORES) as pool:
        for name, way in (("DataLoader", job), ("slices", sliced)):
            work = partial(loop_in_processes, way, pool)
            work()
            tried[f"{name}, {CORES} processes"] = seconds(work, repeats)
    return tried


def measure_loop(job: Job, after: Any, repeats: int, all_ways: bool) -> dict[str, Any]:
    sliced = replace(job, slices=True)
    threads = faster_threads(sliced)
    torch.set_num_threads(threads)
    spent = time.process_time()
    published = seconds(partial(loop, job), repeats)
    core = (time.process_time() - spent) / repeats
    tried = fastest_ways(job, sliced, repeats) if all_ways else {}
    rows = loop(sliced)["items.weight"].numpy()
    return {
        "torch": torch.__version__,
        "threads": threads,
        "round_s": published,
        "round_core_s": core,
        "best_s": min([published, *tried.values()]),
        "tried_s": {name: round(value, 3) for name, value in tried.items()},
        "difference": float(np.abs(rows - after.item_rows).max()),
    }


# Other peers


def measure_flower(job: Job, repeats: int, all_ways: bool) -> dict[str, Any]:
    python = FOLDER / ".venv/bin/python"
    if not python.exists():
        return {"skipped": "benchmarks/peers/.venv is missing. Run make_environment.sh."}
    measured: list[dict[str, Any]] = []
    for slices in (False, True) if all_ways else (False,):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "job.npz"
            replace(job, slices=slices).write(path)
            script = FOLDER / "flower_round.py"
            command = [str(python), str(script), str(path), "--rounds", str(repeats)]
            environment = os.environ | {
                "FLWR_TELEMETRY_ENABLED": "0",
                "PYTHONPATH": str(FOLDER),
                "COTERIE_PEER": "flower",
            }
            done = subprocess.run(
                command, capture_output=True, text=True, env=environment, check=False
            )
        if done.returncode:
            return {"skipped": f"it failed: {done.stderr.strip().splitlines()[-1]}"}
        measured.append(json.loads(done.stdout.splitlines()[-1]))
    fastest = min(measured, key=lambda each: float(each["round_s"]))
    best = {"best_s": fastest["round_s"], "best_core_s": fastest["round_core_s"]}
    return measured[0] | best


def measure_implicit(training: TrainingSet, size: int) -> dict[str, Any]:
    try:
        from implicit.cpu.bpr import BayesianPersonalizedRanking
    except ModuleNotFoundError:
        return {"skipped": "implicit is not installed"}
    from scipy import sparse

    matrix = sparse.csr_matrix(
        (np.ones(len(training), np.float32), training.positives.items, training.positives.offsets),
        shape=(training.n_users, training.n_items),
    )

    def fit(iterations: int) -> None:
        model = BayesianPersonalizedRanking(factors=size, iterations=iterations, random_state=0)
        model.fit(matrix, show_progress=False)

    fit(1)
    # The difference leaves its setup out.
    taken = (seconds(partial(fit, 21), 3) - seconds(partial(fit, 1), 3)) / 20
    return {"round_s": taken, "best_s": taken}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--algorithm", choices=sorted(SETTINGS), default="fedavg")
    parser.add_argument("--dataset", default="ml-100k")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=PEERS, default=PEERS)
    parser.add_argument("--as-published", action="store_true")
    options = parser.parse_args()
    all_ways = not options.as_published
    training = split(load(options.dataset), "leave-one-out", 0.2, 0).training()
    chosen = registry.algorithm(options.algorithm)
    assert isinstance(chosen.train, Federation)
    settings = SETTINGS[options.algorithm]
    world = trainer.world_of(training, chosen.settings.of(settings), 0, chosen.train)
    ours = OurRounds(chosen.train, world, training)
    job = job_of(options.algorithm, world, training, ours.first)
    measures: dict[str, Callable[[], dict[str, Any]]] = {
        "loop": lambda: measure_loop(job, ours.after_one, options.repeats, all_ways),
        "flower": lambda: measure_flower(job, options.repeats, all_ways),
        "implicit": lambda: measure_implicit(training, BOTH["embedding_size"]),
    }
    peers: dict[str, dict[str, Any]] = {}
    ours.measure()
    for name in options.only:
        peers[name] = measures[name]()
        ours.measure()
    medians = ours.medians()
    for peer in peers.values():
        for of in [name for name in FIGURES if name in peer]:
            own = medians["round_core_s" if "core" in of else "round_s"]
            peer[f"{of}_ratio"] = round(peer[of] / own, 1)
    result = {
        "dataset": options.dataset,
        "clients": job.n_clients,
        "samples": int(job.starts[-1]),
        "algorithm": options.algorithm,
        **settings,
        "cores": CORES,
        "load": os.getloadavg(),
        "coterie": medians,
        **peers,
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
