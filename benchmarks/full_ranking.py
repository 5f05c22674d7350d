"""Seconds and memory to rank all items for all users, at the size of ML-1M. Prints JSON.

python benchmarks/full_ranking.py [--repeats 9]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import tracemalloc

import numpy as np

from coterie.evaluation.metrics import overall, per_user
from coterie.evaluation.ranking import rank_all
from coterie.models.factors import Factors
from coterie.types import Rows

USERS = 6_040
ITEMS = 3_706
SIZE = 16
SEEN = 165


def pairs(rng: np.random.Generator, per_user: int) -> Rows:
    """Random interactions, about `per_user` of every user."""
    users = np.repeat(np.arange(USERS), per_user)
    flat = np.unique(users * ITEMS + rng.integers(0, ITEMS, USERS * per_user))
    return Rows.build((flat // ITEMS).astype(np.int32), (flat % ITEMS).astype(np.int32), USERS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    model = Factors.start(USERS, ITEMS, SIZE, 0, 1.0)
    seen = pairs(rng, SEEN)
    popularity = np.bincount(seen.items, minlength=ITEMS)
    result: dict[str, object] = {"users": USERS, "items": ITEMS, "embedding_size": SIZE}
    for name, relevant in (
        ("one relevant item", pairs(rng, 1)),
        ("33 relevant items", pairs(rng, 33)),
    ):

        def evaluate(relevant: Rows = relevant) -> None:
            ranks = rank_all(model, seen, relevant, ITEMS, 10)
            per_user(ranks, (10,))
            overall(ranks, (10,), popularity, USERS)

        times = []
        for _ in range(options.repeats):
            start = time.perf_counter()
            evaluate()
            times.append(time.perf_counter() - start)
        tracemalloc.start()
        evaluate()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        result[name] = {
            "seconds": round(statistics.median(times), 3),
            "peak_mib": round(peak / 2**20, 1),
        }
    result["users_times_items_mib"] = round(USERS * ITEMS * 4 / 2**20, 1)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
