"""Random search for settings on the validation part; the test part is dropped before anything is trained. Prints JSON.

    python benchmarks/tune.py ml-100k gmf --trials 30 --fix embedding_size=10 --write

Every algorithm gets the same number of trials. A trial trains until `patience` measurements bring nothing better, and is
judged by its best NDCG on validation; the number of epochs is part of what is found. `--write` puts the winner into
src/coterie/tuned.yaml, where it becomes the default for that dataset.
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
from coterie.algorithm import Context
from coterie.config import Experiment, parse_assignments
from coterie.errors import Diverged
from coterie.evaluate import candidates, leaks
from coterie.evaluate.evaluation import quick
from coterie.experiment import load_data
from coterie.progress import SILENT
from coterie.registry import algorithm
from coterie.splits import split

TUNED = Path(__file__).parents[1] / "src" / "coterie" / "tuned.yaml"
SPACES: dict[str, dict[str, tuple[float, float] | list[Any]]] = {
    "gmf": {"learning_rate": (0.005, 0.1), "reg": (1e-3, 0.1), "negatives": [2, 4, 8], "start_scale": [0.01, 0.03, 0.1], "embedding_size": [16, 32, 64]},
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("algorithm", choices=SPACES)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--every", type=int, default=4)
    parser.add_argument("--patience", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fix", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()

    fixed = parse_assignments(options.fix)
    start = Experiment.of({"algorithm": options.algorithm, "dataset": options.dataset, "seed": options.seed} | fixed)
    protocol, chosen = start.protocol, algorithm(options.algorithm)
    parts = split(load_data(start), protocol.split, protocol.fraction, options.seed, validation=True).for_tuning()
    training = parts.training()
    leaks.check(parts, training)
    judged = (
        candidates.sample(parts.test, parts.everything(), protocol.candidates, options.seed)
        if protocol.candidates
        else None
    )
    metric = f"NDCG@{protocol.cutoffs[0]}"
    iterative = "epochs" in chosen.settings.model_fields

    def trial(number: int) -> dict[str, Any]:
        point = (
            draw({k: v for k, v in SPACES[options.algorithm].items() if k not in fixed}, options.seed, number) | fixed
        )
        settings = chosen.settings.of(point | ({"epochs": options.epochs} if iterative else {}))
        best: dict[str, Any] = {metric: -1.0}
        since = 0
        try:
            for epoch, model in enumerate(chosen.train(training, settings, Context(options.seed, SILENT)), 1):
                if epoch % options.every and epoch != chosen.steps(settings):
                    continue
                metrics = quick(model, protocol, parts.seen(), parts.test, judged)
                since = 0 if metrics[metric] > best[metric] else since + 1
                if not since:
                    best = metrics | {"settings": point | ({"epochs": epoch} if iterative else {})}
                if since >= options.patience:
                    break
        except Diverged:
            pass
        return best

    found: list[dict[str, Any]] = []
    began = time.perf_counter()
    for number in range(options.trials):
        found.append(trial(number))
        best = max(found, key=lambda f: f[metric])
        print(
            f"{number + 1}/{options.trials} {time.perf_counter() - began:.0f} s best {metric} {best[metric]:.4f} {best['settings']}",
            file=sys.stderr,
        )
    result = {"dataset": options.dataset, "algorithm": options.algorithm, "trials": options.trials, "validation": best}
    print(json.dumps(result, indent=2))
    if options.write:
        tuned = yaml.safe_load(TUNED.read_text()) or {}
        tuned.setdefault(options.dataset, {})[options.algorithm] = best["settings"]
        header = "# Found on validation parts by benchmarks/tune.py; the defaults for these datasets.\n"
        TUNED.write_text(header + yaml.safe_dump(tuned, sort_keys=True))


if __name__ == "__main__":
    main()
