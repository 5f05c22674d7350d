"""Full-ranking NDCG@10 on the test part: federated models beside the best centralised ones.

    python benchmarks/federated_vs_centralised.py
    python benchmarks/federated_vs_centralised.py --datasets ml-100k tripadvisor --only fedals als

Settings were chosen on the validation parts by full ranking, with about as many trials for a
centralised method as for its federated counterpart; those of als, ease and slim are those of
fedals, fedease and fedslim. Prints one line of JSON per run, and at the end of a dataset the ratio
of the best federated figure to the best centralised one.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import coterie
from coterie.errors import CoterieError

METRIC = "NDCG@10"
COUNTERPARTS = {"fedals": "als", "fedease": "ease", "fedslim": "slim"}
SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "ml-100k": {
        "fedals": {
            "alpha": 2.27,
            "reg": 0.0311,
            "reg_exponent": 0.5,
            "embedding_size": 32,
            "rounds": 6,
        },
        "fedease": {"reg": 19.9, "length_exponent": 0.35, "popularity_exponent": 0.4},
        "fedslim": {"reg_l1": 0.38, "reg_l2": 11.5, "neighbours": 0},
        "userknn": {"neighbours": 30, "shrink": 0.0},
        "itemknn": {"neighbours": 500, "shrink": 10.0},
        "multivae": {
            "learning_rate": 0.00524,
            "beta": 0.1,
            "dropout": 0.3,
            "hidden": 600,
            "latent": 100,
            "batch_size": 500,
            "epochs": 50,
        },
        "lightgcn": {
            "learning_rate": 0.00121,
            "reg": 0.0117,
            "layers": 2,
            "batch_size": 2048,
            "start_scale": 0.1,
            "embedding_size": 64,
            "epochs": 70,
        },
        "bpr": {
            "learning_rate": 0.021,
            "reg_user": 0.00128,
            "reg_positive": 0.000153,
            "reg_negative": 0.00037,
            "reg_bias": 0.0,
            "start_scale": 0.01,
            "embedding_size": 32,
            "epochs": 70,
        },
    },
    "ml-1m": {
        "fedals": {
            "alpha": 1.23,
            "reg": 0.0072,
            "reg_exponent": 0.5,
            "embedding_size": 128,
            "rounds": 8,
        },
        "fedease": {"reg": 47.0, "length_exponent": 0.25, "popularity_exponent": 0.1},
        "fedslim": {"reg_l1": 0.13, "reg_l2": 115.0, "neighbours": 500},
        "userknn": {"neighbours": 50, "shrink": 10.0},
        "itemknn": {"neighbours": 10, "shrink": 1.0},
        "multivae": {
            "learning_rate": 0.000517,
            "beta": 0.2,
            "dropout": 0.3,
            "hidden": 600,
            "latent": 200,
            "batch_size": 100,
            "epochs": 80,
        },
        "lightgcn": {
            "learning_rate": 0.0196,
            "reg": 0.000191,
            "layers": 4,
            "batch_size": 4096,
            "start_scale": 0.01,
            "embedding_size": 32,
            "epochs": 50,
        },
        "bpr": {},
    },
    "pinterest": {
        "fedals": {
            "alpha": 6.18,
            "reg": 0.106,
            "reg_exponent": 0.5,
            "embedding_size": 128,
            "rounds": 12,
        },
        "fedease": {"reg": 11.5, "length_exponent": 0.5, "popularity_exponent": 0.3},
        "fedslim": {"reg_l1": 0.337, "reg_l2": 37.5, "neighbours": 200},
        "userknn": {"neighbours": 100, "shrink": 1.0},
        "itemknn": {"neighbours": 200, "shrink": 3.0},
        "multivae": {
            "learning_rate": 0.000366,
            "beta": 0.1,
            "dropout": 0.7,
            "hidden": 200,
            "latent": 100,
            "batch_size": 500,
            "epochs": 100,
        },
        "lightgcn": {
            "learning_rate": 0.0196,
            "reg": 0.000191,
            "layers": 4,
            "batch_size": 4096,
            "start_scale": 0.01,
            "embedding_size": 32,
            "epochs": 50,
        },
    },
    "foursquare-italy": {
        "fedals": {
            "alpha": 4.62,
            "reg": 0.0221,
            "reg_exponent": 1.0,
            "embedding_size": 64,
            "rounds": 12,
        },
        "fedslim": {"reg_l1": 0.026, "reg_l2": 40.1, "neighbours": 500, "max_memory": 12.0},
        "userknn": {"neighbours": 50, "shrink": 3.0},
        "itemknn": {"neighbours": 50, "shrink": 30.0},
        "multivae": {
            "learning_rate": 0.000517,
            "beta": 0.2,
            "dropout": 0.3,
            "hidden": 600,
            "latent": 200,
            "batch_size": 100,
            "epochs": 20,
        },
        "lightgcn": {
            "learning_rate": 0.0196,
            "reg": 0.000191,
            "layers": 4,
            "batch_size": 4096,
            "start_scale": 0.01,
            "embedding_size": 32,
            "epochs": 20,
        },
    },
    "yelp": {
        "fedals": {
            "alpha": 67.2,
            "reg": 0.37,
            "reg_exponent": 1.0,
            "embedding_size": 128,
            "rounds": 12,
        },
        "fedslim": {"reg_l1": 0.026, "reg_l2": 40.1, "neighbours": 500},
        "userknn": {"neighbours": 200, "shrink": 3.0},
        "itemknn": {"neighbours": 50, "shrink": 30.0},
        "multivae": {
            "learning_rate": 0.000366,
            "beta": 0.1,
            "dropout": 0.7,
            "hidden": 200,
            "latent": 100,
            "batch_size": 500,
            "epochs": 100,
        },
        "lightgcn": {
            "learning_rate": 0.0196,
            "reg": 0.000191,
            "layers": 4,
            "batch_size": 4096,
            "start_scale": 0.01,
            "embedding_size": 32,
            "epochs": 20,
        },
    },
    "tripadvisor": {
        "fedals": {
            "alpha": 1.81,
            "reg": 0.052,
            "reg_exponent": 0.5,
            "embedding_size": 16,
            "rounds": 10,
        },
        "fedease": {"reg": 269.0, "length_exponent": 0.25},
        "fedslim": {"reg_l1": 0.128, "reg_l2": 285.0, "neighbours": 0},
        "userknn": {"neighbours": 200, "shrink": 1.0},
        "itemknn": {"neighbours": 100, "shrink": 30.0},
        "multivae": {
            "learning_rate": 0.000517,
            "beta": 0.2,
            "dropout": 0.3,
            "hidden": 600,
            "latent": 200,
            "batch_size": 100,
            "epochs": 10,
        },
        "lightgcn": {
            "learning_rate": 0.00121,
            "reg": 0.0117,
            "layers": 2,
            "batch_size": 2048,
            "start_scale": 0.1,
            "embedding_size": 64,
            "epochs": 60,
        },
        "bpr": {
            "learning_rate": 0.137,
            "reg_user": 0.000913,
            "reg_positive": 0.0807,
            "reg_negative": 0.00271,
            "reg_bias": 0.01,
            "start_scale": 0.03,
            "embedding_size": 32,
            "epochs": 10,
        },
    },
    "watson-articles": {
        "fedals": {
            "alpha": 8.28,
            "reg": 0.0819,
            "reg_exponent": 1.0,
            "embedding_size": 200,
            "rounds": 6,
        },
        "fedease": {
            "reg": 1.284,
            "length_exponent": 0.22,
            "reg_exponent": 0.46,
            "popularity_exponent": 0.21,
        },
        "fedslim": {"reg_l1": 0.012, "reg_l2": 1.41, "neighbours": 0},
        "userknn": {"neighbours": 5, "shrink": 30.0},
        "itemknn": {"neighbours": 100, "shrink": 0.0},
        "multivae": {
            "learning_rate": 0.00524,
            "beta": 0.1,
            "dropout": 0.3,
            "hidden": 600,
            "latent": 100,
            "batch_size": 500,
            "epochs": 100,
        },
        "lightgcn": {
            "learning_rate": 0.0196,
            "reg": 0.000191,
            "layers": 4,
            "batch_size": 4096,
            "start_scale": 0.01,
            "embedding_size": 32,
            "epochs": 60,
        },
        "bpr": {
            "learning_rate": 0.0567,
            "reg_user": 0.0216,
            "reg_positive": 0.0155,
            "reg_negative": 0.000199,
            "reg_bias": 0.01,
            "start_scale": 0.01,
            "embedding_size": 64,
            "epochs": 80,
        },
    },
}


def methods(dataset: str) -> dict[str, dict[str, Any]]:
    """All methods of a dataset; a centralised counterpart has the settings of its federated one."""
    listed = {"popular": {}} | SETTINGS[dataset]
    for federated, centralised in COUNTERPARTS.items():
        if federated in listed:
            listed[centralised] = centralised_settings(listed[federated])
    return listed


def centralised_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Rounds are called epochs, and the memory of sums is not needed."""
    renamed = {"epochs" if key == "rounds" else key: value for key, value in settings.items()}
    is_sparse = "reg_l1" in settings
    return {key: value for key, value in renamed.items() if key != "max_memory" or not is_sparse}


