"""Memory and time of rounds with ten million users on one machine. Prints a line of JSON each.

    python benchmarks/large_population.py [--users 10000000] [--rounds 20] [--folder FOLDER]

Synthetic users with 100,000 items and about 40 interactions each; 0.1 % of them take part in a
round. Their histories are written to a folder once and mapped into memory. Every algorithm runs in
a process of its own, so that its peak of resident memory is its own; mapped pages count in it.
`start_s` is opening the histories and drawing initial values. A round is everything but evaluation.

Client time is drawing samples and training. It stands beside that of the same algorithm on
MovieLens-1M (a tenth of the users a round), measured in the same process. `core` figures are CPU
time of all threads, which does not depend on other load on the machine.
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
from dataclasses import replace
from pathlib import Path
from typing import Any

from coterie import kernels
from coterie.algorithms.registry import algorithm
from coterie.core.progress import SILENT
from coterie.data import mapped_histories
from coterie.data.datasets import load
from coterie.data.splits import split
from coterie.data.synthetic import Synthetic, histories
from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.experiments.history import TrainingHistory
from coterie.federated import trainer
from coterie.federated.federation import ClientResult, Exchange, Federation
from coterie.federated.settings import federation_settings
from coterie.federated.trainer import Context

N_ITEMS = 100_000
SHARE = 0.001
"""Of the users in a round."""
WARM_UP = 3
ALGORITHMS = ("fedavg", "pfpl+")
PEER = "ml-1m"


class TimedClients:
    """An exchange whose client updates are timed."""

    def __init__(self, exchange: Exchange[Any, Any]) -> None:
        self.update = exchange.client_update
        self.seconds: list[float] = []
        self.core_seconds: list[float] = []
        self.samples: list[int] = []
        self.exchange = replace(exchange, client_update=self.timed)

    def timed(self, *arguments: Any) -> ClientResult:
        began = time.perf_counter()
        spent = time.process_time()
        result = self.update(*arguments)
        self.seconds.append(time.perf_counter() - began)
        self.core_seconds.append(time.process_time() - spent)
        updates = result[0] if isinstance(result, tuple) else result
        self.samples.append(int(updates.samples.sum()))
        return result

    def ns_per_sample(self, seconds: list[float]) -> float:
        pairs = zip(seconds[WARM_UP:], self.samples[WARM_UP:], strict=True)
        return round(1e9 * statistics.median(taken / samples for taken, samples in pairs), 1)


def settings_of(name: str, n_users: int, share: float) -> dict[str, Any]:
    """Cohorts of a share of the users; everything else is as by default."""
    if name == "fedavg":
        return {"participation": share, "average": "touched"}
    return {"users_per_round": round(n_users * share)}


def measure(
    name: str, training: TrainingSet, share: float, n_rounds: int, began: float
) -> dict[str, Any]:
    """Medians over rounds after warm-up, with the history that a run would carry along."""
    chosen = algorithm(name)
    assert isinstance(chosen.train, Federation)
    settings = federation_settings(chosen.settings.of(settings_of(name, training.n_users, share)))
    for family in chosen.kernels_for(settings):
        kernels.load(family)
    (exchange,) = chosen.train.exchanges
    assert isinstance(exchange, Exchange)
    clients = TimedClients(exchange)
    federation = replace(chosen.train, exchanges=(clients.exchange,))
    world = trainer.world_of(training, settings, seed=0, federation=federation)
    engine = LocalEngine.over(world, training, 1)
    work = trainer.federated_trainer(federation, world, engine, Context(0, SILENT), by_round=True)
    state, costs = work.start()
    history = TrainingHistory.begin(training.n_users, costs)
    start_seconds = time.perf_counter() - began
    times = []
    core_times = []
    for n in range(1, WARM_UP + n_rounds + 1):
        before = time.perf_counter()
        spent = time.process_time()
        state, costs = work.step(state, n)
        history = history.after(costs, 0.0)
        times.append(time.perf_counter() - before)
        core_times.append(time.process_time() - spent)
    return {
        "users": training.n_users,
        "items": training.n_items,
        "interactions": len(training),
        "users_per_round": len(costs.users),
        "samples_per_round": clients.samples[-1],
        "start_s": round(start_seconds, 1),
        "round_s": round(statistics.median(times[WARM_UP:]), 4),
        "longest_round_s": round(max(times[WARM_UP:]), 4),
        "round_core_s": round(statistics.median(core_times[WARM_UP:]), 4),
        "client_ns_per_sample": clients.ns_per_sample(clients.seconds),
        "client_core_ns_per_sample": clients.ns_per_sample(clients.core_seconds),
    }


def memory() -> dict[str, float]:
    """Resident memory in GiB: the peak, and how much of mapped files is resident now."""
    status = Path("/proc/self/status").read_text()
    mapped = next(line for line in status.splitlines() if line.startswith("RssFile"))
    # ru_maxrss is in KiB on Linux, as the figures of /proc are.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "peak_gib": round(peak / 2**20, 2),
        "mapped_gib": round(int(mapped.split()[1]) / 2**20, 2),
    }


def on_mapped(name: str, folder: Path, n_rounds: int) -> dict[str, Any]:
    began = time.perf_counter()
    training = mapped_histories.training_set(folder)
    large = measure(name, training, SHARE, n_rounds, began) | memory()
    began = time.perf_counter()
    peer = split(load(PEER), "leave-one-out", 0.2, 0).training()
    small = measure(name, peer, 0.1, n_rounds, began)

    def ratio(name: str) -> float:
        return round(float(large[name] / small[name]), 2)

    return {
        "algorithm": name,
        "cores": os.cpu_count(),
        "large": large,
        PEER: small,
        "client_ratio": ratio("client_ns_per_sample"),
        "client_core_ratio": ratio("client_core_ns_per_sample"),
    }


def write_histories(folder: Path, n_users: int) -> None:
    began = time.perf_counter()
    config = Synthetic(n_users=n_users, n_items=N_ITEMS)
    mapped_histories.write(folder, N_ITEMS, histories(config))
    written = {"written": str(folder), "users": n_users, "s": time.perf_counter() - began}
    print(json.dumps(written | memory()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--users", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--folder", type=Path, default=Path("build/large-population"))
    parser.add_argument("--only", choices=ALGORITHMS)
    options = parser.parse_args()
    folder = options.folder / str(options.users)
    if options.only:
        print(json.dumps(on_mapped(options.only, folder, options.rounds)), flush=True)
        return
    if not (folder / mapped_histories.ABOUT).exists():
        write_histories(folder, options.users)
    for name in ALGORITHMS:
        subprocess.run([sys.executable, __file__, *sys.argv[1:], "--only", name], check=True)


if __name__ == "__main__":
    main()
