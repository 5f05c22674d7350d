"""STTFedRec: the search for settings, the formulas of Section 4.3, time per round. Prints JSON.

    python benchmarks/sttfedrec.py search --datasets ml-1m watson-articles
    python benchmarks/sttfedrec.py formulas speed

    search      the best of twenty trials on validation, for every method
    formulas    time and space by Section 4.3, what was measured, and what the formulas leave out
    speed       a simulated round of 50 clients, and of 200 on the CPU and on a GPU

`coterie reproduce sttfedrec` makes the paper's tables and figures. `search` trains the towers on a
GPU if there is one; without a GPU, `speed` measures the CPU only.
"""

from __future__ import annotations

import statistics
import time
from itertools import pairwise
from typing import Any

from tables import OPTIONS, print_parts

from coterie.algorithms.two_tower import dssm
from coterie.core.progress import SILENT
from coterie.engines.local import LocalEngine
from coterie.experiments.preparation import Prepared
from coterie.experiments.tuning import Search, tune
from coterie.federated import trainer
from coterie.federated.federation import Federation, World
from coterie.federated.trainer import Context
from coterie.federated.transcript import CLIENTS, Transcript
from coterie.reproduce import device_costs
from coterie.reproduce.papers.sttfedrec import (
    CENTRALISED_FACTORS,
    CUT,
    FACTORS,
    INPUTS,
    TOWERS,
    TRIALS,
    K,
    centralised,
    device,
    federated,
)

EVALUATE_EVERY = {"ml-1m": 2, "watson-articles": 25}
"""Epochs between two evaluations: 100 to 200 steps, as for the federated methods."""


def search(dataset: str, seeds: int) -> dict[str, Any]:
    """The same number of trials for every method.

    The naive federation computes the same model as the split one and takes its settings.
    """
    names = (*TOWERS, *FACTORS, *CENTRALISED_FACTORS, "sttfedrec-dssm", "sttfedrec-clsm")
    return {
        "part": "search",
        "dataset": dataset,
        "settings": {name: best(name, dataset) for name in names},
    }


def best(name: str, dataset: str) -> dict[str, Any]:
    fixed = {"headline": ["AUC"]} | CUT[dataset] | limits(name, dataset)
    search = Search(name, dataset, "holdout-10", TRIALS, held=fixed)
    return dict(tune(search, OPTIONS.cells, workers=OPTIONS.workers).best.settings)


def limits(name: str, dataset: str) -> dict[str, Any]:
    if name in TOWERS:
        stopping = {"evaluate_every": EVALUATE_EVERY[dataset], "patience": 5}
        return dict(centralised(name, dataset).settings) | stopping
    if name in FACTORS:
        return {"rounds": 100, "evaluate_every": 5, "patience": 4}
    if name in CENTRALISED_FACTORS:
        return {}  # the search's own limit of epochs
    return dict(federated(name, dataset).settings) | {"evaluate_every": 100, "patience": 5}


def prepared(
    name: str, dataset: str, **settings: Any
) -> tuple[Prepared, Federation, World, LocalEngine]:
    """A federation with the paper's settings, ready to start; on the CPU by default."""
    values = dict(federated(name, dataset).settings)
    values |= {"protocol": "holdout-10", "device": "cpu"}
    values |= CUT[dataset] | settings
    return device_costs.prepared(name, dataset, values)


def formulas(dataset: str, seeds: int) -> dict[str, Any]:
    """Section 4.3 in multiplications and MB of float32, and the measured bytes of each message."""
    inputs = INPUTS[dataset].get("inputs", 1100)
    T = 10
    layers = (256, 128, 128)
    above = sum(a * b for a, b in pairwise(layers))
    split = dssm.multiplications(inputs, layers, 0)
    naive = (1 + T) * split
    naive_space = 2 * ((inputs + inputs) * layers[0] + 2 * above)
    split_space = 2 * (inputs * layers[0] + above)
    return {
        "part": "formulas",
        "dataset": dataset,
        "time": {"fl-dssm": naive, "sttfedrec-dssm": split, "ratio": round(naive / split, 2)},
        "MB": {
            "fl-dssm": 4 * naive_space / 1e6,
            "sttfedrec-dssm": 4 * split_space / 1e6,
            "ratio": round(naive_space / split_space, 2),
        },
        "left out": "biases, requests, item vectors, gradients at the cut layer, headers",
        "measured bytes per round and client": {
            name: message_bytes(name, dataset) for name in ("fl-dssm", "sttfedrec-dssm")
        },
    }


def message_bytes(name: str, dataset: str) -> dict[str, float]:
    """Bytes per client of every array that is sent in a round."""
    _, federation, world, engine = prepared(name, dataset)
    transcript = Transcript(engine)
    work = trainer.federated_trainer(federation, world, transcript, Context(0, SILENT))
    work.step(work.start()[0], 1)
    total: dict[str, float] = {}
    for line in transcript.lines:
        for key, array in line.arrays.items():
            label = f"{line.sender} to {line.receiver}: {key}"
            # Towers are broadcast: the transcript holds one copy, and every client receives it.
            shared = line.sender != CLIENTS and key in ("tower", "item_tower")
            total[label] = total.get(label, 0) + array.nbytes / (1 if shared else K[dataset])
    return {label: round(size, 1) for label, size in total.items() if size}


def speed(dataset: str, seeds: int) -> dict[str, Any]:
    """Median milliseconds of 20 rounds.

    Cohorts are those of the paper (50 clients, or 150 on the articles), and 200 on CPU and GPU.
    """
    names = [f"{kind}-{tower}" for kind in ("fl", "sttfedrec") for tower in TOWERS]
    on_cpu = {name: round_ms(name, dataset, users_per_round=200) for name in names}
    result: dict[str, Any] = {
        "part": "speed",
        "dataset": dataset,
        "ms per round": {name: round_ms(name, dataset) for name in names},
        "bar": {"sttfedrec-dssm": 50, "sttfedrec-clsm": 250},
        "ms per round of 200": on_cpu,
    }
    if device() == "cpu":
        return result
    import torch

    on_gpu = {name: round_ms(name, dataset, users_per_round=200, device="cuda") for name in names}
    return result | {
        "gpu": torch.cuda.get_device_name(),
        "ms per round of 200 on the gpu": on_gpu,
        "times as fast": {name: round(on_cpu[name] / ms, 1) for name, ms in on_gpu.items()},
    }


def round_ms(name: str, dataset: str, **settings: Any) -> float:
    _, federation, world, engine = prepared(name, dataset, **settings)
    work = trainer.federated_trainer(federation, world, engine, Context(0, SILENT))
    state = work.start()[0]
    times = []
    for n in range(1, 24):
        began = time.perf_counter()
        state, _ = work.step(state, n)
        times.append(time.perf_counter() - began)
    return round(statistics.median(times[3:]) * 1e3, 2)


PARTS = {"search": search, "formulas": formulas, "speed": speed}


if __name__ == "__main__":
    print_parts(__doc__, PARTS, "ml-1m")
