"""Search for settings and make them the defaults for a dataset. Prints JSON.

    python benchmarks/tune.py ml-100k gmf --trials 30 --finalists 5 --set embedding_size=10 --write

`--write` writes the winner to src/coterie/experiments/tuned.yaml; benchmarks/tune_all.sh has the
command behind every entry of that file. src/coterie/experiments/tuning.py describes the search. The
same command resumes an interrupted search.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import yaml

from coterie.cli.screen import ScreenProgress
from coterie.experiments.config import parse_assignments
from coterie.experiments.tuning import Search, tunable, tune

TUNED = Path(__file__).parents[1] / "src" / "coterie" / "experiments" / "tuned.yaml"
HEADER = (
    "# Default settings for these datasets, found on their validation parts by "
    "benchmarks/tune_all.sh.\n"
)


def write(dataset: str, name: str, settings: dict[str, Any]) -> None:
    tuned = yaml.safe_load(TUNED.read_text()) or {}
    tuned.setdefault(dataset, {})[name] = settings
    TUNED.write_text(HEADER + yaml.safe_dump(tuned, sort_keys=True))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset")
    parser.add_argument("algorithm", choices=tunable())
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument(
        "--finalists", type=int, default=0, help="retrain this many of the best with other seeds"
    )
    parser.add_argument("--seeds", type=int, default=4, help="number of other seeds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="fix a setting; for epochs and rounds, the maximum of a trial",
    )
    parser.add_argument("--cells", type=Path, help="folder of finished trials")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()

    search = Search(
        options.algorithm,
        options.dataset,
        trials=options.trials,
        finalists=options.finalists,
        seeds=options.seeds,
        seed=options.seed,
        # Runs with the settings of tuned.yaml leave popularity out of the scores.
        held={"popularity_prior": 0.0} | parse_assignments(options.set),
    )
    best = tune(search, options.cells, ScreenProgress()).best
    about = {"dataset": options.dataset, "algorithm": options.algorithm, "trials": options.trials}
    print(json.dumps(about | {"ndcg": best.value, "settings": best.settings}))
    if options.write:
        write(options.dataset, options.algorithm, best.settings)


if __name__ == "__main__":
    main()
