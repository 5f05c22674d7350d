"""Mult-VAE, LightGCN and EASE on a GPU beside the CPU of the same machine.

    python benchmarks/gpu_baselines.py [--dataset ml-1m] [--repeat 3] [--items 5000 10000]

Prints JSON: median seconds of an epoch of Mult-VAE and LightGCN with their default settings, and of
the inversion of EASE's matrix of so many items, on the CPU and on the GPU; the ratio of the two;
and how far the results are apart. Needs PyTorch with a GPU, and no Numba.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import coterie
from coterie.algorithms.local.cooccurrence import inverse, inverse_on_gpu
from coterie.algorithms.registry import algorithm
from coterie.core.progress import SILENT
from coterie.data.splits import split
from coterie.data.training_set import TrainingSet
from coterie.federated.trainer import Context
from coterie.models.multivae import LOWEST


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", default="ml-1m")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--items", type=int, nargs="*", default=[5_000, 10_000])
    given = parser.parse_args()
    gpu = torch.cuda.get_device_name()
    print(json.dumps({"gpu": gpu, "cores": os.cpu_count(), "torch": torch.__version__}), flush=True)
    training = split(coterie.load(given.dataset), "leave-one-out", 0.2, seed=0).training()
    for name in ("multivae", "lightgcn"):
        print(json.dumps(epochs(name, training, given.repeat)), flush=True)
    for n in given.items:
        print(json.dumps(inversions(n, given.repeat)), flush=True)


def epochs(name: str, training: TrainingSet, repeat: int) -> dict[str, Any]:
    """An epoch of a baseline on both devices."""
    seconds = {}
    models = {}
    for device in ("cpu", "cuda"):
        found = algorithm(name)
        trainer = found.train(training, found.settings.of({"device": device}), Context(0, SILENT))
        state = trainer.start()[0]
        times = []
        for n in range(1, repeat + 2):
            began = time.perf_counter()
            state = trainer.step(state, n)[0]
            times.append(time.perf_counter() - began)
        seconds[device] = statistics.median(times[1:])
        models[device] = trainer.model(state).score(np.arange(100, dtype=np.int32))
    return {"part": name, "users": training.n_users} | compared(seconds, models)


def inversions(n: int, repeat: int) -> dict[str, Any]:
    """EASE's matrix of n items, of random histories."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 256))
    G = np.tril(X @ X.T)
    G[np.diag_indices(n)] += 100.0
    seconds = {}
    found = {}
    for device, function in (("cpu", inverse), ("cuda", inverse_on_gpu)):
        times = [timed(function, G.copy()) for _ in range(repeat + 1)]
        seconds[device] = statistics.median(each for each, _ in times[1:])
        found[device] = np.tril(times[-1][1])
    return {"part": "EASE", "items": n} | compared(seconds, found)


def timed(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    began = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - began, result


def compared(seconds: dict[str, float], results: dict[str, Any]) -> dict[str, Any]:
    # Items that were dropped have the same score on both.
    counts = results["cpu"] > LOWEST
    apart = float(np.abs(results["cpu"] - results["cuda"])[counts].max())
    largest = float(np.abs(results["cpu"])[counts].max())
    return {
        "seconds": {device: round(each, 4) for device, each in seconds.items()},
        "ratio": round(seconds["cpu"] / seconds["cuda"], 1),
        "largest_difference": apart / largest,
    }


if __name__ == "__main__":
    main()
