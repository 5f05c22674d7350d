"""How fast ALS and a round of FedALS are. Prints one line of JSON per measurement.

    python benchmarks/als_speed.py               # against `implicit`, and a round, MovieLens-1M
    python benchmarks/als_speed.py --million     # a million synthetic users, 1 % a round

A sweep of ALS and an iteration of `implicit` (use_cg=False) alternate in one process with the same
number of threads; the ratio is that of medians. BLAS has one thread in both, as `implicit` advises.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

from coterie.algorithms import fedals
from coterie.algorithms.local import least_squares
from coterie.baselines.als import ALS
from coterie.core import parallel
from coterie.core.progress import SILENT
from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.experiments.config import Experiment
from coterie.experiments.preparation import prepare
from coterie.federated import trainer
from coterie.federated.trainer import Context
from coterie.types import Rows


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def movielens() -> TrainingSet:
    return prepare(Experiment.of({"algorithm": "als", "dataset": "ml-1m"}), None, SILENT).training


def against_implicit(training: TrainingSet, size: int, repeats: int) -> dict[str, object]:
    from implicit.als import AlternatingLeastSquares
    from scipy import sparse

    rows = training.positives
    ones = np.ones(len(rows.items), np.float32)
    table = sparse.csr_matrix((ones, rows.items, rows.offsets))
    settings = ALS(embedding_size=size, alpha=5.0, reg=10.0, reg_exponent=0.0)
    Y = fedals.rows(training.n_items, size, 0, "items", 0.1)
    theirs = AlternatingLeastSquares(
        factors=size,
        regularization=10.0,
        alpha=6.0,
        use_cg=False,
        iterations=1,
        num_threads=parallel.workers(),
    )
    ours: list[float] = []
    other: list[float] = []

    def sweep() -> None:
        X = least_squares.solve(training.positives, Y, settings)
        least_squares.solve(training.by_item, X, settings)

    sweep()
    with threadpool_limits(1, "blas"):
        for _ in range(repeats):
            ours.append(seconds(sweep))
            theirs.fit(table, show_progress=False, callback=lambda n, took, *_: other.append(took))
    return {
        "what": "sweep of als against implicit",
        "factors": size,
        "threads": parallel.workers(),
        "als seconds": round(statistics.median(ours), 3),
        "implicit seconds": round(statistics.median(other), 3),
        "ratio": round(statistics.median(ours) / statistics.median(other), 3),
    }


def rounds(
    training: TrainingSet, settings: fedals.FedALS, repeats: int, what: str
) -> dict[str, object]:
    """Seconds of a round of FedALS, after the first."""
    federation = fedals.ALGORITHM.train
    world = trainer.world_of(training, settings, 0)
    engine = LocalEngine.over(world, training, 1)
    work = trainer.federated_trainer(federation, world, engine, Context(0, SILENT))
    state, _ = work.start()
    took: list[float] = []
    for n in range(1, repeats + 2):
        began = time.perf_counter()
        state, _ = work.step(state, n)
        took.append(time.perf_counter() - began)
    return {
        "what": what,
        "factors": settings.embedding_size,
        "threads": parallel.workers(),
        "median seconds": round(statistics.median(took[1:]), 3),
        "GiB at most": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
    }


def million(n_users: int = 1_000_000, n_items: int = 100_000, mean: int = 20) -> TrainingSet:
    """Random histories: their content does not matter for speed."""
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(n_users, dtype=np.int32), mean)
    # Popular items first: a power law, with repetitions removed.
    items = (n_items * rng.random(len(users)) ** 3).astype(np.int32)
    pairs = np.unique(users.astype(np.int64) << 32 | items)
    histories = Rows.build(
        (pairs >> 32).astype(np.int32), (pairs & 0xFFFFFFFF).astype(np.int32), n_users
    )
    return TrainingSet(n_users, n_items, histories, histories, None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--factors", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    if options.million:
        settings = fedals.FedALS(embedding_size=32, participation=0.01, rounds=100)
        print(json.dumps(rounds(million(), settings, options.repeats, "a million users, 1 %")))
        return
    training = movielens()
    settings = fedals.FedALS(embedding_size=options.factors, rounds=100)
    print(json.dumps(rounds(training, settings, options.repeats, "a round of everybody, ml-1m")))
    print(json.dumps(against_implicit(training, options.factors, options.repeats)))


if __name__ == "__main__":
    main()
