"""FedBSO's experiment (chapter 4 of the thesis) on our side of the comparison. Prints one JSON object per part.

    python benchmarks/fedbso.py table2 --datasets ml-100k --seeds 5
    python benchmarks/fedbso.py table2 --datasets ml-1m pinterest --seeds 3
    python benchmarks/fedbso.py readings clusters --seeds 3
    python benchmarks/fedbso.py speed

    table2     FedBSO, FedFast, FedAvg with the thesis' settings, Adam's moments surviving the round and not; the same with
               settings tuned for each on validation; FedFast with as many client updates as FedBSO; centralised GMF
    readings   what each reading of an open point is worth on ML-100K, on the validation part, with the thesis' settings and
               with tuned ones
    clusters   how much clusters change from round to round (adjusted Rand index), plateaus, the last 200 rounds
    speed      a round of FedBSO against one of FedFast with as many users, in turns; and Pinterest's rounds

Cells that were run before are not run again.
"""

from __future__ import annotations

import statistics
import time
from itertools import pairwise
from statistics import mean
from typing import Any

import numpy as np
from tables import carried_out, near_best, of, print_parts, spread, summary, tests

from coterie import rounds
from coterie.algorithm import Context, Trainer
from coterie.config import tuned_settings
from coterie.data.datasets import load
from coterie.plan import Method, Outcome, Plan
from coterie.progress import SILENT
from coterie.registry import algorithm
from coterie.splits import split
from coterie.types import Training

HR, NDCG = "HR@20", "NDCG@20"
PAPER = {  # Table 2: (HR@20, NDCG@20)
    "ml-100k": {"fedbso": (0.8204, 0.4335), "fedavg": (0.7328, 0.3565), "fedfast": (0.8091, 0.4237), "gmf": (0.8378, 0.4442)},
    "ml-1m": {"fedbso": (0.8534, 0.4489), "fedavg": (0.6917, 0.3195), "fedfast": (0.8346, 0.4325), "gmf": (0.8577, 0.4560)},
    "pinterest": {"fedbso": (0.9529, 0.5603), "fedavg": (0.4604, 0.1946), "fedfast": (0.9481, 0.5512), "gmf": (0.9632, 0.5814)},
}  # fmt: skip
ROUNDS = {"ml-100k": 1000, "ml-1m": 1000, "pinterest": 360}
THESIS = {  # Section 4.2, with 20 clusters; the second line is not given, and must not come from what was tuned for a dataset
    "embedding_size": 16, "optimizer": "adam", "learning_rate": 0.1, "batch_size": 256, "participation": 0.1,
    "reg": 0.0, "negatives": 4, "local_epochs": 1, "start_scale": 0.1, "final_rate": 1.0,
}  # fmt: skip
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
FEDERATED = ("fedbso", "fedfast", "fedavg")
EQUAL = "fedfast, as many updates"
TOUCHED = "fedavg, touched"
"""FedBSO's average without any clusters: what clusters are worth."""


def table2(dataset: str, seeds: int) -> dict[str, Any]:
    first = Method("fedbso", "fedbso", tuned(dataset, "fedbso"))
    n_users = load(dataset).n_users
    updates = mean(o.result["updates"] / o.result["rounds"] for o in run(dataset, (first,), seeds))
    share, ours = updates / n_users, tuned(dataset, "fedfast")
    more = (
        [Method(EQUAL, "fedfast", ours | {"participation": round(share, 5)})] if share > 0.105 else []
    )  # else it is the same
    compared = (
        first,
        Method("fedfast", "fedfast", ours),
        *more,
        Method("fedavg", "fedavg", tuned(dataset, "fedavg")),
        Method(TOUCHED, "fedavg", tuned(dataset, "fedbso") | {"average": "touched"}),
        Method("gmf", "gmf", tuned(dataset, "gmf")),
    )
    methods = (*compared, *thesis_methods(dataset))
    outcomes = run(dataset, methods, seeds)
    return {
        "part": "table2",
        "dataset": dataset,
        "seeds": seeds,
        "paper": PAPER[dataset],
        "updates a round": {m.label: round(updates_a_round(of(outcomes, m.label)), 1) for m in compared[:-1]},
        "ours": {m.label: summary(of(outcomes, m.label), (HR, NDCG)) for m in methods},
        "claims": claims(outcomes),
        "tests": tests(outcomes, "fedbso", [m.label for m in compared[1:]], (HR, NDCG)),
        **{
            f"tests{way}": tests(
                outcomes,
                f"fedbso{way}",
                [f"{name}{way}" for name in ("fedfast", TOUCHED, "fedavg") if of(outcomes, f"{name}{way}")],
                (HR, NDCG),
            )
            for way in (", thesis", ", thesis, moments")
            if of(outcomes, f"fedbso{way}")
        },
    }


