"""Whether a short search finds settings as good as a long one does. Prints JSON.

    python benchmarks/tune_quality.py
    python benchmarks/tune_quality.py --datasets ml-100k --many 40

`tuned` is the winner of `coterie tune` with --trials trials and finalists; `best` is the best of
--many random settings of the same space, of which the trials are the first. Both are measured on
the validation part with --seeds seeds that no search used, and the share is tuned / best. Trials
are cached: the same command resumes.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean
from typing import Any

from coterie.cli.screen import ScreenProgress
from coterie.experiments.plan import Method, Plan
from coterie.experiments.plan_runner import run_plan
from coterie.experiments.tuning import RankedTrial, Search, tune

BAR = 0.95
DATASETS: dict[str, dict[str, Any]] = {
    "ml-100k": {},
    "synthetic": {"n_users": 20_000, "n_items": 15_000, "mean_interactions": 10},
}
OTHER_SEEDS = 1_000
"""The first of the seeds that judge the winners."""


def value(search: Search, winner: RankedTrial, seeds: int, cells: Path | None) -> float:
    """The mean on the validation part over seeds that no search used."""
    data = {key: v for key, v in search.held.items() if key in DATASETS["synthetic"]}
    plan = Plan(
        datasets=(search.dataset,),
        methods=(Method("winner", search.algorithm, winner.settings),),
        settings=data | {"validation": True, "headline": ["NDCG"], "evaluate_every": 1_000_000},
        seeds=tuple(range(OTHER_SEEDS, OTHER_SEEDS + seeds)),
        part="validation",
    )
    return mean(outcome.result["value"] for outcome in run_plan(plan, cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--algorithm", default="bpr")
    parser.add_argument("--datasets", nargs="*", default=list(DATASETS), choices=list(DATASETS))
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--many", type=int, default=200)
    parser.add_argument("--finalists", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cells", type=Path)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    for dataset in options.datasets:
        found = {}
        for name, trials in (("tuned", options.trials), ("best", options.many)):
            search = Search(
                options.algorithm,
                dataset,
                trials=trials,
                finalists=options.finalists,
                held=DATASETS[dataset],
            )
            winner = tune(search, options.cells, ScreenProgress(), options.workers).best
            found[name] = value(search, winner, options.seeds, options.cells)
        share = found["tuned"] / found["best"]
        about = {"algorithm": options.algorithm, "dataset": dataset}
        about |= {"trials": options.trials, "many": options.many, "share": round(share, 4)}
        print(json.dumps(about | found | {"within": share >= BAR}), flush=True)


if __name__ == "__main__":
    main()
