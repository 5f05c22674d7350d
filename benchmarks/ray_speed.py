"""Rounds of FedFast on Ray against rounds in this process, in turns. Prints JSON.

    python benchmarks/ray_speed.py speed [--dataset ml-1m] [--rounds 20]
    python benchmarks/ray_speed.py million

`speed`: an actor for every core, a tenth of the users and all of them a round; 1 is as fast as in this process. `million`: a
synthetic million users, 100,000 items, 1 % a round.
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


class Turn:
    """A run that takes a round when it is its turn."""

    def __init__(self, training: TrainingSet, engine: str, settings: dict[str, Any]) -> None:
        chosen = algorithm("fedfast")
        assert isinstance(chosen.train, Federation)
        world = trainer.world_of(
            training, chosen.settings.of(settings | {"engine": engine}), 0, chosen.train
        )
        context = Context(0, SILENT)
        self.work = trainer.federated_trainer(
            chosen.train, world, select.engine_for(world, training, context), context
        )
        self.state, _ = self.work.start()
        self.times: list[float] = []

    def take(self) -> None:
        began = time.perf_counter()
        self.state, _ = self.work.step(self.state, len(self.times) + 1)
        self.times.append(time.perf_counter() - began)

    @property
    def milliseconds(self) -> float:
        return 1e3 * statistics.median(self.times[WARM_UP:])


def against_local(training: TrainingSet, participation: float, n_rounds: int) -> dict[str, Any]:
    settings = {"embedding_size": 10, "participation": participation}
    here, there = (Turn(training, engine, settings) for engine in ("local", "ray"))
    for _ in range(WARM_UP + n_rounds):
        here.take()
        there.take()
    ratio = statistics.median(
        a / b for a, b in zip(here.times[WARM_UP:], there.times[WARM_UP:], strict=True)
    )
    return {
        "participation": participation,
        "local_ms": round(here.milliseconds, 1),
        "ray_ms": round(there.milliseconds, 1),
        "ray_speed_of_local": round(ratio, 3),
        "same_bits": bool((here.state.item_rows == there.state.item_rows).all()),
    }


def million() -> dict[str, Any]:
    training = split(
        generate(Synthetic(n_users=1_000_000, n_items=100_000)), "leave-one-out", 0.2, 0
    ).training()
    began = time.perf_counter()
    run = Turn(training, "ray", {"embedding_size": 10, "participation": 0.01})
    started = time.perf_counter() - began
    for _ in range(WARM_UP + 10):
        run.take()
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
        print(
            json.dumps(
                {"dataset": options.dataset}
                | against_local(training, participation, options.rounds)
            )
        )


if __name__ == "__main__":
    main()
