"""Seconds per BPR triple, Coterie against `implicit`, one thread each, in one process on one dataset. Prints JSON.

    python benchmarks/bpr_vs_implicit.py [--dataset ml-1m] [--repeats 7]

Both sample a training pair and a verified negative and update two items and one user. Setting up is left out: `implicit`
is timed as the difference between a longer and a shorter fit. The two are measured in turns and the median is taken.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings

import numpy as np
from threadpoolctl import threadpool_limits

from coterie import kernels
from coterie.core import streams
from coterie.data.datasets import load
from coterie.data.splits import split
from coterie.data.training_set import TrainingSet
from coterie.models.factors import Factors

SIZES = (10, 16, 64, 100)


def ours(training: TrainingSet, size: int, epochs: int) -> float:
    kernel = kernels.load("bpr")
    model = Factors.start(training.n_users, training.n_items, size, 0, 0.1)
    users = training.users
    seen = training.positives
    start = time.perf_counter()
    for epoch in range(epochs):
        kernel.train_triples(
            users,
            seen.items,
            seen.offsets,
            seen.items,
            model.user_rows,
            model.item_rows,
            model.item_bias,
            0.05,
            0.01,
            0.01,
            0.01,
            0.01,
            np.uint64(streams.key(0, "triples", epoch)),
            len(training),
        )
    return (time.perf_counter() - start) / (epochs * len(training))


def theirs(training: TrainingSet, size: int, epochs: int) -> float:
    from implicit.cpu.bpr import BayesianPersonalizedRanking
    from scipy import sparse

    matrix = sparse.csr_matrix(
        (np.ones(len(training), np.float32), training.positives.items, training.positives.offsets),
        shape=(training.n_users, training.n_items),
    )

    def seconds(iterations: int) -> float:
        model = BayesianPersonalizedRanking(
            factors=size, iterations=iterations, num_threads=1, random_state=0
        )
        start = time.perf_counter()
        model.fit(matrix, show_progress=False)
        return time.perf_counter() - start

    return (seconds(epochs + 1) - seconds(1)) / (epochs * len(training))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="ml-1m")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    training = split(load(options.dataset), "leave-one-out", 0.2, 0).training()
    rows = []
    with threadpool_limits(1), warnings.catch_warnings(action="ignore"):
        ours(training, SIZES[0], 1)
        for size in SIZES:
            pairs = [
                (ours(training, size, options.epochs), theirs(training, size, options.epochs))
                for _ in range(options.repeats)
            ]
            a = statistics.median(p[0] for p in pairs)
            b = statistics.median(p[1] for p in pairs)
            ratio = statistics.median(p[0] / p[1] for p in pairs)
            rows.append(
                {
                    "embedding_size": size,
                    "coterie_ns": round(a * 1e9, 1),
                    "implicit_ns": round(b * 1e9, 1),
                    "ratio": round(ratio, 3),
                }
            )
    print(
        json.dumps(
            {
                "dataset": options.dataset,
                "triples": len(training),
                "repeats": options.repeats,
                "rows": rows,
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
