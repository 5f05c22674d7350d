"""What FedBSO's readings are worth, how its clusters change, and what a round takes. Prints one JSON object per part.

    python benchmarks/fedbso.py readings clusters --seeds 3
    python benchmarks/fedbso.py speed

    readings   what each reading of an open point is worth on ML-100K, on the validation part, with the thesis' settings and
               with tuned ones
    clusters   how much clusters change from round to round (adjusted Rand index)
    speed      a round of FedBSO against one of FedFast with as many users, in turns; and Pinterest's rounds

The thesis' table is `coterie reproduce fedbso`. Cells that were run before are not run again.
"""

from __future__ import annotations

import statistics
import time
from itertools import pairwise
from statistics import mean
from typing import Any

import numpy as np
from tables import carried_out, of, print_parts, spread

from coterie.algorithms.registry import algorithm
from coterie.core.progress import SILENT
from coterie.data.datasets import load
from coterie.data.splits import split
from coterie.data.training_set import TrainingSet
from coterie.engines import select
from coterie.experiments.config import tuned_settings
from coterie.experiments.plan import Method, Plan
from coterie.federated.trainer import Context, Trainer
from coterie.reproduce.papers.fedbso import THESIS as DECLARED
from coterie.reproduce.papers.fedbso import tuned

HR = "HR@20"
NDCG = "NDCG@20"
ROUNDS = {"ml-100k": 1000, "ml-1m": 1000, "pinterest": 360}
THESIS = {key: value for key, value in DECLARED.items() if key not in ("moments", "evaluate_every")}
"""Section 4.2, with moments that begin anew."""
READINGS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "averaged over everybody": {"average": "all"},
    "subordinates stay": {"discount": "none"},
    "subordinates follow, 1 / (1 + t)": {"discount": "inverse"},
    "subordinates follow, always": {"discount": "constant"},
    "best user by loss": {"best_user": "loss"},
    "new centres count at once": {"new_centres": "now"},
    "swap of centres alone": {"swap": "centres"},
    "P stays P_0": {"cluster_by": "statistics"},
    "a model a cluster": {"aggregate": "cluster"},
    "a model a cluster, averaged over all of it": {"aggregate": "cluster", "average": "all"},
    "nothing is stirred": {"replacement_rate": 0.0, "swap_rate": 0.0},
}


def readings(dataset: str, seeds: int) -> dict[str, Any]:
    """On validation: what was found here decided the defaults."""
    thesis = THESIS | {"rounds": ROUNDS[dataset], "evaluate_every": ROUNDS[dataset]}
    ours = tuned_settings(dataset, "fedbso") | {"evaluate_every": 1000}
    methods = [
        Method(f"thesis: {label}", "fedbso", thesis | way) for label, way in READINGS.items()
    ]
    methods.append(
        Method("thesis: Adam's moments survive", "fedbso", thesis | {"moments": "averaged"})
    )
    methods += [Method(f"tuned: {label}", "fedbso", ours | way) for label, way in READINGS.items()]
    plan = Plan(
        (dataset,),
        tuple(methods),
        {"validation": True},
        tuple(range(seeds)),
        "loo-100",
        part="validation",
    )
    outcomes = carried_out(plan)
    return {
        "part": "readings",
        "dataset": dataset,
        "seeds": seeds,
        "validation": {
            m.label: {
                metric: spread([o.curve[-1][metric] for o in of(outcomes, m.label)])
                for metric in (HR, NDCG)
            }
            for m in methods
        },
    }


def clusters(dataset: str, seeds: int) -> dict[str, Any]:
    """Adjusted Rand index between the partitions of one round and the next, and over fifty rounds."""
    thesis = THESIS | {"rounds": ROUNDS[dataset]}
    ways = {
        "fedfast": ("fedfast", thesis),
        "fedbso": ("fedbso", thesis),
        "fedbso, nothing is stirred": ("fedbso", thesis | READINGS["nothing is stirred"]),
        "fedfast, moments": ("fedfast", thesis | {"moments": "averaged"}),
        "fedbso, moments": ("fedbso", thesis | {"moments": "averaged"}),
        "fedfast, tuned": ("fedfast", tuned(dataset, "fedfast")),
        "fedbso, tuned": ("fedbso", tuned(dataset, "fedbso")),
    }
    return {
        "part": "clusters",
        "dataset": dataset,
        "ours": {
            label: stability(dataset, name, way, seeds) for label, (name, way) in ways.items()
        },
    }


def stability(dataset: str, name: str, settings: dict[str, Any], seeds: int) -> dict[str, Any]:
    from sklearn.metrics import adjusted_rand_score

    near = []
    far = []
    for seed in range(seeds):
        training = split(load(dataset), "leave-one-out", 0.2, seed).training()
        work = trainer_of(training, name, settings, seed)
        state, _ = work.start()
        labels = []
        for n in range(1, settings["rounds"] + 1):
            state, _ = work.step(state, n)
            labels.append(state.clusters)
        near.append([adjusted_rand_score(a, b) for a, b in pairwise(labels)])
        far.append(
            [adjusted_rand_score(labels[i], labels[i + 50]) for i in range(0, len(labels) - 50, 10)]
        )
    thirds = np.array_split(np.mean(near, axis=0), 3)
    return {
        "one round to the next": spread([mean(each) for each in near]),
        "by thirds of the run": [round(float(third.mean()), 3) for third in thirds],
        "over fifty rounds": spread([mean(each) for each in far]),
    }


def trainer_of(
    training: TrainingSet, name: str, settings: dict[str, Any], seed: int = 0
) -> Trainer:
    chosen = algorithm(name)
    return select.trainer(
        chosen.train, training, chosen.settings.of(settings), Context(seed, SILENT)
    )  # type: ignore[arg-type]


def speed(dataset: str, seeds: int) -> dict[str, Any]:
    """Milliseconds of a round, evaluation apart, in turns: FedFast with as many users as FedBSO has."""
    training = split(load(dataset), "leave-one-out", 0.2, 0).training()
    found: dict[str, Any] = {"part": "speed", "dataset": dataset}
    for label, way in (("thesis", THESIS), ("sgd", {"embedding_size": 16})):
        bso = trainer_of(training, "fedbso", way)
        state, _ = bso.start()
        sizes = []
        for n in range(1, 11):
            state, costs = bso.step(state, n)
            sizes.append(len(costs.users))
        share = mean(sizes) / training.n_users
        fast = trainer_of(training, "fedfast", way | {"participation": share})
        other, _ = fast.start()
        times: dict[str, list[float]] = {"fedbso": [], "fedfast": []}
        for n in range(11, 11 + 20 + 5):
            began = time.perf_counter()
            state, costs = bso.step(state, n)
            between = time.perf_counter()
            other, theirs = fast.step(other, n)
            times["fedbso"].append((between - began) / len(costs.users))
            times["fedfast"].append((time.perf_counter() - between) / len(theirs.users))
        each = {name: statistics.median(values[5:]) for name, values in times.items()}
        found[label] = {
            "users a round": round(mean(sizes), 1),
            "round_ms": {name: round(1e3 * value * mean(sizes), 2) for name, value in each.items()},
            "ratio": round(each["fedbso"] / each["fedfast"], 3),
        }
    return found


PARTS = {"readings": readings, "clusters": clusters, "speed": speed}


if __name__ == "__main__":
    print_parts(__doc__, PARTS)
