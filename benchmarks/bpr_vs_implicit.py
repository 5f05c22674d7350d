"""Nanoseconds per BPR triple of Coterie and of `implicit`, one thread each. Prints JSON.

    python benchmarks/bpr_vs_implicit.py [--dataset ml-1m] [--repeats 7]

Both sample a training pair and a verified negative, then update two item rows and one user row.
Setup time is excluded: `implicit` is timed as the difference between a long and a short fit. The
two alternate in one process, and medians are printed.
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


def coterie_seconds(training: TrainingSet, size: int, epochs: int) -> float:
    """Seconds per triple of Coterie's kernel."""
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


def implicit_seconds(training: TrainingSet, size: int, epochs: int) -> float:
    """Seconds per triple of `implicit`."""
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


def measure(training: TrainingSet, size: int, epochs: int, repeats: int) -> dict[str, float]:
    pairs = []
    for _ in range(repeats):
        ours = coterie_seconds(training, size, epochs)
        theirs = implicit_seconds(training, size, epochs)
        pairs.append((ours, theirs))
    return {
        "embedding_size": size,
        "coterie_ns": round(1e9 * statistics.median(ours for ours, _ in pairs), 1),
        "implicit_ns": round(1e9 * statistics.median(theirs for _, theirs in pairs), 1),
        "ratio": round(statistics.median(ours / theirs for ours, theirs in pairs), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="ml-1m")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    training = split(load(options.dataset), "leave-one-out", 0.2, 0).training()
    rows = []
    with threadpool_limits(1), warnings.catch_warnings(action="ignore"):
        coterie_seconds(training, SIZES[0], 1)
        for size in SIZES:
            rows.append(measure(training, size, options.epochs, options.repeats))
    result = {
        "dataset": options.dataset,
        "triples": len(training),
        "repeats": options.repeats,
        "rows": rows,
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
