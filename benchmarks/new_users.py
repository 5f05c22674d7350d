"""Accuracy of new users, who were not in training, against trained users.

    python benchmarks/new_users.py new-users --datasets ml-100k --seeds 3
    python benchmarks/new_users.py als fcf bpr pfpl+ --datasets ml-1m --seeds 1

`new-users` excludes a tenth of the users from training of FedFast and compares their HR@10 with
that of the others. An algorithm's name trains it twice, with and without 1,000 users (at most a
sixth), and compares the NDCG@10 of these same users: rows of the first training against rows that
the second one fits to their histories. All items are ranked; a fifth of every history is tested.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from tables import print_parts, spread

from coterie.algorithms.registry import ALGORITHMS, algorithm
from coterie.core.progress import SILENT
from coterie.data.datasets import load
from coterie.evaluation.candidates import Candidates
from coterie.evaluation.metrics import per_user
from coterie.evaluation.ranking import rank_all, rank_candidates
from coterie.experiments.config import Experiment
from coterie.experiments.preparation import Prepared, prepare
from coterie.experiments.training import Evaluator, train
from coterie.models.new_user import NewUser
from coterie.models.recommender import Recommender, pick
from coterie.types import Floats, Ints, Rows

LEFT_OUT = 1000
LARGEST_SHARE = 6
"""At most one user in so many is left out."""


def new_users(dataset: str, seeds: int) -> dict[str, Any]:
    rows = [with_seed(dataset, seed) for seed in range(seeds)]
    spreads = {key: spread([row[key] for row in rows]) for key in rows[0]}
    return {"part": "new-users", "dataset": dataset, "seeds": seeds} | spreads


def with_seed(dataset: str, seed: int) -> dict[str, float]:
    chosen = Experiment.of({"algorithm": "fedfast", "dataset": dataset, "seed": seed})
    ready = prepare(chosen, load(dataset), SILENT)
    assert ready.candidates is not None
    new = np.flatnonzero(np.arange(ready.training.n_users) % 10 == seed % 10).astype(np.int32)
    model = trained_without(ready, new)
    by_user = ready.candidates.by_user()
    before = hits(model, by_user)
    scores = model.score(np.arange(ready.training.n_users, dtype=np.int32))
    milliseconds = fill_in(scores, model, ready, new)
    is_new = np.isin(by_user.users, new)
    return {
        "new users": float(hits(Scores(scores), by_user)[is_new].mean()),
        "new users with an untrained row": float(before[is_new].mean()),
        "trained users": float(before[~is_new].mean()),
        "ms per new user": float(np.mean(milliseconds)),
    }


def fold_in(name: str, dataset: str, seeds: int) -> dict[str, Any]:
    rows = [fold_in_with_seed(name, dataset, seed) for seed in range(seeds)]
    spreads = {key: spread([row[key] for row in rows]) for key in rows[0]}
    return {"part": name, "dataset": dataset, "seeds": seeds} | spreads


def fold_in_with_seed(name: str, dataset: str, seed: int) -> dict[str, float]:
    values = {"algorithm": name, "dataset": dataset, "seed": seed}
    # Only the last model counts: measurements on the way would take most of the time.
    course = {"protocol": "holdout", "evaluate_every": 1_000_000}
    ready = prepare(Experiment.of(values | course), load(dataset), SILENT)
    n_users = ready.training.n_users
    n_new = min(LEFT_OUT, n_users // LARGEST_SHARE)
    new = (np.arange(n_new) * n_users // n_new).astype(np.int32)
    inside = train(ready.experiment, ready.training, ready.evaluator, SILENT).model
    trained = np.zeros((n_users, ready.training.n_items), np.float32)
    trained[new] = inside.score(new)
    without = trained_without(ready, new)
    folded = np.zeros_like(trained)
    milliseconds = fill_in(folded, without, ready, new)
    before = ndcg(trained, ready, new)
    after = ndcg(folded, ready, new)
    return {
        "new users": float(n_new),
        "NDCG@10 in training": before,
        "NDCG@10 as new users": after,
        "ratio": after / before,
        "ms per new user": float(np.mean(milliseconds)),
        "slowest ms": max(milliseconds),
    }


def trained_without(ready: Prepared, new: Ints) -> Recommender:
    """The model trained on all other users."""
    known = ready.parts.train.select(~np.isin(ready.parts.train.users, new))
    without = type(ready.parts)(ready.parts.rule, known, ready.parts.test)
    evaluator = Evaluator.of(ready.experiment, without, ready.candidates)
    return train(ready.experiment, without.training(), evaluator, SILENT).model


def fill_in(scores: Floats, model: Recommender, ready: Prepared, new: Ints) -> list[float]:
    """Write the scores of the new users; the milliseconds that each of them took."""
    experiment = ready.experiment
    score = algorithm(experiment.choice.algorithm).score_new_user
    assert score is not None
    texts = ready.training.item_texts
    milliseconds = []
    for user in new:
        items = ready.training.positives.of(int(user))
        titles = [] if texts is None else [str(text) for text in np.asarray(texts)[items]]
        columns = ready.training.user_features
        one = NewUser(
            items=items,
            titles=titles,
            features={name: values[user] for name, values in columns.items()},
            known_features=tuple(sorted(columns)),
        )
        began = time.perf_counter()
        scores[user] = score(model, one, experiment.settings)
        milliseconds.append(1e3 * (time.perf_counter() - began))
    return milliseconds


@dataclass(frozen=True, slots=True)
class Scores(Recommender):
    """A model that returns precomputed scores."""

    kind: ClassVar[str] = "scores"
    table: Floats

    def score(self, users: Ints, items: Ints | None = None) -> Floats:
        return pick(self.table[users], items)


def hits(model: Recommender, candidates: Candidates) -> np.ndarray:
    return per_user(rank_candidates(model, candidates, 10), (10,))["HR@10"]


def ndcg(scores: Floats, ready: Prepared, users: Ints) -> float:
    """The mean NDCG@10 of some users, over all items they have not seen."""
    test = ready.parts.test
    mine = np.isin(test.users, users)
    wanted = Rows.build(test.users[mine], test.items[mine], test.n_users)
    ranks = rank_all(Scores(scores), ready.parts.seen(), wanted, test.n_items, 10)
    return float(per_user(ranks, (10,))["NDCG@10"].mean())


if __name__ == "__main__":
    of_algorithms = {name: partial(fold_in, name) for name in ALGORITHMS}
    print_parts(__doc__, {"new-users": new_users} | of_algorithms)
