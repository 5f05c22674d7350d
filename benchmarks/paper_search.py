"""Search the settings of a paper's methods on validation parts, with equal trials for each method.

    python benchmarks/paper_search.py fedfast --workers 16 --cells cells
    python benchmarks/paper_search.py fedfast --datasets tripadvisor --methods fedfast

Writes the winners and how they were found to src/coterie/reproduce/papers/searches.yaml and prints
them as JSON lines. Finished trials are not run again; several processes share the work.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from coterie.cli.screen import ScreenProgress
from coterie.core.settings import SearchSpace
from coterie.experiments.plan_runner import run_plans
from coterie.experiments.tuning import Search, trials_of, tune
from coterie.types import JsonObject

FILE = Path(__file__).parents[1] / "src" / "coterie" / "reproduce" / "papers" / "searches.yaml"
HEADER = "# Settings of the papers' tables. benchmarks/paper_search.py writes this file.\n"
SEEDS = 2
"""Finalists are trained again with this many other seeds."""

DENSE: SearchSpace = {
    "learning_rate": (0.005, 2.0),
    "reg": (1e-4, 0.3),
    "negatives": [2, 4, 8],
    "start_scale": [0.03, 0.1, 0.3],
    "local_epochs": [1, 2, 5],
    "final_rate": [0.03, 0.1, 1.0],
}
SPARSE = DENSE | {"local_epochs": [1, 2, 5, 10, 20]}
"""Short histories may need many local epochs."""
SPARSEST = SPARSE | {"rounds": [50, 100, 200, 400]}
"""The best round is early where histories have six items: more rounds overfit."""
NEAR: SearchSpace = {
    "learning_rate": (0.03, 1.0),
    "reg": (1e-3, 0.05),
    "negatives": [2, 4, 8],
    "start_scale": [0.03, 0.1, 0.3],
    "local_epochs": [1, 2, 5],
    "final_rate": [0.03, 0.1],
}
"""Where the searches of all federated methods on ML-100K ended: for few trials on large data."""
WHOLE_COHORT_NEAR = NEAR | {
    "learning_rate": (0.3, 3.0),
    "reg": (1e-4, 0.01),
    "final_rate": [0.1, 1.0],
}
"""For FedAvg over the whole cohort, in which few clients know an item."""
WHOLE_COHORT_ROUNDS = 1000
CENTRAL: dict[str, SearchSpace] = {
    "gmf": {
        "learning_rate": (0.002, 0.5),
        "reg": (1e-4, 0.3),
        "negatives": [2, 4, 8],
        "start_scale": [0.01, 0.03, 0.1, 0.3],
    },
    "bpr": {
        "learning_rate": (0.005, 0.5),
        "reg_user": (1e-4, 0.3),
        "reg_positive": (1e-4, 0.3),
        "reg_negative": (1e-4, 0.3),
        "reg_bias": [0.0, 0.01, 0.1],
        "start_scale": [0.01, 0.03, 0.1, 0.3],
    },
    "als": {"alpha": (0.3, 50.0), "reg": (0.1, 100.0), "embedding_size": [8, 16, 32, 64]},
    "ease": {"reg": (30.0, 5000.0)},
}
CONSTANT = {"final_rate": 1.0}
TOUCHED = {"average": "touched"}
LITERAL = {"average": "all"}
FEDERATED: dict[str, tuple[str, JsonObject]] = {
    "fedfast": ("fedfast", {}),
    "fedfast, constant": ("fedfast", CONSTANT),
    "fedavg": ("fedavg", LITERAL),
    "fedavg, constant": ("fedavg", CONSTANT | LITERAL),
    "fedavg, touched": ("fedavg", TOUCHED),
    "fedbso": ("fedbso", {}),
}
"""Method -> algorithm and fixed settings."""


class Setting(NamedTuple):
    """Where a paper's methods are searched: a dataset with the paper's protocol and size."""

    dataset: str
    protocol: str
    trials: int
    methods: tuple[str, ...]
    rounds: int
    held: JsonObject
    """Fixed for every method, such as the embedding size."""
    space: SearchSpace
    finalists: int = 4
    """Best trials of a method that are trained again with other seeds."""


FAST = ("fedfast", "fedfast, constant", "fedavg", "fedavg, constant", "fedavg, touched")
BSO = ("fedbso", "fedfast", "fedavg", "fedavg, touched")
CENTRAL_BSO = ("gmf", "als", "ease")
EMBEDDING_10 = {"embedding_size": 10}
EMBEDDING_16 = {"embedding_size": 16}
PAPERS: dict[str, tuple[Setting, ...]] = {
    "fedfast": (
        Setting(
            "tripadvisor", "loo-50", 100, (*FAST, "gmf", "bpr", "als", "ease"), 400,
            EMBEDDING_10, SPARSEST,
        ),
        Setting(
            "ml-100k", "loo-50", 30, (*FAST, "gmf", "bpr", "als", "ease"), 500,
            EMBEDDING_10, DENSE,
        ),
        Setting(
            "yelp", "loo-50", 30, (*FAST, "gmf", "bpr", "als"), 300,
            EMBEDDING_10 | {"sample_users": 7975}, SPARSE,
        ),
        Setting(
            "ml-1m", "loo-50", 20, (*FAST, "gmf", "bpr", "als", "ease"), 300,
            EMBEDDING_10, DENSE,
        ),
    ),
    "ncf": (
        Setting(
            "ml-100k", "loo-50", 20, FAST[::2], 300,
            {"embedding_size": 8, "model": "neumf", "layers": [32, 16, 8]}, DENSE,
        ),
    ),
    "explicit": (
        Setting(
            "ml-100k", "loo-50", 20, FAST[::2], 300,
            EMBEDDING_10 | {"feedback": "explicit", "headline": ["RMSE"]}, DENSE,
        ),
    ),
    "fedbso": (
        Setting("ml-100k", "loo-100", 30, (*BSO, *CENTRAL_BSO), 500, EMBEDDING_16, DENSE),
        Setting("ml-1m", "loo-100", 12, (*BSO, *CENTRAL_BSO), 300, EMBEDDING_16, NEAR, 2),
        Setting("pinterest", "loo-100", 12, (*BSO, *CENTRAL_BSO), 200, EMBEDDING_16, NEAR, 2),
    ),
}  # fmt: skip


class PaperSearch(NamedTuple):
    """One method's search, and its place in the file."""

    paper: str
    dataset: str
    method: str
    search: Search


