"""Milliseconds of a FedFast round with compiled kernels on the CPU and with batched PyTorch on a GPU. Prints JSON.

    python benchmarks/device_rounds.py [--datasets ml-100k ml-1m] [--rounds 20]

Per model and batch size: sample by sample (what the kernels do best) and in batches of 256 (what GPUs need). The two devices
are measured in one run; where there is no GPU only the CPU is.
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
    work = select.trainer(chosen.train, training, chosen.settings.of(settings), Context(0, SILENT))
    state, _ = work.start()
    took = []
    for n in range(1, WARM_UP + n_rounds + 1):
        began = time.perf_counter()
        state, _ = work.step(state, n)
        took.append(time.perf_counter() - began)
    return round(1e3 * statistics.median(took[WARM_UP:]), 2)


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
                how = {"model": model, "embedding_size": 10, "batch_size": batch_size}
                found = {
                    d: round_ms(training, how | {"device": d}, options.rounds) for d in devices()
                }
                print(json.dumps({"dataset": dataset, **how, "round_ms": found}), flush=True)


if __name__ == "__main__":
    main()
