"""What FedALS reaches where only some clients reply. Prints one line of JSON per run.

    python benchmarks/participation.py
    python benchmarks/participation.py --seeds 1 --only everybody tenth

Everybody in ten rounds, a tenth of the clients in each of 60, a hundredth in each of 600, 30 % of
the clients dropping out of each of ten rounds, and clients that are away by patterns of
availability. Settings are the defaults of the dataset; accuracy is that of the test part.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import coterie

WAYS: dict[str, dict[str, Any]] = {
    "everybody": {"rounds": 10},
    "tenth": {"rounds": 60, "participation": 0.1},
    "hundredth": {"rounds": 600, "participation": 0.01},
    "dropout": {"rounds": 10, "client_dropout": 0.3},
    "diurnal": {"rounds": 60, "participation": 0.1, "availability": "diurnal"},
    "stretches": {"rounds": 60, "participation": 0.1, "availability": "stretches"},
}


def measured(dataset: str, way: str, seed: int) -> dict[str, Any]:
    began = time.perf_counter()
    run = coterie.run("fedals", dataset, seed=seed, evaluate_every=1_000_000, **WAYS[way])
    return {
        "dataset": dataset,
        "clients": way,
        "seed": seed,
        **{name: round(value, 4) for name, value in run.metrics.items() if name.endswith("@10")},
        "NDCG@10, all items": round(run.full["NDCG@10"], 4),
        "kB up a client": round(run.result["bytes_up"] / run.result["users"] / 1000, 1),
        "seconds": round(time.perf_counter() - began, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="ml-1m")
    parser.add_argument("--only", nargs="*", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    for way in options.only:
        for seed in range(options.seeds):
            print(json.dumps(measured(options.dataset, way, seed)), flush=True)


if __name__ == "__main__":
    main()
