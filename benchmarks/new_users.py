"""HR@10 of new users against trained users: a tenth of the users is excluded from training.

    python benchmarks/new_users.py new-users --datasets ml-100k --seeds 3

Every excluded user then gets a row fitted to their history; all other parameters are frozen.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from tables import print_parts, spread

from coterie.core.progress import SILENT
from coterie.data.datasets import load
from coterie.evaluation.candidates import Candidates
from coterie.evaluation.metrics import per_user
from coterie.evaluation.ranking import rank_candidates
from coterie.experiments.config import Experiment
from coterie.experiments.preparation import prepare
from coterie.experiments.training import Evaluator, train
from coterie.models.recommender import Recommender, pick
from coterie.types import Floats, Ints


def new_users(dataset: str, seeds: int) -> dict[str, Any]:
    rows = [with_seed(dataset, seed) for seed in range(seeds)]
    spreads = {key: spread([row[key] for row in rows]) for key in rows[0]}
    return {"part": "new-users", "dataset": dataset, "seeds": seeds} | spreads


def with_seed(dataset: str, seed: int) -> dict[str, float]:
    chosen = Experiment.of({"algorithm": "fedfast", "dataset": dataset, "seed": seed})
    ready = prepare(chosen, load(dataset), SILENT)
    assert ready.candidates is not None
    new = np.flatnonzero(np.arange(ready.training.n_users) % 10 == seed % 10).astype(np.int32)
    known = ready.parts.train.select(~np.isin(ready.parts.train.users, new))
    without = type(ready.parts)(ready.parts.rule, known, ready.parts.test)
    evaluator = Evaluator(
        ready.evaluator.part,
        ready.evaluator.headline,
        chosen.protocol,
        known.rows,
        ready.parts.test,
        ready.candidates,
    )
    model = train(chosen, without.training(), evaluator, SILENT).model
    by_user = ready.candidates.by_user()
    before = hits(model, by_user)
    scores = model.score(np.arange(ready.training.n_users, dtype=np.int32))
    began = time.perf_counter()
    for user in new:
        history = ready.training.positives.of(int(user))
        scores[user] = model.score_new_user(history, chosen.settings.negatives, chosen.settings.reg)
    seconds = (time.perf_counter() - began) / len(new)
    is_new = np.isin(by_user.users, new)
    return {
        "new users": float(hits(Scores(scores), by_user)[is_new].mean()),
        "new users with an untrained row": float(before[is_new].mean()),
        "trained users": float(before[~is_new].mean()),
        "ms per new user": 1e3 * seconds,
    }


@dataclass(frozen=True, slots=True)
class Scores(Recommender):
    """A model that returns precomputed scores."""

    kind: ClassVar[str] = "scores"
    table: Floats

    def score(self, users: Ints, items: Ints | None = None) -> Floats:
        return pick(self.table[users], items)


def hits(model: Recommender, candidates: Candidates) -> np.ndarray:
    return per_user(rank_candidates(model, candidates, 10), (10,))["HR@10"]


if __name__ == "__main__":
    print_parts(__doc__, {"new-users": new_users})
