"""Seconds of the curve next to those of training. Prints JSON.

    python benchmarks/curve_cost.py
    python benchmarks/curve_cost.py --only bpr --protocols full --all-users

Runs have the settings of `coterie run NAME --dataset ml-1m`. The share is the seconds of the curve
over those of training, the median of the repeats. `--all-users` measures the curve on all users.
"""

from __future__ import annotations

import argparse
import json
import statistics
from typing import Any

import coterie

BAR = 0.15
"""The largest share that is acceptable."""


def measured(name: str, dataset: str, protocol: str, repeats: int, **settings: Any) -> dict:
    """The median share of one algorithm."""
    shares = []
    for seed in range(repeats):
        run = coterie.run(name, dataset, protocol=protocol, seed=seed, **settings)
        result = run.result
        shares.append(result["curve_seconds"] / result["seconds"])
    median = statistics.median(shares)
    return {
        "algorithm": name,
        "dataset": dataset,
        "protocol": protocol,
        "curve_users": result["convergence"]["users"],
        "tested_users": result["tested_users"],
        "measurements": len(run.curve),
        "training_seconds": round(result["seconds"], 2),
        "curve_seconds": round(result["curve_seconds"], 2),
        "evaluation_seconds": round(result["evaluation_seconds"], 2),
        "share": round(median, 4),
        "within": median <= BAR,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=["bpr", "fedfast", "als"])
    parser.add_argument("--dataset", default="ml-1m")
    parser.add_argument("--protocols", nargs="*", default=["loo-50", "full"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--all-users", action="store_true")
    parser.add_argument(
        "--steps", type=int, default=0, help="rounds or epochs, to measure less than a whole run"
    )
    options = parser.parse_args()
    settings: dict[str, Any] = {"curve_users": 0} if options.all_users else {}
    for protocol in options.protocols:
        for name in options.only:
            steps = {}
            if options.steps:
                steps = {"rounds" if name == "fedfast" else "epochs": options.steps}
            found = measured(name, options.dataset, protocol, options.repeats, **settings, **steps)
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
