"""Every algorithm on every dataset with its default (tuned) settings. Prints JSON.

    python benchmarks/baselines.py [--seeds 3] [--datasets ml-100k,ml-1m] [--ncf PATH]

`--ncf` adds ML-1M, evaluated on NCF's published test pairs and 99 negatives (ncf.test.negative.gz).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from typing import Any

import coterie
from coterie.algorithms.registry import ALGORITHMS
from coterie.errors import ConfigError


def row(algorithm: str, data: coterie.Interactions, seeds: int, **settings: Any) -> dict[str, Any]:
    runs = [coterie.run(algorithm, data, seed=seed, **settings) for seed in range(seeds)]
    names = runs[0].result["headline"]
    summary: dict[str, Any] = {
        "algorithm": algorithm,
        "dataset": data.name,
        "protocol": runs[0].result["protocol"],
        "seeds": seeds,
    }
    for kind in ("metrics", "full"):
        values = {
            name: [run.result[kind][name] for run in runs]
            for name in names
            if name in runs[0].result[kind]
        }
        summary[kind] = {name: round(statistics.mean(each), 5) for name, each in values.items()}
        summary[f"{kind}_range"] = {
            name: [round(min(each), 5), round(max(each), 5)] for name, each in values.items()
        }
    summary["seconds"] = round(statistics.median(run.result["seconds"] for run in runs), 2)
    print(json.dumps(summary), file=sys.stderr)
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--datasets", default="ml-100k,ml-1m,foursquare-italy")
    parser.add_argument("--ncf", help="NCF's test negatives of ML-1M")
    options = parser.parse_args()
    rows = []
    for name in filter(None, options.datasets.split(",")):
        data = coterie.load(name)
        for algorithm in ALGORITHMS:
            try:
                rows.append(row(algorithm, data, options.seeds))
            except ConfigError as error:
                # EASE refuses a catalogue whose items x items matrix does not fit.
                rows.append({"algorithm": algorithm, "dataset": name, "skipped": str(error)})
    if options.ncf:
        data = coterie.load("ml-1m")
        published = {"protocol": "loo-99", "candidates_file": options.ncf}
        rows += [row(algorithm, data, options.seeds, **published) for algorithm in ALGORITHMS]
    print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
