"""Accuracy beside epsilon, for the algorithms that have a privacy budget. Prints JSON lines.

    python benchmarks/private_curves.py --dataset ml-1m --algorithms fedease popular
    python benchmarks/private_curves.py --dataset synthetic --users 10000 100000 --epsilons 1

One line for each run: dataset, algorithm, epsilon (null without noise), seed, NDCG@10 and HR@10 of
the dataset's protocol and by full ranking. delta is 1e-5 throughout. Settings are the defaults,
which were fixed on MovieLens-100K before any other dataset was looked at.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import coterie

EPSILONS = [0.5, 1.0, 2.0, 5.0, 10.0, 20.0]
FPL: dict[str, Any] = {"epochs": 8, "rounds_an_epoch": 4}
TOWERS: dict[str, Any] = {"rounds": 100, "sampling": "poisson"}
SETTINGS: dict[str, dict[str, Any]] = {
    "pfpl": FPL,
    "pfpl+": FPL | {"triples": 10},
    "fcf": {"rounds": 20},
    "fedmf": {"rounds": 20},
    "fedease": {"max_memory": 32.0},
    "fl-dssm": TOWERS,
    "fl-clsm": TOWERS,
}
"""What an algorithm needs under a budget: fewer rounds than without, and public ones."""
ITEMS = 1000
"""Items of synthetic data."""
LARGEST_ROUND = 100_000
"""Users of a round of fedease. Each has noise of its own; a client sends in one of them."""
OF_A_SAMPLE = ("fedals", "fcf", "fedmf")
"""What selects so many users in a round, where there are more: sums would overflow."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", nargs="*", default=["ml-100k"])
    parser.add_argument("--algorithms", nargs="*", default=["popular", "fedease"])
    parser.add_argument("--epsilons", nargs="*", type=float, default=EPSILONS)
    parser.add_argument("--without", action="store_true", help="also without noise")
    parser.add_argument("--users", nargs="*", type=int, default=[0], help="of synthetic data")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--protocol")
    parser.add_argument("--gpu", action="store_true", help="decompose matrices of fedease there")
    given = parser.parse_args()
    budgets: list[float | None] = [*given.epsilons, *([None] if given.without else [])]
    for dataset in given.dataset:
        for users in given.users:
            for seed in range(given.seeds):
                for name in given.algorithms:
                    for epsilon in budgets:
                        line = measured(
                            dataset, users, name, epsilon, seed, given.protocol, given.gpu
                        )
                        print(json.dumps(line), flush=True)


def measured(
    dataset: str,
    users: int,
    name: str,
    epsilon: float | None,
    seed: int,
    protocol: str | None,
    gpu: bool,
) -> dict[str, Any]:
    began = time.perf_counter()
    settings = SETTINGS.get(name, {}) if epsilon is not None else {}
    settings = settings | ({"n_users": users, "n_items": ITEMS} if users else {})
    if name == "fedease" and gpu:
        settings = settings | {"device": "cuda"}
    if name == "fedease" and users > LARGEST_ROUND:
        rounds = -(-users // LARGEST_ROUND)
        settings = settings | {"rounds": rounds, "participation": 1 / rounds}
    if name in OF_A_SAMPLE and users > LARGEST_ROUND:
        settings = settings | {"participation": LARGEST_ROUND / users}
    if name in ("pfpl", "pfpl+") and users > LARGEST_ROUND:
        settings = settings | {"users_per_round": LARGEST_ROUND}
    budget = {} if epsilon is None else {"epsilon": epsilon, "delta": 1e-5}
    run = coterie.run(
        name,
        dataset,
        seed=seed,
        evaluate_every=1_000_000,
        **({"protocol": protocol} if protocol else {}),
        **settings,
        **budget,
    )
    return {
        "dataset": dataset,
        "users": run.result["users"],
        "algorithm": name,
        "epsilon": epsilon,
        "seed": seed,
        "NDCG@10": round(run.metrics["NDCG@10"], 4),
        "HR@10": round(run.metrics["HR@10"], 4),
        "NDCG@10, all items": round(run.full["NDCG@10"], 4),
        "HR@10, all items": round(run.full["HR@10"], 4),
        "seconds": round(time.perf_counter() - began, 1),
    }


if __name__ == "__main__":
    main()
