"""Seconds of a round beside those of peers, on the same samples, in one run. Prints JSON.

    benchmarks/peers/make_environment.sh             # once: Flower's simulation, in its own .venv
    python benchmarks/peers/compare.py [--dataset ml-100k] [--repeats 3] [--only loop flower ...]

FedAvg with everybody: GMF of 32 dimensions, one local epoch, four negatives, batches of 256, SGD.
All have the same samples, which are drawn before the peers are timed; a round of Coterie draws its
own. A round is training of all clients and averaging.

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
that is not installed is skipped, which its entry says.
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

from coterie.algorithms import fedavg
from coterie.algorithms.local.learner import Parameters
from coterie.algorithms.local.samples import draw
from coterie.core.progress import SILENT
from coterie.data.datasets import load
from coterie.data.splits import split
from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.federated import nodes, trainer
from coterie.federated.federation import Federation, World
from coterie.federated.trainer import Context

FOLDER = Path(__file__).parent
PEERS = ("loop", "flower", "implicit")
FIGURES = ("round_s", "round_core_s", "best_s", "best_core_s")
CORES = os.cpu_count() or 1
WARM_UP = 5
ROUNDS = 20
SETTINGS: dict[str, Any] = {
    "participation": 1.0,
    "model": "gmf",
    "embedding_size": 32,
    "batch_size": 256,
    "average": "all",
}
"""`average=all` is what the peers compute: the mean over all clients."""


class OurRounds:
    """Rounds of Coterie, measured whenever asked."""

    def __init__(self, world: World[fedavg.FedAvg], training: TrainingSet) -> None:
        federation = fedavg.ALGORITHM.train
        assert isinstance(federation, Federation)
        engine = LocalEngine.over(world, training, 1)
        self.work = trainer.federated_trainer(federation, world, engine, Context(0, SILENT))
        self.first: Parameters = self.work.start()[0]
        self.after_one: Parameters = self.work.step(self.first, 1)[0]
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


def job_of(world: World[fedavg.FedAvg], training: TrainingSet, state: Parameters) -> Job:
    """The first round of Coterie, for a peer."""
    node_world, (node,) = nodes.share_out(world, training, 1)
    samples = draw(node_world, node.users, 0, node)
    rows = np.repeat(samples.offsets[:-1], samples.counts)
    return Job(
        samples.starts,
        samples.items[rows + samples.places],
        samples.targets,
        state.user_rows,
        state.item_rows,
        state.dense,
        world.settings.batch_size,
        world.settings.learning_rate,
        world.settings.reg,
    )


# The loop over clients


def averaged(job: Job, clients: range, n_samples: int) -> dict[str, Tensor]:
    """The weighted sum of the models of some clients, trained one after the other."""
    shared = job.shared()
    total = {name: torch.zeros_like(values) for name, values in shared.items()}
    for client in clients:
        model = train_client(job, client, shared, torch.tensor(job.user_rows[client]))
        weight = float(job.starts[client + 1] - job.starts[client]) / n_samples
        for name, values in total.items():
            values += weight * model[name]
    return total


def loop(job: Job) -> dict[str, Tensor]:
    """A round of all clients in this process."""
    return averaged(job, range(job.n_clients), int(job.starts[-1]))


def part_of_loop(job: Job, first: int) -> dict[str, np.ndarray]:
    torch.set_num_threads(1)
    part = averaged(job, range(first, job.n_clients, CORES), int(job.starts[-1]))
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


def measure_loop(job: Job, after: Parameters, repeats: int) -> dict[str, Any]:
    sliced = replace(job, slices=True)
    threads = faster_threads(sliced)
    torch.set_num_threads(threads)
    spent = time.process_time()
    published = seconds(partial(loop, job), repeats)
    core = (time.process_time() - spent) / repeats
    tried = {"slices": seconds(partial(loop, sliced), repeats)}
    with ProcessPoolExecutor(CORES) as pool:
        for name, way in (("DataLoader", job), ("slices", sliced)):
            work = partial(loop_in_processes, way, pool)
            work()
            tried[f"{name}, {CORES} processes"] = seconds(work, repeats)
    rows = loop(sliced)["items.weight"].numpy()
    return {
        "torch": torch.__version__,
        "threads": threads,
        "round_s": published,
        "round_core_s": core,
        "best_s": min(published, *tried.values()),
        "tried_s": {name: round(value, 3) for name, value in tried.items()},
        "difference": float(np.abs(rows - after.item_rows).max()),
    }


# Other peers


def measure_flower(job: Job, repeats: int) -> dict[str, Any]:
    python = FOLDER / ".venv/bin/python"
    if not python.exists():
        return {"skipped": "benchmarks/peers/.venv is missing. Run make_environment.sh."}
    measured: list[dict[str, Any]] = []
    for slices in (False, True):
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
    parser.add_argument("--dataset", default="ml-100k")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=PEERS, default=PEERS)
    options = parser.parse_args()
    training = split(load(options.dataset), "leave-one-out", 0.2, 0).training()
    world = trainer.world_of(training, fedavg.FedAvg.of(SETTINGS), seed=0)
    ours = OurRounds(world, training)
    job = job_of(world, training, ours.first)
    measures: dict[str, Callable[[], dict[str, Any]]] = {
        "loop": lambda: measure_loop(job, ours.after_one, options.repeats),
        "flower": lambda: measure_flower(job, options.repeats),
        "implicit": lambda: measure_implicit(training, SETTINGS["embedding_size"]),
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
        **SETTINGS,
        "cores": CORES,
        "load": os.getloadavg(),
        "coterie": medians,
        **peers,
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