def thesis_methods(dataset: str) -> list[Method]:
    """With moments that survive the round; on ML-100K also with moments that begin anew, and without clusters."""
    longest = THESIS | {"rounds": ROUNDS[dataset], "evaluate_every": 20}
    memories = {", moments": "averaged"} | ({"": "fresh"} if dataset == "ml-100k" else {})
    plain = [(name, name, {}) for name in FEDERATED]
    ways = [*plain, (TOUCHED, "fedavg", {"average": "touched"})] if dataset == "ml-100k" else plain
    return [
        Method(f"{label}, thesis{memory}", name, longest | {"moments": moments} | way)
        for memory, moments in memories.items()
        for label, name, way in ways
    ]


def tuned(dataset: str, name: str) -> dict[str, Any]:
    """Found on validation in this protocol with this embedding size: benchmarks/tune_all.sh."""
    found = TUNED.get(dataset, {}).get(name) or tuned_settings(dataset, name)
    return dict(found) if name == "gmf" else found | {"evaluate_every": 20}


def updates_a_round(outcomes: list[Outcome]) -> float:
    return mean(o.result["updates"] / o.result["rounds"] for o in outcomes)


def claims(outcomes: list[Outcome]) -> dict[str, Any]:
    """Sentences of the thesis, checked seed by seed."""
    found: dict[str, Any] = {}
    for label in ("", ", thesis", ", thesis, moments"):
        ours, theirs = of(outcomes, f"fedbso{label}"), of(outcomes, f"fedfast{label}")
        if not ours:
            continue
        leads = [o.result["metrics"][HR] - t.result["metrics"][HR] for o, t in zip(ours, theirs, strict=True)]
        found[f"ahead of FedFast{label}"] = {HR: spread(leads), "seeds ahead": sum(lead > 0 for lead in leads)}
        found[f"rounds to 95 % of its best{label}"] = {
            name: [near_best(o, HR) for o in of(outcomes, f"{name}{label}")] for name in FEDERATED
        }
        found[f"plateau, in rounds{label}"] = {
            name: [plateau(o) for o in of(outcomes, f"{name}{label}")] for name in FEDERATED
        }
        found[f"area under the curve{label}"] = {
            name: spread([o.result["convergence"]["area"] for o in of(outcomes, f"{name}{label}")])
            for name in FEDERATED
        }
        found[f"deviation over the last 200 rounds{label}"] = {
            name: spread([late_deviation(o) for o in of(outcomes, f"{name}{label}")]) for name in FEDERATED
        }
    shares = [
        o.result["metrics"][HR] / c.result["metrics"][HR]
        for o, c in zip(of(outcomes, "fedbso"), of(outcomes, "gmf"), strict=True)
    ]
    return found | {"share of centralised GMF": spread(shares) | {"bar": 0.98, "holds": mean(shares) >= 0.98}}


def plateau(outcome: Outcome) -> int:
    """Rounds between a best one and the next better one, at most, before 95 % of the best is reached."""
    end, since, best, longest = near_best(outcome, HR), 0, 0.0, 0
    for line in outcome.curve:
        if line["round"] <= end and line[HR] > best:
            longest, since, best = max(longest, line["round"] - since), line["round"], line[HR]
    return longest


def late_deviation(outcome: Outcome) -> float:
    last = outcome.curve[-1]["round"]
    return statistics.pstdev(line[HR] for line in outcome.curve if line["round"] > last - 200)


