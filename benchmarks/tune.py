"""Settings found by `coterie tune` become the defaults for a dataset. Prints JSON.

    python benchmarks/tune.py ml-100k gmf --trials 30 --finalists 5 --set embedding_size=10 --write

`--write` puts the winner into src/coterie/experiments/tuned.yaml. benchmarks/tune_all.sh holds the commands behind every entry of that
file. How the search works is said in src/coterie/tuning.py; a search that was interrupted goes on.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import yaml

from coterie.cli.screen import ScreenProgress
from coterie.experiments.config import parse_assignments
from coterie.experiments.tuning import SPACES, Search, tune

TUNED = Path(__file__).parents[1] / "src" / "coterie" / "experiments" / "tuned.yaml"
HEADER = "# Found on validation parts, as benchmarks/tune_all.sh tells; the defaults for these datasets.\n"


def write(dataset: str, name: str, settings: dict[str, Any]) -> None:
    tuned = yaml.safe_load(TUNED.read_text()) or {}
    tuned.setdefault(dataset, {})[name] = settings
    TUNED.write_text(HEADER + yaml.safe_dump(tuned, sort_keys=True))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset")
    parser.add_argument("algorithm", choices=SPACES)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument(
        "--finalists", type=int, default=0, help="train so many of the best again with other seeds"
    )
    parser.add_argument("--seeds", type=int, default=4, help="how many other seeds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="hold a setting still; of epochs and rounds it is the most a trial may train",
    )
    parser.add_argument("--cells", type=Path, help="where finished trials are kept")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()

    held = parse_assignments(options.set)
    search = Search(
        options.algorithm,
        options.dataset,
        trials=options.trials,
        finalists=options.finalists,
        seeds=options.seeds,
        seed=options.seed,
        held=held,
    )
    best = tune(search, options.cells, ScreenProgress()).best
    found = {"dataset": options.dataset, "algorithm": options.algorithm, "trials": options.trials}
    print(json.dumps(found | {"ndcg": best.value, "settings": best.settings}))
    if options.write:
        write(options.dataset, options.algorithm, best.settings)


if __name__ == "__main__":
    main()
