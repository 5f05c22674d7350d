"""What a defence costs: seconds of a round with and without it. Prints JSON lines.

    python benchmarks/robust_rounds.py
    python benchmarks/robust_rounds.py --dataset ml-1m --algorithms fedfast fcf

In one process, one line for each algorithm: the median round without a defence on the path that a
defence leaves open, where the server sees single updates (`open`); on the fastest path of the
simulator, whose kernels add up while they train (`none`); and with each defence. Rounds of all
settings take turns, so that other work on the machine hits all of them.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from statistics import median

from coterie import kernels
from coterie.algorithms.registry import algorithm
from coterie.core.progress import SILENT
from coterie.core.records import Record
from coterie.engines import select
from coterie.experiments.config import Experiment
from coterie.experiments.preparation import prepare
from coterie.experiments.training import begin
from coterie.federated.federation import AnyFederation, Exchange, FastPaths, Federation
from coterie.federated.settings import federation_settings
from coterie.federated.trainer import Context, Trainer
from coterie.types import JsonObject

ALGORITHMS = ("fedfast", "fedavg", "fcf", "pfpl+", "fedals", "fedease")
OPEN = "open"
SETTINGS = ("none", OPEN, "bounded", "trimmed", "groups")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", default="ml-100k")
    parser.add_argument("--algorithms", nargs="*", default=ALGORITHMS)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    for name in given.algorithms:
        print(json.dumps(measured(given.dataset, name, given.rounds)), flush=True)


def measured(dataset: str, name: str, rounds: int) -> JsonObject:
    trainers = {setting: trainer_of(dataset, name, setting) for setting in SETTINGS}
    states = {setting: start for setting, (_, start) in trainers.items()}
    seconds: dict[str, list[float]] = {setting: [] for setting in SETTINGS}
    for n in range(1, rounds + 1):
        for setting, (work, _) in trainers.items():
            began = time.perf_counter()
            states[setting], _ = work.step(states[setting], n)
            seconds[setting].append(time.perf_counter() - began)
    medians = {setting: median(found) for setting, found in seconds.items()}
    ratios = {
        f"{setting} / {base}": round(medians[setting] / medians[base], 2)
        for base in (OPEN, "none")
        for setting in SETTINGS[2:]
    }
    rounded = {setting: round(value, 5) for setting, value in medians.items()}
    return {"dataset": dataset, "algorithm": name, "seconds": rounded} | ratios


def trainer_of(dataset: str, name: str, setting: str) -> tuple[Trainer[Record], Record]:
    robust = "none" if setting == OPEN else setting
    values = {"algorithm": name, "dataset": dataset, "robust": robust}
    ready = prepare(Experiment.of(values), None, SILENT)
    settings = federation_settings(ready.experiment.settings)
    for family in algorithm(name).kernels_for(settings):
        kernels.load(family, SILENT)
    federation = algorithm(name).train
    assert isinstance(federation, Federation)
    if setting == OPEN:
        federation = without_fast_paths(federation)
    work = select.trainer(federation, ready.training, settings, Context(0, SILENT))
    return work, begin(work, ready.training.n_users, None).state


def without_fast_paths(federation: AnyFederation) -> AnyFederation:
    """The federation whose server sees single updates."""
    exchanges = tuple(
        replace(one, fast=FastPaths(chunk_size=one.fast.chunk_size))
        if isinstance(one, Exchange)
        else one
        for one in federation.exchanges
    )
    return replace(federation, exchanges=exchanges)


if __name__ == "__main__":
    main()
