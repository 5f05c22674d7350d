"""Accuracy against the bytes and messages of a client. Prints one line of JSON per run.

    python benchmarks/bytes_to_accuracy.py > curves.jsonl
    python benchmarks/bytes_to_accuracy.py --seeds 1 --only "fedals 64" fedfast
    python benchmarks/sums_page.py --found curves.jsonl

FedALS by the size of vectors and of blocks, FedEASE, FedSLIM, FedFast and FedAvg on MovieLens-1M,
and the centralised ALS, EASE and SLIM to compare with. A name is "fedals 64/16" for vectors of 64
in blocks of 16. Other settings are the defaults of the dataset, which were chosen on its validation
part before. So the test part decides nothing here, and every round is measured on all of its users.
Runs with blocks have half the sweeps of the others. Popularity is left out of all scores, as in
the papers.

Bytes in the clear are those that a run counts. Under secure aggregation a model has the same bits,
so that its accuracy is that of the run in the clear; bytes are computed from the length of the
summed vector and the sizes of groups (`secagg`). Messages are those that a client replies to.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from coterie.algorithms.registry import algorithm
from coterie.core.progress import SILENT
from coterie.data.training_set import TrainingSet
from coterie.experiments.choice_costs import model_bytes, secure_round_bytes
from coterie.experiments.config import Experiment
from coterie.experiments.history import TrainingHistory
from coterie.experiments.preparation import prepare
from coterie.experiments.training import begin, train, trainer
from coterie.federated.federation import Federation
from coterie.federated.settings import federation_settings
from coterie.federated.trainer import Context, world_of
from coterie.types import JsonObject

METRIC = "NDCG@10"
TARGET = 0.55
SWEEPS = 10
SWEEPS_IN_BLOCKS = 5
"""Updates of all coordinates of the items; with blocks, one takes several rounds."""
SIZES = {16: (0,), 32: (0, 16), 64: (0, 32, 16), 128: (0, 32, 16)}
"""Sizes of blocks by the size of vectors; 0 is without blocks."""
CENTRALISED = ("als", "ease", "slim")
LONG = ("fedals 128/32", "fedals 128/16")
"""Runs of several minutes: one seed only."""


def methods() -> dict[str, dict[str, Any]]:
    """The algorithm and settings of every name."""
    found: dict[str, dict[str, Any]] = {
        name: {"algorithm": name} for name in ("fedease", "fedslim")
    }
    for size, block_sizes in SIZES.items():
        for block_size in block_sizes:
            name = f"fedals {size}/{block_size}" if block_size else f"fedals {size}"
            found[name] = fedals(size, block_size)
    return found | {name: {"algorithm": name} for name in ("fedfast", "fedavg", *CENTRALISED)}


def fedals(size: int, block_size: int) -> dict[str, Any]:
    rounds = SWEEPS_IN_BLOCKS * -(-size // block_size) if block_size else SWEEPS
    return {
        "algorithm": "fedals",
        "embedding_size": size,
        "block_size": block_size,
        "rounds": rounds,
    }


class Traffic(NamedTuple):
    """Bytes of one client."""

    up: float
    down: float


class SecureTraffic(NamedTuple):
    """Bytes of one client under secure aggregation."""

    before: Traffic
    """Before the first round: what the algorithm collects in the clear."""
    message: Traffic
    """In every round that it takes part in."""


def secure_traffic(experiment: Experiment, training: TrainingSet) -> SecureTraffic:
    """Bytes that secure aggregation takes, without a run."""
    federation = algorithm(experiment.choice.algorithm).train
    assert isinstance(federation, Federation)
    settings = federation_settings(experiment.settings)
    work = trainer(
        algorithm(experiment.choice.algorithm),
        training,
        settings,
        Context(experiment.choice.seed, SILENT),
    )
    point = begin(work, training.n_users)
    world = world_of(training, settings.protected(), experiment.choice.seed, federation)
    message = secure_round_bytes(federation, world, training, point.state)
    clients = int(world.members.sum())
    before = Traffic(point.history.bytes_up / clients, point.history.bytes_down / clients)
    return SecureTraffic(before, Traffic(*message))


def run_curve(history: TrainingHistory, clients: int, secure: SecureTraffic) -> list[JsonObject]:
    """Accuracy, messages and bytes of a client after every round."""
    setup = 1 if secure.before.up else 0
    found = []
    for line in history.curve:
        replies = line["updates"] / clients
        found.append(
            {
                "round": line["round"],
                METRIC: round(line[METRIC], 5),
                "messages": round(replies + setup, 3),
                "up": round(line["bytes_up"] / clients),
                "down": round(line["bytes_down"] / clients),
                "secure up": round(secure.before.up + replies * secure.message.up),
                "secure down": round(secure.before.down + replies * secure.message.down),
            }
        )
    return found


def first_at(curve: Sequence[JsonObject], target: float = TARGET) -> JsonObject | None:
    """The first round that reaches the target; None if none does."""
    return next((line for line in curve if line[METRIC] >= target), None)


def measured(name: str, settings: dict[str, Any], dataset: str, seed: int) -> JsonObject:
    # The epochs of a centralised algorithm are no rounds: only its last one is measured.
    every = 1_000_000 if name in CENTRALISED else 1
    given = {"dataset": dataset, "seed": seed, "evaluate_every": every, "curve_users": 0}
    experiment = Experiment.of(settings | given | {"popularity_prior": 0.0})
    ready = prepare(experiment, None, SILENT)
    fitted = train(experiment, ready.training, ready.evaluator, SILENT)
    clients = int((ready.training.positives.counts > 0).sum())
    if name in CENTRALISED:
        curve = [{METRIC: round(fitted.history.curve[-1][METRIC], 5)}]
    else:
        curve = run_curve(fitted.history, clients, secure_traffic(experiment, ready.training))
    return {
        "name": name,
        "dataset": dataset,
        "protocol": experiment.protocol_label,
        "part": ready.evaluator.part,
        "seed": seed,
        "changed settings": experiment.settings.model_dump(exclude_defaults=True, mode="json"),
        "clients": clients,
        "model bytes": model_bytes(fitted.model),
        "seconds": round(fitted.history.seconds, 1),
        "to the target": None if name in CENTRALISED else first_at(curve),
        "curve": curve,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="ml-1m")
    parser.add_argument("--only", nargs="*", default=list(methods()), choices=list(methods()))
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    for name in options.only:
        for seed in range(1 if name in LONG else options.seeds):
            line = measured(name, methods()[name], options.dataset, seed)
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