def measured(name: str, dataset: str, settings: dict[str, Any], seed: int) -> dict[str, Any]:
    about = {"dataset": dataset, "algorithm": name, "seed": seed}
    began = time.perf_counter()
    # Settings tuned for the protocol of the dataset are replaced; popularity counts nowhere.
    keys = {"evaluate_every": 1_000_000, "popularity_prior": 0, "cutoffs": (10, 20)} | settings
    try:
        run = coterie.run(name, dataset, seed=seed, **keys)
    except CoterieError as error:
        return about | {"refused": str(error)}
    seconds = round(time.perf_counter() - began, 1)
    return about | {METRIC: round(run.full[METRIC], 5), "seconds": seconds}


def ratio(dataset: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The best federated figure of a dataset over the best centralised one, means over seeds."""
    figures: dict[str, list[float]] = {}
    for run in runs:
        if METRIC in run:
            figures.setdefault(run["algorithm"], []).append(run[METRIC])
    means = {name: sum(values) / len(values) for name, values in figures.items()}
    federated = {name: value for name, value in means.items() if name in COUNTERPARTS}
    others = {name: value for name, value in means.items() if name not in COUNTERPARTS}
    if not federated or not others:
        return {"dataset": dataset, "ratio": None}
    best = max(federated, key=lambda name: federated[name])
    rival = max(others, key=lambda name: others[name])
    return {
        "dataset": dataset,
        "federated": best,
        "centralised": rival,
        "ratio": round(federated[best] / others[rival], 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="*", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--only", nargs="*", help="methods")
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    for dataset in options.datasets:
        runs = []
        for name, settings in methods(dataset).items():
            if options.only and name not in options.only:
                continue
            for seed in range(options.seeds):
                runs.append(measured(name, dataset, settings, seed))
                print(json.dumps(runs[-1]), flush=True)
        print(json.dumps(ratio(dataset, runs)), flush=True)


if __name__ == "__main__":
    main()
