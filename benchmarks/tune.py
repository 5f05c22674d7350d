"""Random search for settings on the validation part; the test part is dropped before anything is trained. Prints JSON.

    python benchmarks/tune.py ml-100k gmf --trials 30 --set embedding_size=10 --write

A trial trains until `patience` measurements bring nothing better and is judged by its best NDCG on validation; the number of
epochs is part of what is found. `--write` puts the winner into src/coterie/tuned.yaml, where it becomes the default for that
dataset. The best of many noisy trials is partly luck: with `--finalists 5` the five best are trained again with other seeds and
the best mean wins. benchmarks/tune_all.sh holds the commands behind every entry of that file.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from coterie import streams
from coterie.config import Experiment, parse_assignments
from coterie.data.interactions import Interactions
from coterie.errors import Diverged
from coterie.evaluate import leaks
from coterie.experiment import hold_out, load_data
from coterie.progress import SILENT
from coterie.registry import algorithm
from coterie.training import Ruler, train

TUNED = Path(__file__).parents[1] / "src" / "coterie" / "tuned.yaml"
HEADER = "# Found on validation parts by benchmarks/tune.py; the defaults for these datasets.\n"
SPACES: dict[str, dict[str, tuple[float, float] | list[Any]]] = {
    "gmf": {
        "learning_rate": (0.005, 0.1), "reg": (1e-3, 0.1), "negatives": [2, 4, 8],
        "start_scale": [0.01, 0.03, 0.1], "embedding_size": [16, 32, 64],
    },
    "bpr": {
        "learning_rate": (0.01, 0.2), "reg_user": (1e-4, 0.1), "reg_positive": (1e-4, 0.1), "reg_negative": (1e-4, 0.1),
        "reg_bias": [0.0, 0.01], "start_scale": [0.01, 0.03, 0.1], "embedding_size": [16, 32, 64],
    },
    "als": {"alpha": (0.3, 50.0), "reg": (0.1, 100.0), "embedding_size": [16, 32, 64]},
    "ease": {"reg": (30.0, 5000.0)},
}  # fmt: skip


def draw(space: dict[str, Any], seed: int, trial: int) -> dict[str, Any]:
    """One point: log-uniform between two numbers, or one of a list."""
    rng = streams.at(seed, "tuning", trial)
    point: dict[str, Any] = {}
    for key, choice in space.items():
        if isinstance(choice, list):
            point[key] = choice[rng.integers(len(choice))]
        else:
            point[key] = float(f"{np.exp(rng.uniform(*np.log(choice))):.3g}")
    return point


def trial(keys: dict[str, Any], point: dict[str, Any], data: Interactions) -> tuple[float, dict[str, Any]]:
    """(best NDCG on validation, the settings with the number of epochs that reached it)."""
    experiment = Experiment.of(keys | point)
    parts, candidates = hold_out(experiment, data)
    ruler = Ruler.of(experiment, parts, candidates)
    parts = parts.for_tuning()
    training = parts.training()
    leaks.check(parts, training)
    try:
        fitted = train(experiment, training, ruler, SILENT)
    except Diverged:
        return -1.0, point
    value = max(line[ruler.headline] for line in fitted.journey.curve)
    return value, point | ({"epochs": fitted.best_round} if "epochs" in keys else {})


def final(keys: dict[str, Any], point: dict[str, Any], data: Interactions, seeds: int) -> tuple[float, dict[str, Any]]:
    """The mean over other seeds (and so other candidates), and the median number of epochs."""
    runs = [trial(keys | {"seed": keys["seed"] + 1 + s}, point, data) for s in range(seeds)]
    epochs = {"epochs": int(np.median([r[1]["epochs"] for r in runs]))} if "epochs" in keys else {}
    return float(np.mean([r[0] for r in runs])), point | epochs


def write(dataset: str, name: str, settings: dict[str, Any]) -> None:
    tuned = yaml.safe_load(TUNED.read_text()) or {}
    tuned.setdefault(dataset, {})[name] = settings
    TUNED.write_text(HEADER + yaml.safe_dump(tuned, sort_keys=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("algorithm", choices=SPACES)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--every", type=int, default=4)
    parser.add_argument("--patience", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--finalists", type=int, default=0, help="train so many of the best again with other seeds")
    parser.add_argument("--seeds", type=int, default=4, help="how many other seeds")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="hold a setting still")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()

    held = parse_assignments(options.set)
    keys: dict[str, Any] = {"algorithm": options.algorithm, "dataset": options.dataset, "seed": options.seed}
    keys |= {"validation": True, "headline": ["NDCG"], "evaluate_every": options.every, "patience": options.patience}
    if "epochs" in algorithm(options.algorithm).settings.model_fields:
        keys["epochs"] = options.epochs
    data = load_data(Experiment.of(keys))
    space = {key: choice for key, choice in SPACES[options.algorithm].items() if key not in held}
    found: list[tuple[float, dict[str, Any]]] = []
    began = time.perf_counter()

    def tell(what: str) -> None:
        best = max(found, key=lambda f: f[0])
        print(f"{what} {time.perf_counter() - began:.0f} s NDCG {best[0]:.4f} {best[1]}", file=sys.stderr)

    for number in range(options.trials):
        found.append(trial(keys, draw(space, options.seed, number) | held, data))
        tell(f"{number + 1}/{options.trials}")
    if options.finalists:
        finalists = sorted(found, key=lambda f: -f[0])[: options.finalists]
        found = [final(keys, point, data, options.seeds) for _, point in finalists]
        tell("finalists")
    best = max(found, key=lambda f: f[0])
    print(
        json.dumps(
            {
                "dataset": options.dataset,
                "algorithm": options.algorithm,
                "trials": options.trials,
                "ndcg": best[0],
                "settings": best[1],
            }
        )
    )
    if options.write:
        write(options.dataset, options.algorithm, best[1])


if __name__ == "__main__":
    main()
