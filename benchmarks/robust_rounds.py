"""What a defence costs: seconds of a round with and without it. Prints JSON lines.

    python benchmarks/robust_rounds.py
    python benchmarks/robust_rounds.py --dataset ml-1m --algorithms fedfast fcf
    python benchmarks/robust_rounds.py --dataset ml-1m --algorithms pfedrec --defences

In one process, one line for each algorithm: the median round without a defence on the path that a
defence leaves open, where the server sees single updates (`open`); on the fastest path of the
simulator, whose kernels add up while they train (`none`); and with each defence. Rounds of all
settings take turns, so that other work on the machine hits all of them. Ratios are of seconds, and
of seconds of processor time, which other work changes less. A defence may also select other clients
than a run without it: bytes of updates say how much more there was to train, send and add up.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
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
DEFENCES = ("bounded", "trimmed", "groups")
CLOCKS: dict[str, Callable[[], float]] = {
    "seconds": time.perf_counter,
    "processor seconds": time.process_time,
}
BYTES = "bytes up"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", default="ml-100k")
    parser.add_argument("--algorithms", nargs="*", default=ALGORITHMS)
    parser.add_argument("--defences", nargs="*", default=DEFENCES, help="none to time rounds only")
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    for name in given.algorithms:
        print(json.dumps(measured(given.dataset, name, given.defences, given.rounds)), flush=True)


def measured(dataset: str, name: str, defences: Sequence[str], rounds: int) -> JsonObject:
    settings = ("none", OPEN, *defences)
    trainers = {setting: trainer_of(dataset, name, setting) for setting in settings}
    states = {setting: start for setting, (_, start) in trainers.items()}
    found: dict[str, dict[str, list[float]]] = {
        measure: {setting: [] for setting in settings} for measure in (*CLOCKS, BYTES)
    }
    for n in range(1, rounds + 1):
        for setting, (work, _) in trainers.items():
            began = {clock: read() for clock, read in CLOCKS.items()}
            states[setting], costs = work.step(states[setting], n)
            for clock, read in CLOCKS.items():
                found[clock][setting].append(read() - began[clock])
            found[BYTES][setting].append(costs.bytes_up)
    about: JsonObject = {"dataset": dataset, "algorithm": name}
    for measure, by_setting in found.items():
        medians = {setting: median(values) for setting, values in by_setting.items()}
        about[measure] = {setting: round(value, 5) for setting, value in medians.items()}
        about[f"{measure}, ratios"] = {
            f"{setting} / {base}": round(medians[setting] / medians[base], 2)
            for base in (OPEN, "none")
            for setting in defences
            if medians[base]  # no bytes in most rounds of an algorithm that asks clients once
        }
    return about


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
