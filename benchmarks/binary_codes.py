"""LightFR: accuracy, bytes and latency of codes of bits. Prints one line of JSON per measurement.

    python benchmarks/binary_codes.py accuracy
    python benchmarks/binary_codes.py latency

`accuracy` trains by length of codes and measures the test part. Products of codes are whole
numbers, so that candidates often tie; `first` lets the held-out item win its ties, as the
evaluation of the authors' code does, and `expected` counts ties at their expected rank, as all our
figures do.
`latency` scores all items for one user, by codes and by rows of as many single-precision numbers:
the median of many calls, in one process.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from coterie.core.progress import SILENT
from coterie.experiments.choice_costs import model_bytes
from coterie.experiments.config import Experiment
from coterie.experiments.preparation import prepare
from coterie.experiments.training import Evaluator, train
from coterie.models.binary_codes import BinaryCodes
from coterie.models.factors import Factors
from coterie.models.recommender import Recommender

CALLS = 200
SIZE = 64
ITEMS = (1_682, 10_000, 100_000, 1_000_000)


def measured(dataset: str, bits: int, seed: int) -> dict[str, Any]:
    experiment = Experiment.of(
        {
            "algorithm": "lightfr",
            "dataset": dataset,
            "protocol": "loo-99",
            "seed": seed,
            "bits": bits,
            "evaluate_every": 1_000_000,
            "curve_users": 0,
        }
    )
    ready = prepare(experiment, None, SILENT)
    fitted = train(experiment, ready.training, ready.evaluator, SILENT)
    last = fitted.history.curve[-1]
    return {
        "dataset": dataset,
        "bits": bits,
        "seed": seed,
        "rounds": experiment.settings.n_steps,
        "HR@10": round(last["HR@10"], 4),
        "NDCG@10": round(last["NDCG@10"], 4),
        "HR@10, ties": {name: round(hits(fitted.model, ready.evaluator, name), 4) for name in TIES},
        "bytes of the model": model_bytes(fitted.model),
        "bytes up a message": round(last["bytes_up"] / last["updates"]),
        "bytes down a message": round(last["bytes_down"] / last["updates"]),
    }


TIES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "first": lambda above, ties: (above < 10).astype(float),
    "expected": lambda above, ties: np.clip((10 - above) / (ties + 1), 0, 1),
}
"""(candidates above the held-out item, candidates that tie with it) -> the chance of a hit."""


def hits(model: Recommender, evaluator: Evaluator, rule: str) -> float:
    assert evaluator.candidates is not None
    users = evaluator.candidates.users
    scores = model.score(users, evaluator.candidates.items)
    others = scores[:, 1:]
    above = (others > scores[:, :1]).sum(axis=1)
    ties = (others == scores[:, :1]).sum(axis=1)
    return float(TIES[rule](above, ties).mean())


def latency(n_items: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    bits = np.array([SIZE])
    one = np.ones(1, np.float32)
    codes = BinaryCodes(random_bytes(rng, 1), random_bytes(rng, n_items), bits, one, 0 * one)
    rows = Factors(
        rng.normal(size=(1, SIZE)).astype(np.float32),
        rng.normal(size=(n_items, SIZE)).astype(np.float32),
        np.zeros(n_items, np.float32),
    )
    times = {name: seconds(model) for name, model in (("codes", codes), ("numbers", rows))}
    return {
        "items": n_items,
        "size": SIZE,
        "us, codes": round(times["codes"] * 1e6),
        "us, numbers": round(times["numbers"] * 1e6),
        "times": round(times["numbers"] / times["codes"], 1),
        "bytes, codes": codes.item_codes.nbytes,
        "bytes, numbers": rows.item_rows.nbytes,
    }


def random_bytes(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.integers(0, 256, (n, SIZE // 8)).astype(np.uint8)


def seconds(model: Recommender) -> float:
    user = np.zeros(1, np.int32)
    model.score(user)
    found = []
    for _ in range(CALLS):
        began = time.perf_counter()
        model.score(user)
        found.append(time.perf_counter() - began)
    return median(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["accuracy", "latency"])
    parser.add_argument("--dataset", default="ml-100k")
    parser.add_argument("--bits", nargs="*", type=int, default=[16, 32, 64, 128])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    if options.part == "latency":
        for n_items in ITEMS:
            print(json.dumps(latency(n_items)), flush=True)
        return
    for bits in options.bits:
        for seed in range(options.seeds):
            print(json.dumps(measured(options.dataset, bits, seed)), flush=True)


if __name__ == "__main__":
    main()
