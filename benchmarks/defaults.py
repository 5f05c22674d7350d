"""Whether the defaults of every algorithm learn something. Prints one line of JSON per run.

    python benchmarks/defaults.py
    python benchmarks/defaults.py --only fedavg bpr --datasets sparse --seconds 300
    python benchmarks/defaults.py --plain > docs/assets/defaults.jsonl
    python benchmarks/defaults.py --table docs/assets/defaults.jsonl

A run has the settings that `coterie run NAME --dataset DATASET` has; with --plain those that it has
on data nobody tuned for. Its headline metric is held against chance (a model that scores all items
alike), and its NDCG@10 by full ranking against that of the most popular items. `flag` is `chance`
for a headline no more than a tenth above chance, `below popular`, or empty. `sparse` is synthetic
data of 20,000 users, 15,000 items and about 10 interactions a user, with the plain defaults: those
of `synthetic` are not used for other sizes. Each run has its own process and --seconds to finish.

--table writes earlier runs as a table into docs/defaults.md: NDCG@10 by full ranking as a multiple
of that of the most popular items.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import coterie
from coterie.algorithms.registry import ALGORITHMS
from coterie.core.progress import SILENT
from coterie.errors import CoterieError
from coterie.evaluation.evaluation import means
from coterie.evaluation.metrics import per_user
from coterie.evaluation.popularity import popular_accuracy, popular_ranks
from coterie.evaluation.ranking import rank_candidates
from coterie.experiments import config
from coterie.experiments.config import Experiment
from coterie.experiments.preparation import Prepared, prepare
from coterie.models.popular import ItemCounts
from coterie.report.table import markdown_table
from coterie.reproduce.chance import at_chance

REAL = (
    "ml-100k",
    "tripadvisor",
    "foursquare-italy",
    "watson-articles",
    "yelp",
    "ml-1m",
    "pinterest",
)
DATASETS: dict[str, dict[str, Any]] = {
    **{name: {"dataset": name} for name in REAL},
    # Its protocol has no cut-off of 10.
    "pinterest": {"dataset": "pinterest", "cutoffs": (10, 20)},
    "sparse": {
        "dataset": "synthetic",
        "n_users": 20_000,
        "n_items": 15_000,
        "mean_interactions": 10,
    },
}
REFERENCES = ("random", "popular")
FULL_RANKING = "NDCG@10"
PAGE = Path(__file__).parents[1] / "docs" / "defaults.md"
BEGIN = "<!-- defaults -->"
END = "<!-- end of defaults -->"


def chance(ready: Prepared, metric: str) -> float:
    """The metric of a model that scores all items alike: ties count at their expected rank."""
    k = max(ready.experiment.protocol.cutoffs)
    parts = ready.parts
    alike = np.zeros(parts.train.n_items, np.int64)
    if ready.candidates is None:
        ranks = popular_ranks(alike, parts.seen(), parts.test.rows, k)
    else:
        ranks = rank_candidates(ItemCounts(alike.astype(np.float32)), ready.candidates, k)
    return means(per_user(ranks, ready.experiment.protocol.cutoffs))[metric]


def measured(name: str, dataset: str) -> dict[str, Any]:
    """One run with defaults, next to chance and to the most popular items."""
    values = {"algorithm": name, "evaluate_every": 1_000_000, **DATASETS[dataset]}
    began = time.perf_counter()
    try:
        experiment = Experiment.of(values)
        ready = prepare(experiment, None, SILENT)
        run = coterie.run(values.pop("algorithm"), **values)
    except CoterieError as error:
        return {"algorithm": name, "dataset": dataset, "flag": "refused", "why": str(error)}
    metric = experiment.protocol.followed
    value = run.metrics[metric]
    full = run.full[FULL_RANKING]
    popular = popular_accuracy(ready.parts, experiment.protocol, None)[FULL_RANKING]
    level = chance(ready, metric)
    flag = "below popular" if full < popular else ""
    return {
        "algorithm": name,
        "dataset": dataset,
        "protocol": run.result["protocol"],
        "metric": metric,
        "value": round(value, 4),
        "chance": round(level, 4),
        "full": round(full, 5),
        "popular": round(popular, 5),
        "flag": "chance" if at_chance(value, level) else flag,
        "rounds": run.result["rounds"],
        "seconds": round(time.perf_counter() - began, 1),
    }


def without_tuned_settings() -> None:
    """Have all later experiments of this process use plain defaults."""
    config.tuned_settings = lambda *_: {}


def table(runs: list[dict[str, Any]]) -> str:
    """A row per algorithm, best on average first; a column per dataset."""
    found = {(run["algorithm"], run["dataset"]): run for run in runs}
    names = list(dict.fromkeys(run["algorithm"] for run in runs))
    datasets = [name for name in DATASETS if any(run["dataset"] == name for run in runs)]

    def mean_multiple(name: str) -> float:
        multiples = [multiple(found.get((name, dataset), {})) for dataset in datasets]
        known = [value for value in multiples if value is not None]
        return sum(np.log(known)) / max(len(known), 1)

    rows = [
        [f"`{name}`", *(cell(found.get((name, dataset), {})) for dataset in datasets)]
        for name in sorted(names, key=mean_multiple, reverse=True)
    ]
    popular = {run["dataset"]: run["popular"] for run in runs if "popular" in run}
    last = ["`popular`, NDCG@10", *(f"{popular[dataset]:.4f}" for dataset in datasets)]
    return markdown_table(["", *datasets], [*rows, last])


def multiple(run: dict[str, Any]) -> float | None:
    return run["full"] / run["popular"] if "full" in run else None


def cell(run: dict[str, Any]) -> str:
    value = multiple(run)
    if value is None:
        return ""
    return f"{value:.2f}" if value >= 1 else f"*{value:.3f}*"


def write_table(path: Path) -> None:
    runs = [json.loads(line) for line in path.read_text().splitlines()]
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table(runs).strip()}\n{END}{after}")


def in_its_own_process(name: str, dataset: str, seconds: float, plain: bool) -> dict[str, Any]:
    """The run, or that it did not finish: a slow algorithm must not stop the others."""
    command = [sys.executable, __file__, "--one", name, dataset, *["--plain"] * plain]
    about = {"algorithm": name, "dataset": dataset}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return about | {"flag": f"not finished in {seconds:g} s"}
    if done.returncode:
        return about | {"flag": "failed", "why": done.stderr[-300:]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    wanted = [name for name in ALGORITHMS if name not in REFERENCES]
    parser.add_argument("--only", nargs="*", default=wanted)
    parser.add_argument("--datasets", nargs="*", default=list(DATASETS), choices=list(DATASETS))
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--one", nargs=2, metavar=("ALGORITHM", "DATASET"))
    parser.add_argument("--plain", action="store_true", help="without tuned settings")
    parser.add_argument("--table", type=Path, metavar="FILE", help="write a table of earlier runs")
    options = parser.parse_args()
    if options.table:
        write_table(options.table)
        return
    if options.plain:
        without_tuned_settings()
    if options.one:
        print(json.dumps(measured(*options.one)))
        return
    for dataset in options.datasets:
        for name in options.only:
            found = in_its_own_process(name, dataset, options.seconds, options.plain)
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
