"""Time of a FedFast round: kernels on the CPU, batched PyTorch on a GPU. Prints JSON.

    python benchmarks/device_rounds.py [--datasets ml-100k ml-1m] [--rounds 20]

Measures each model with batch size 1, which suits the kernels, and 256, which suits a GPU. Both
devices are measured in one run; without a GPU, only the CPU is measured.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

from coterie.algorithms.local.batched import find_device
from coterie.algorithms.registry import algorithm
from coterie.core.progress import SILENT
from coterie.data.datasets import load
from coterie.data.splits import split
from coterie.data.training_set import TrainingSet
from coterie.engines import select
from coterie.errors import UserError
from coterie.federated.federation import Federation
from coterie.federated.trainer import Context

WARM_UP = 3


def round_ms(training: TrainingSet, settings: dict[str, Any], n_rounds: int) -> float:
    chosen = algorithm("fedfast")
    assert isinstance(chosen.train, Federation)
    own = chosen.settings.of(settings)
    trainer = select.trainer(chosen.train, training, own, Context(0, SILENT))
    state, _ = trainer.start()
    seconds = []
    for n in range(1, WARM_UP + n_rounds + 1):
        began = time.perf_counter()
        state, _ = trainer.step(state, n)
        seconds.append(time.perf_counter() - began)
    return round(1e3 * statistics.median(seconds[WARM_UP:]), 2)


def devices() -> list[str]:
    try:
        find_device("cuda")
    except UserError:
        return ["cpu"]
    return ["cpu", "cuda"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--datasets", nargs="*", default=["ml-100k", "ml-1m"])
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    for dataset in options.datasets:
        training = split(load(dataset), "leave-one-out", 0.2, 0).training()
        for model in ("gmf", "neumf"):
            for batch_size in (1, 256):
                settings = {"model": model, "embedding_size": 10, "batch_size": batch_size}
                times = {
                    device: round_ms(training, settings | {"device": device}, options.rounds)
                    for device in devices()
                }
                print(json.dumps({"dataset": dataset, **settings, "round_ms": times}), flush=True)


if __name__ == "__main__":
    main()
