"""Time of a FedFast round on Ray and in this process, alternating. Prints JSON.

    python benchmarks/ray_speed.py speed [--dataset ml-1m] [--rounds 20]
    python benchmarks/ray_speed.py million

`speed`: one actor per core; cohorts of a tenth of the users and of all users. A ratio of 1 means
as fast as in this process. `million`: a million synthetic users, 100,000 items, cohorts of 1 %.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

from coterie.algorithms.registry import algorithm
from coterie.core.progress import SILENT
from coterie.data.datasets import load
from coterie.data.splits import split
from coterie.data.synthetic import Synthetic, generate
from coterie.data.training_set import TrainingSet
from coterie.engines import select
from coterie.federated import trainer
from coterie.federated.federation import Federation
from coterie.federated.trainer import Context

WARM_UP = 5


class TimedRun:
    """A run that plays one round at a time and records the seconds."""

    def __init__(self, training: TrainingSet, engine: str, settings: dict[str, Any]) -> None:
        chosen = algorithm("fedfast")
        assert isinstance(chosen.train, Federation)
        own = chosen.settings.of(settings | {"engine": engine})
        world = trainer.world_of(training, own, 0, chosen.train)
        context = Context(0, SILENT)
        nodes = select.engine_for(world, training, context)
        self.trainer = trainer.federated_trainer(chosen.train, world, nodes, context)
        self.state, _ = self.trainer.start()
        self.times: list[float] = []

    def step(self) -> None:
        began = time.perf_counter()
        self.state, _ = self.trainer.step(self.state, len(self.times) + 1)
        self.times.append(time.perf_counter() - began)

    @property
    def milliseconds(self) -> float:
        return 1e3 * statistics.median(self.times[WARM_UP:])


def against_local(training: TrainingSet, participation: float, n_rounds: int) -> dict[str, Any]:
    settings = {"embedding_size": 10, "participation": participation}
    local = TimedRun(training, "local", settings)
    ray = TimedRun(training, "ray", settings)
    for _ in range(WARM_UP + n_rounds):
        local.step()
        ray.step()
    pairs = zip(local.times[WARM_UP:], ray.times[WARM_UP:], strict=True)
    ratio = statistics.median(local_s / ray_s for local_s, ray_s in pairs)
    return {
        "participation": participation,
        "local_ms": round(local.milliseconds, 1),
        "ray_ms": round(ray.milliseconds, 1),
        "ray_speed_of_local": round(ratio, 3),
        "same_bits": bool((local.state.item_rows == ray.state.item_rows).all()),
    }


def million() -> dict[str, Any]:
    data = generate(Synthetic(n_users=1_000_000, n_items=100_000))
    training = split(data, "leave-one-out", 0.2, 0).training()
    began = time.perf_counter()
    run = TimedRun(training, "ray", {"embedding_size": 10, "participation": 0.01})
    started = time.perf_counter() - began
    for _ in range(WARM_UP + 10):
        run.step()
    return {
        "n_users": 1_000_000,
        "start_s": round(started, 1),
        "round_ms": round(run.milliseconds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["speed", "million"])
    parser.add_argument("--dataset", default="ml-1m")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    if options.what == "million":
        print(json.dumps(million()))
        return
    training = split(load(options.dataset), "leave-one-out", 0.2, 0).training()
    for participation in (0.1, 1.0):
        result = against_local(training, participation, options.rounds)
        print(json.dumps({"dataset": options.dataset} | result))


if __name__ == "__main__":
    main()
