"""People who were never in training, beside those who were: a tenth of them is left out, and each then gets a row from their history.

python benchmarks/newcomers.py newcomers --datasets ml-100k --seeds 3
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


def newcomers(dataset: str, seeds: int) -> dict[str, Any]:
    """A tenth of the people is left out of training; each then gets a row from their history, all else frozen."""
    rows = [_newcomers(dataset, seed) for seed in range(seeds)]
    keys = [key for key in rows[0] if key != "seed"]
    return {"part": "newcomers", "dataset": dataset, "seeds": seeds} | {
        k: spread([r[k] for r in rows]) for k in keys
    }


def _newcomers(dataset: str, seed: int) -> dict[str, Any]:
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
    took = (time.perf_counter() - began) / len(new)
    is_new = np.isin(by_user.users, new)
    return {
        "seed": seed,
        "newcomers": float(hits(Scores(scores), by_user)[is_new].mean()),
        "newcomers without a row of theirs": float(before[is_new].mean()),
        "trained users": float(before[~is_new].mean()),
        "ms a newcomer": 1e3 * took,
    }


@dataclass(frozen=True, slots=True)
class Scores(Recommender):
    """Scores as they are."""

    kind: ClassVar[str] = "scores"
    table: Floats

    def score(self, users: Ints, items: Ints | None = None) -> Floats:
        return pick(self.table[users], items)


def hits(model: Recommender, candidates: Candidates) -> np.ndarray:
    return per_user(rank_candidates(model, candidates, 10), (10,))["HR@10"]


if __name__ == "__main__":
    print_parts(__doc__, {"newcomers": newcomers})
