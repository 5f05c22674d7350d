"""Milliseconds of a FedFast round, its parts, and nanoseconds per local sample. Prints JSON.

    python benchmarks/round_speed.py [--datasets ml-100k ml-1m] [--rounds 20] [--implicit]
    python benchmarks/round_speed.py --users 10000 100000 1000000

A round is everything but evaluation: sampling, message, local training, validation, aggregation,
clustering. Client time is drawing samples and training. With --implicit, `implicit`'s BPR
alternates with ours in the same process, one thread each, and the ratio of a local sample to one
of its triples is printed. With --users, the data is synthetic (100,000 items, cohorts of 1 %),
peak memory is printed too, and each size runs in its own process.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bpr_vs_implicit import implicit_seconds

from coterie.algorithms import fedfast
from coterie.algorithms.registry import algorithm
from coterie.core.progress import SILENT
from coterie.data.datasets import load
from coterie.data.splits import split
from coterie.data.synthetic import Synthetic, generate
from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.federated import trainer
from coterie.federated.federation import Federation
from coterie.federated.trainer import Context

WARM_UP = 10
CLUSTER_USERS = fedfast.cluster_users


class Clock:
    """Adds up the time of wrapped functions, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)

    def timed(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any) -> Any:
            began = time.perf_counter()
            result = work(*arguments)
            self.seconds[name].append(time.perf_counter() - began)
            return result

        return wrapped


def measure(
    training: TrainingSet, settings: dict[str, Any], n_rounds: int, threads: int
) -> dict[str, Any]:
    """Medians over rounds after warm-up."""
    os.environ["COTERIE_THREADS"] = str(threads)
    chosen = algorithm("fedfast")
    assert isinstance(chosen.train, Federation)
    clock = Clock()
    federation = chosen.train
    (exchange,) = federation.exchanges
    exchange = replace(
        exchange,
        client_update=clock.timed("client", exchange.client_update),
        aggregate=clock.timed("sums", exchange.aggregate),
        server_update=clock.timed("finish", exchange.server_update),
    )
    federation = replace(
        federation, exchanges=(exchange,), sample=clock.timed("sampling", federation.sample)
    )
    # Clustering happens inside `finish`, so its time is in both parts.
    fedfast.cluster_users = clock.timed("clusters", CLUSTER_USERS)
    world = trainer.world_of(training, chosen.settings.of(settings), seed=0)
    engine = LocalEngine.over(world, training, 1)
    work = trainer.federated_trainer(federation, world, engine, Context(0, SILENT))
    state, _ = work.start()
    seconds = []
    per_sample = []
    for n in range(1, WARM_UP + n_rounds + 1):
        began = time.perf_counter()
        state, costs = work.step(state, n)
        seconds.append(time.perf_counter() - began)
        n_positives = int(training.positives.counts[costs.users].sum())
        n_samples = n_positives * (1 + world.settings.negatives)
        per_sample.append(clock.seconds["client"][-1] / n_samples)
    parts = {
        name: 1e3 * statistics.median(times[-n_rounds:]) for name, times in clock.seconds.items()
    }
    round_ms = 1e3 * statistics.median(seconds[WARM_UP:])
    return {
        "threads": threads,
        "users_per_round": len(costs.users),
        "samples_per_round": n_samples,
        "round_ms": round(round_ms, 2),
        "parts_ms": {name: round(ms, 2) for name, ms in parts.items()},
        "clusters_share": round(parts["clusters"] / round_ms, 3),
        "client_ns_per_sample": round(1e9 * statistics.median(per_sample[WARM_UP:]), 1),
    }


def on_dataset(name: str, n_rounds: int, with_implicit: bool) -> dict[str, Any]:
    training = split(load(name), "leave-one-out", 0.2, 0).training()
    settings = {"embedding_size": 10}
    all_cores = measure(training, settings, n_rounds, os.cpu_count() or 1)
    one_core = measure(training, settings, n_rounds, 1)
    speedup = one_core["client_ns_per_sample"] / all_cores["client_ns_per_sample"]
    row = {
        "dataset": name,
        "all_cores": all_cores,
        "one_core": one_core,
        "client_speedup": round(speedup, 2),
    }
    if not with_implicit:
        return row
    pairs = []
    with warnings.catch_warnings(action="ignore"):
        for _ in range(5):
            ours = measure(training, settings, 5, 1)["client_ns_per_sample"]
            theirs = 1e9 * implicit_seconds(training, 10, 2)
            pairs.append((ours, theirs))
    return row | {
        "implicit_ns_per_triple": round(statistics.median(theirs for _, theirs in pairs), 1),
        "ratio": round(statistics.median(ours / theirs for ours, theirs in pairs), 3),
    }


def on_synthetic(n_users: int, n_rounds: int) -> dict[str, Any]:
    began = time.perf_counter()
    data = generate(Synthetic(n_users=n_users, n_items=100_000))
    training = split(data, "leave-one-out", 0.2, 0).training()
    data_seconds = time.perf_counter() - began
    del data
    settings = {"embedding_size": 10, "participation": 0.01}
    row = measure(training, settings, n_rounds, os.cpu_count() or 1)
    # ru_maxrss is in KiB on Linux.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"n_users": n_users, "data_s": round(data_seconds, 1), "peak_gib": round(peak, 2), **row}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--datasets", nargs="*", default=["ml-100k", "ml-1m"])
    parser.add_argument("--users", nargs="*", type=int, default=[])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--implicit", action="store_true")
    options = parser.parse_args()
    if len(options.users) == 1:
        print(json.dumps(on_synthetic(options.users[0], options.rounds)))
        return
    for n_users in options.users:
        arguments = ["--users", str(n_users), "--rounds", str(options.rounds)]
        subprocess.run([sys.executable, __file__, *arguments], check=True)
    for name in [] if options.users else options.datasets:
        print(json.dumps(on_dataset(name, options.rounds, options.implicit)))


if __name__ == "__main__":
    main()
