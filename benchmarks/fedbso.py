"""FedBSO: accuracy of each reading of the thesis, cluster stability, time per round. Prints JSON.

    python benchmarks/fedbso.py readings clusters --seeds 3
    python benchmarks/fedbso.py speed

    readings   validation metrics of each reading of an open point, with the thesis' settings and
               with tuned settings
    clusters   adjusted Rand index between the clusters of successive rounds
    speed      time of a FedBSO round and of a FedFast round with as many users, alternating

`coterie reproduce fedbso` makes the thesis' table. Finished cells are not run again.
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
from coterie.federated.federation import Federation
from coterie.federated.trainer import Context, Trainer
from coterie.reproduce.papers.fedbso import THESIS as DECLARED
from coterie.reproduce.papers.fedbso import tuned

HR = "HR@20"
NDCG = "NDCG@20"
WARM_UP = 5
ROUNDS = {"ml-100k": 1000, "ml-1m": 1000, "pinterest": 360}
THESIS = {key: value for key, value in DECLARED.items() if key not in ("moments", "evaluate_every")}
"""Section 4.2, with Adam's moments reset every round."""
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
    "one user row a cluster": {"user_rows": "cluster"},
    "nothing is stirred": {"replacement_rate": 0.0, "swap_rate": 0.0},
}


def readings(dataset: str, seeds: int) -> dict[str, Any]:
    """Metrics on the validation part; the defaults were chosen from them."""
    thesis = THESIS | {"rounds": ROUNDS[dataset], "evaluate_every": ROUNDS[dataset]}
    ours = tuned_settings(dataset, "fedbso") | {"evaluate_every": 1000}
    methods = {f"thesis: {label}": thesis | reading for label, reading in READINGS.items()}
    methods["thesis: Adam's moments survive"] = thesis | {"moments": "averaged"}
    methods |= {f"tuned: {label}": ours | reading for label, reading in READINGS.items()}
    plan = Plan(
        datasets=(dataset,),
        methods=tuple(Method(label, "fedbso", settings) for label, settings in methods.items()),
        settings={"validation": True},
        seeds=tuple(range(seeds)),
        protocol="loo-100",
        part="validation",
    )
    outcomes = carried_out(plan)
    metrics = {
        label: {
            metric: spread([outcome.curve[-1][metric] for outcome in of(outcomes, label)])
            for metric in (HR, NDCG)
        }
        for label in methods
    }
    return {"part": "readings", "dataset": dataset, "seeds": seeds, "validation": metrics}


def clusters(dataset: str, seeds: int) -> dict[str, Any]:
    """Adjusted Rand index between the clusters of successive rounds, and fifty rounds apart."""
    thesis = THESIS | {"rounds": ROUNDS[dataset]}
    methods = {
        "fedfast": ("fedfast", thesis),
        "fedbso": ("fedbso", thesis),
        "fedbso, nothing is stirred": ("fedbso", thesis | READINGS["nothing is stirred"]),
        "fedfast, moments": ("fedfast", thesis | {"moments": "averaged"}),
        "fedfast, moments by change": (
            "fedfast",
            thesis | {"moments": "averaged", "moment_weights": "change"},
        ),
        "fedbso, moments": ("fedbso", thesis | {"moments": "averaged"}),
        "fedfast, tuned": ("fedfast", tuned(dataset, "fedfast")),
        "fedbso, tuned": ("fedbso", tuned(dataset, "fedbso")),
    }
    return {
        "part": "clusters",
        "dataset": dataset,
        "ours": {
            label: stability(dataset, name, settings, seeds)
            for label, (name, settings) in methods.items()
        },
    }


def stability(dataset: str, name: str, settings: dict[str, Any], seeds: int) -> dict[str, Any]:
    from sklearn.metrics import adjusted_rand_score

    near = []
    far = []
    for seed in range(seeds):
        training = split(load(dataset), "leave-one-out", 0.2, seed).training()
        trainer = trainer_of(training, name, settings, seed)
        state, _ = trainer.start()
        labels = []
        for n in range(1, settings["rounds"] + 1):
            state, _ = trainer.step(state, n)
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
    assert isinstance(chosen.train, Federation)
    own = chosen.settings.of(settings)
    return select.trainer(chosen.train, training, own, Context(seed, SILENT))


def speed(dataset: str, seeds: int) -> dict[str, Any]:
    """Milliseconds of a round without evaluation; FedFast has the cohort size of FedBSO."""
    training = split(load(dataset), "leave-one-out", 0.2, 0).training()
    result: dict[str, Any] = {"part": "speed", "dataset": dataset}
    for label, settings in (("thesis", THESIS), ("sgd", {"embedding_size": 16})):
        result[label] = speed_with(training, settings)
    return result


def speed_with(training: TrainingSet, settings: dict[str, Any]) -> dict[str, Any]:
    bso = trainer_of(training, "fedbso", settings)
    bso_state, _ = bso.start()
    sizes = []
    for n in range(1, 11):
        bso_state, costs = bso.step(bso_state, n)
        sizes.append(len(costs.users))
    share = mean(sizes) / training.n_users
    fast = trainer_of(training, "fedfast", settings | {"participation": share})
    fast_state, _ = fast.start()
    times: dict[str, list[float]] = {"fedbso": [], "fedfast": []}
    for n in range(11, 11 + 20 + WARM_UP):
        began = time.perf_counter()
        bso_state, costs = bso.step(bso_state, n)
        times["fedbso"].append((time.perf_counter() - began) / len(costs.users))
        began = time.perf_counter()
        fast_state, costs = fast.step(fast_state, n)
        times["fedfast"].append((time.perf_counter() - began) / len(costs.users))
    per_user = {name: statistics.median(values[WARM_UP:]) for name, values in times.items()}
    return {
        "users per round": round(mean(sizes), 1),
        "round_ms": {name: round(1e3 * value * mean(sizes), 2) for name, value in per_user.items()},
        "ratio": round(per_user["fedbso"] / per_user["fedfast"], 3),
    }


PARTS = {"readings": readings, "clusters": clusters, "speed": speed}


if __name__ == "__main__":
    print_parts(__doc__, PARTS)