def readings(dataset: str, seeds: int) -> dict[str, Any]:
    """On validation: what was found here decided the defaults."""
    thesis = THESIS | {"rounds": ROUNDS[dataset], "evaluate_every": ROUNDS[dataset]}
    ours = tuned_settings(dataset, "fedbso") | {"evaluate_every": 1000}
    methods = [Method(f"thesis: {label}", "fedbso", thesis | way) for label, way in READINGS.items()]
    methods.append(Method("thesis: Adam's moments survive", "fedbso", thesis | {"moments": "averaged"}))
    methods += [Method(f"tuned: {label}", "fedbso", ours | way) for label, way in READINGS.items()]
    plan = Plan((dataset,), tuple(methods), {"validation": True}, tuple(range(seeds)), "loo-100", part="validation")
    outcomes = carried_out(plan)
    return {
        "part": "readings",
        "dataset": dataset,
        "seeds": seeds,
        "validation": {
            m.label: {metric: spread([o.curve[-1][metric] for o in of(outcomes, m.label)]) for metric in (HR, NDCG)}
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
        "fedfast, tuned": ("fedfast", tuned_alone(dataset, "fedfast")),
        "fedbso, tuned": ("fedbso", tuned_alone(dataset, "fedbso")),
    }
    return {
        "part": "clusters",
        "dataset": dataset,
        "ours": {label: stability(dataset, name, way, seeds) for label, (name, way) in ways.items()},
    }


def tuned_alone(dataset: str, name: str) -> dict[str, Any]:
    return {key: value for key, value in tuned(dataset, name).items() if key != "evaluate_every"}


def stability(dataset: str, name: str, settings: dict[str, Any], seeds: int) -> dict[str, Any]:
    from sklearn.metrics import adjusted_rand_score

    near, far = [], []
    for seed in range(seeds):
        training = split(load(dataset), "leave-one-out", 0.2, seed).training()
        work = trainer_of(training, name, settings, seed)
        state, _ = work.start()
        labels = []
        for n in range(1, settings["rounds"] + 1):
            state, _ = work.step(state, n)
            labels.append(state.clusters)
        near.append([adjusted_rand_score(a, b) for a, b in pairwise(labels)])
        far.append([adjusted_rand_score(labels[i], labels[i + 50]) for i in range(0, len(labels) - 50, 10)])
    thirds = np.array_split(np.mean(near, axis=0), 3)
    return {
        "one round to the next": spread([mean(each) for each in near]),
        "by thirds of the run": [round(float(third.mean()), 3) for third in thirds],
        "over fifty rounds": spread([mean(each) for each in far]),
    }


def trainer_of(training: Training, name: str, settings: dict[str, Any], seed: int = 0) -> Trainer:
    chosen = algorithm(name)
    return rounds.trainer(chosen.train, training, chosen.settings.of(settings), Context(seed, SILENT))  # type: ignore[arg-type]


def speed(dataset: str, seeds: int) -> dict[str, Any]:
    """Milliseconds of a round, evaluation apart, in turns: FedFast with as many users as FedBSO has."""
    training = split(load(dataset), "leave-one-out", 0.2, 0).training()
    found: dict[str, Any] = {"part": "speed", "dataset": dataset}
    for label, way in (("thesis", THESIS), ("sgd", {"embedding_size": 16})):
        bso = trainer_of(training, "fedbso", way)
        state, _ = bso.start()
        sizes = []
        for n in range(1, 11):
            state, tally = bso.step(state, n)
            sizes.append(len(tally.users))
        share = mean(sizes) / training.n_users
        fast = trainer_of(training, "fedfast", way | {"participation": share})
        other, _ = fast.start()
        times: dict[str, list[float]] = {"fedbso": [], "fedfast": []}
        for n in range(11, 11 + 20 + 5):
            began = time.perf_counter()
            state, tally = bso.step(state, n)
            between = time.perf_counter()
            other, theirs = fast.step(other, n)
            times["fedbso"].append((between - began) / len(tally.users))
            times["fedfast"].append((time.perf_counter() - between) / len(theirs.users))
        each = {name: statistics.median(values[5:]) for name, values in times.items()}
        found[label] = {
            "users a round": round(mean(sizes), 1),
            "round_ms": {name: round(1e3 * value * mean(sizes), 2) for name, value in each.items()},
            "ratio": round(each["fedbso"] / each["fedfast"], 3),
        }
    return found


def run(dataset: str, methods: tuple[Method, ...], seeds: int) -> list[Outcome]:
    plan = Plan((dataset,), methods, {"embedding_size": 16}, tuple(range(seeds)), "loo-100")
    return carried_out(plan)


TUNED: dict[str, dict[str, dict[str, Any]]] = {  # by benchmarks/tune_all.sh; on Pinterest they are the defaults
    "ml-100k": {
        "fedfast": {"learning_rate": 0.0929, "reg": 0.00793, "negatives": 8, "start_scale": 0.3, "local_epochs": 2, "final_rate": 0.1, "embedding_size": 16, "rounds": 500},
        "fedavg": {"learning_rate": 0.237, "reg": 0.0013, "negatives": 2, "start_scale": 0.03, "local_epochs": 2, "final_rate": 0.1, "embedding_size": 16, "rounds": 500},
        "gmf": {"learning_rate": 0.0189, "reg": 0.00145, "negatives": 8, "start_scale": 0.03, "embedding_size": 16, "epochs": 22},
    },
    "ml-1m": {
        "fedfast": {"learning_rate": 0.0929, "reg": 0.00793, "negatives": 8, "start_scale": 0.3, "final_rate": 0.1, "embedding_size": 16, "rounds": 800, "local_epochs": 1},
        "fedavg": {"learning_rate": 0.237, "reg": 0.0013, "negatives": 2, "start_scale": 0.03, "final_rate": 0.1, "embedding_size": 16, "rounds": 800, "local_epochs": 1},
        "gmf": {"learning_rate": 0.00583, "reg": 0.00291, "negatives": 8, "start_scale": 0.1, "embedding_size": 16, "epochs": 16},
    },
}  # fmt: skip
PARTS = {"table2": table2, "readings": readings, "clusters": clusters, "speed": speed}


if __name__ == "__main__":
    print_parts(__doc__, PARTS)
