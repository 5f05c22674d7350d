"""STTFedRec beside its tables: how settings were found, Section 4.3's formulas, and what a round takes. Prints one JSON object per part.

    python benchmarks/sttfedrec.py search --datasets ml-1m watson-articles
    python benchmarks/sttfedrec.py formulas speed

    search      the best of twenty trials on validation for every method
    formulas    Section 4.3's time and space beside what is measured, and what the formulas leave out
    speed       a round of 50 devices in simulation, and of 200 on the CPU and on a GPU where there is one

The paper's tables and figures are `coterie reproduce sttfedrec`. Towers are searched on a GPU where there is one (speed times the CPU too).
"""

from __future__ import annotations

import statistics
import time
from itertools import pairwise
from typing import Any

from tables import OPTIONS, print_parts

from coterie.core.progress import SILENT
from coterie.engines.local import LocalEngine
from coterie.experiments.preparation import Prepared
from coterie.experiments.tuning import Search, tune
from coterie.federated import trainer
from coterie.federated.federation import Federation, World
from coterie.federated.trainer import Context
from coterie.federated.transcript import CLIENTS, Transcript
from coterie.reproduce import device_costs as on_a_device
from coterie.reproduce.papers.sttfedrec import (
    CUT,
    INPUTS,
    TOWERS,
    K,
    centralised,
    device,
    federated,
)

LOOKS = {"ml-1m": 2, "watson-articles": 25}
"""Epochs from one look at validation to the next: a hundred steps or two, as with the federations."""
TRIALS = 20


def search(dataset: str, seeds: int) -> dict[str, Any]:
    """As many trials for everybody; the naive federation takes what the split one found, being the same."""
    names = (*TOWERS, "fcf", "fedmvmf", "sttfedrec-dssm", "sttfedrec-clsm")
    return {
        "part": "search",
        "dataset": dataset,
        "settings": {name: best(name, dataset) for name in names},
    }


def best(name: str, dataset: str) -> dict[str, Any]:
    held = {"headline": ["AUC"]} | CUT[dataset] | limits(name, dataset)
    return dict(
        tune(Search(name, dataset, "holdout-10", TRIALS, held=held), OPTIONS.cells).best.settings
    )


def limits(name: str, dataset: str) -> dict[str, Any]:
    if name in TOWERS:
        return dict(centralised(name, dataset).settings) | {
            "evaluate_every": LOOKS[dataset],
            "patience": 5,
        }
    if name in ("fcf", "fedmvmf"):
        return {"rounds": 100, "evaluate_every": 5, "patience": 4}
    return dict(federated(name, dataset).settings) | {"evaluate_every": 100, "patience": 5}


def prepared(
    name: str, dataset: str, **more: Any
) -> tuple[Prepared, Federation, World, LocalEngine]:
    """A federation with the paper's settings that is ready to begin, on the CPU unless something else is said."""
    values = (
        dict(federated(name, dataset).settings)
        | {"protocol": "holdout-10", "device": "cpu"}
        | CUT[dataset]
        | more
    )
    return on_a_device.prepared(name, dataset, values)


def formulas(dataset: str, seeds: int) -> dict[str, Any]:
    """Section 4.3, in multiplications and in megabytes of float32, beside the bytes of a round by who says what to whom."""
    inputs = INPUTS[dataset].get("inputs", 1100)
    T = 10
    layers = (256, 128, 128)
    above = sum(a * b for a, b in pairwise(layers))
    naive = (inputs + inputs * T) * layers[0] + above * (1 + T)
    split = inputs * layers[0] + above
    space = 2 * ((inputs + inputs) * layers[0] + 2 * above), 2 * (inputs * layers[0] + above)
    return {
        "part": "formulas",
        "dataset": dataset,
        "time": {"fl-dssm": naive, "sttfedrec-dssm": split, "ratio": round(naive / split, 2)},
        "MB": {
            "fl-dssm": 4 * space[0] / 1e6,
            "sttfedrec-dssm": 4 * space[1] / 1e6,
            "ratio": round(space[0] / space[1], 2),
        },
        "left out": "biases, requests, items' vectors, slopes at the cut layer, headers",
        "measured bytes of a round and device": {
            name: said(name, dataset) for name in ("fl-dssm", "sttfedrec-dssm")
        },
    }


def said(name: str, dataset: str) -> dict[str, float]:
    _, federation, world, engine = prepared(name, dataset)
    heard = Transcript(engine)
    work = trainer.federated_trainer(federation, world, heard, Context(0, SILENT))
    work.step(work.start()[0], 1)
    total: dict[str, float] = {}
    for line in heard.lines:
        for key, array in line.arrays.items():
            name = f"{line.sender} to {line.receiver}: {key}"
            shared = line.sender != CLIENTS and key in (
                "tower",
                "item_tower",
            )  # the same for everybody
            total[name] = total.get(name, 0) + array.nbytes / (1 if shared else K[dataset])
    return {name: round(size, 1) for name, size in total.items() if size}


def speed(dataset: str, seeds: int) -> dict[str, Any]:
    """Milliseconds of a round, median of 20: of 50 devices (150 on the articles), and of 200 on the CPU and on a GPU if there is one."""
    names = [f"{kind}-{tower}" for kind in ("fl", "sttfedrec") for tower in TOWERS]
    found: dict[str, Any] = {
        "part": "speed",
        "dataset": dataset,
        "ms a round": {name: round_ms(name, dataset) for name in names},
        "bar": {"sttfedrec-dssm": 50, "sttfedrec-clsm": 250},
        "ms a round of 200": {name: round_ms(name, dataset, users_per_round=200) for name in names},
    }
    if device() == "cpu":
        return found
    import torch

    on_gpu = {name: round_ms(name, dataset, users_per_round=200, device="cuda") for name in names}
    times = {name: round(found["ms a round of 200"][name] / ms, 1) for name, ms in on_gpu.items()}
    return found | {
        "gpu": torch.cuda.get_device_name(),
        "ms a round of 200 on the gpu": on_gpu,
        "times as fast": times,
    }


def round_ms(name: str, dataset: str, **more: Any) -> float:
    _, federation, world, engine = prepared(name, dataset, **more)
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