def searches_of(paper: str, setting: Setting, methods: Sequence[str]) -> list[PaperSearch]:
    """The searches of a paper on one dataset: as many trials for every method."""
    wanted = [method for method in setting.methods if not methods or method in methods]
    return [
        PaperSearch(paper, setting.dataset, method, search_of(setting, method)) for method in wanted
    ]


def search_of(setting: Setting, method: str) -> Search:
    """The search of one method."""
    if method in FEDERATED:
        algorithm, fixed = FEDERATED[method]
        space = setting.space
        rounds = setting.rounds
        if space == NEAR and fixed == LITERAL:
            space = WHOLE_COHORT_NEAR
            rounds = WHOLE_COHORT_ROUNDS
        if fixed.get("final_rate") == 1:
            # The best round is found on the way.
            space = {key: values for key, values in space.items() if key != "rounds"}
        limits = {"rounds": rounds, "evaluate_every": max(rounds // 20, 1)}
        limits = {key: value for key, value in limits.items() if key not in space}
        held = setting.held | limits | fixed
    else:
        algorithm = method
        # ALS takes its own best size; EASE has none.
        sized = {} if method in ("als", "ease") else setting.held
        held = {key: value for key, value in setting.held.items() if key == "sample_users"} | sized
        space = CENTRAL[method]
    return Search(
        algorithm,
        setting.dataset,
        setting.protocol,
        setting.trials,
        setting.finalists,
        SEEDS,
        held=held,
        space=space,
    )


def record(each: PaperSearch, cells: Path | None, workers: int) -> JsonObject:
    """The winner of a search, for the file; its trials are finished, its finalists may not be."""
    found = tune(each.search, cells, ScreenProgress(), workers)
    search = each.search
    return {
        "settings": found.best.settings,
        "validation": {found.metric: round(found.best.value, 4)},
        "trials": search.trials,
        "finalists": search.finalists,
        "space": {key: list(values) for key, values in search.searched.items()},
    }


def write(each: PaperSearch, found: JsonObject) -> None:
    """Put a winner into the file."""
    content = yaml.safe_load(FILE.read_text()) if FILE.exists() else {}
    content.setdefault(each.paper, {}).setdefault(each.dataset, {})[each.method] = found
    text = yaml.safe_dump(content, sort_keys=True, default_flow_style=None, width=98)
    FILE.write_text(HEADER + text)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("papers", nargs="+", choices=PAPERS)
    parser.add_argument("--datasets", nargs="*", default=[])
    parser.add_argument("--methods", nargs="*", default=[])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cells", type=Path, help="folder of finished trials")
    options = parser.parse_args()
    searches = [
        each
        for paper in options.papers
        for setting in PAPERS[paper]
        if not options.datasets or setting.dataset in options.datasets
        for each in searches_of(paper, setting, options.methods)
    ]
    trials = [trials_of(each.search) for each in searches]
    run_plans(trials, options.cells, ScreenProgress(), options.workers)
    for each in searches:
        found = record(each, options.cells, options.workers)
        write(each, found)
        print(
            json.dumps(
                {"paper": each.paper, "dataset": each.dataset, "method": each.method} | found
            )
        )


if __name__ == "__main__":
    main()
