"""Seconds to train SLIM, and to solve an item with scikit-learn's ElasticNet. Prints JSON.

    python benchmarks/slim_speed.py [--datasets ml-100k ml-1m] [--sample 20]

Both have one thread, the same objective with the default regularisation, and all items as
candidates (`neighbours=0`). ElasticNet solves a sample of items, evenly spaced by popularity, with
the matrix without the item's own column in its fastest layout; making that matrix is not timed. It
stops at its default tolerance. `ratio` compares an item of the sample with an average item of
Coterie, whose time includes the counting of co-occurrences. Times are CPU time, which does not
depend on other load on the machine. `default_seconds` is with the default `neighbours`.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings

import numpy as np
from scipy import sparse
from sklearn.linear_model import ElasticNet
from threadpoolctl import threadpool_limits

from coterie import kernels
from coterie.baselines import slim
from coterie.baselines.slim import SLIM
from coterie.core.progress import SILENT
from coterie.data.datasets import load
from coterie.data.splits import split
from coterie.data.training_set import TrainingSet
from coterie.federated.trainer import Context
from coterie.models.neighbours import ItemNeighbours


def coterie_seconds(training: TrainingSet, settings: SLIM) -> tuple[float, ItemNeighbours]:
    """Seconds to train all items, and the model."""
    start = time.process_time()
    model = slim.train(training, settings, Context(0, SILENT))
    return time.process_time() - start, model


def sampled_items(training: TrainingSet, n: int) -> list[int]:
    """Items evenly spaced by popularity."""
    by_popularity = np.argsort(training.by_item.counts, kind="stable")
    places = (np.arange(n) + 0.5) * training.n_items / n
    return [int(item) for item in by_popularity[places.astype(int)]]


def elastic_net(
    X: sparse.csc_matrix, item: int, settings: SLIM, dense: bool
) -> tuple[float, np.ndarray]:
    """Seconds that scikit-learn takes for an item, and the weights (items,)."""
    n_users = X.shape[0]
    total = settings.reg_l1 + settings.reg_l2
    net = ElasticNet(
        alpha=total / n_users,
        l1_ratio=settings.reg_l1 / total,
        positive=True,
        fit_intercept=False,
        copy_X=False,
    )
    target = X[:, [item]].toarray()[:, 0]
    others = X.copy()
    others.data[others.indptr[item] : others.indptr[item + 1]] = 0
    others = np.asfortranarray(others.toarray()) if dense else others
    start = time.process_time()
    net.fit(others, target)
    return time.process_time() - start, net.coef_


def measure(dataset: str, sample: int) -> dict[str, object]:
    training = split(load(dataset), "leave-one-out", 0.2, 0).training()
    settings = SLIM(neighbours=0)
    ours, model = coterie_seconds(training, settings)
    X = sparse.csr_matrix(
        (np.ones(len(training)), training.positives.items, training.positives.offsets),
        shape=(training.n_users, training.n_items),
    ).tocsc()
    weights = np.array([model.similar_items(item) for item in range(training.n_items)])
    theirs: dict[bool, list[float]] = {True: [], False: []}
    differences = []
    for item in sampled_items(training, sample):
        for dense, seconds in theirs.items():
            taken, coefficients = elastic_net(X, item, settings, dense)
            seconds.append(taken)
            differences.append(float(np.abs(coefficients - weights[:, item]).max()))
    faster = min(theirs.values(), key=lambda seconds: sum(seconds))
    return {
        "dataset": dataset,
        "items": training.n_items,
        "interactions": len(training),
        "reg_l1": settings.reg_l1,
        "reg_l2": settings.reg_l2,
        "default_seconds": round(coterie_seconds(training, SLIM())[0], 2),
        "seconds": round(ours, 2),
        "ms_per_item": round(1e3 * ours / training.n_items, 3),
        "sampled_items": sample,
        "sklearn_layout": "dense" if faster is theirs[True] else "sparse",
        "sklearn_ms_per_item": round(1e3 * float(np.mean(faster)), 2),
        "ratio": round(float(np.mean(faster)) * training.n_items / ours, 1),
        "largest_difference": max(differences),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--datasets", nargs="+", default=["ml-100k", "ml-1m"])
    parser.add_argument("--sample", type=int, default=20)
    options = parser.parse_args()
    os.environ["COTERIE_THREADS"] = "1"
    kernels.load("slim")
    with threadpool_limits(1), warnings.catch_warnings(action="ignore"):
        rows = [measure(dataset, options.sample) for dataset in options.datasets]
    print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
