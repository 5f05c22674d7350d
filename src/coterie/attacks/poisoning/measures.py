"""What an attack did: accuracy lost, exposure of the target, and who is hurt.

All figures are of honest users: what a model does for colluders is nobody's loss.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from coterie.data.splits import Split
from coterie.evaluation.candidates import Candidates
from coterie.evaluation.metrics import per_user
from coterie.evaluation.ranking import rank_all, rank_candidates
from coterie.models.recommender import Recommender
from coterie.types import Bools, Doubles, Ints, JsonObject

K = 10
"""The length of a list of recommendations."""
GROUPS = ("least active", "middle", "most active")
"""Thirds of the honest users, by the length of their history."""
BLOCK = 512
"""Users that are scored at a time."""


@dataclass(frozen=True, slots=True)
class Measures:
    """A model, as honest users see it."""

    hr: float
    """HR@10 under the run's protocol."""
    ndcg: float
    """NDCG@10 under the run's protocol."""
    exposure: float
    """ER@10: share of the users without the target in training who have it among their ten best
    items."""
    target_rank: float
    """Median rank of the target among all items that a user has not seen; 1 is the best."""
    hr_by_group: dict[str, float]
    """HR@10 by activity, of the groups that have users."""

    def as_json(self) -> JsonObject:
        return asdict(self)


def measure(
    model: Recommender,
    parts: Split,
    candidates: Candidates | None,
    colluders: Ints,
    target: int,
) -> Measures:
    """Evaluate a model on the test part, and look up the target in all lists."""
    users, table = accuracy(model, parts, candidates)
    honest = ~np.isin(users, colluders)
    hits = table[f"HR@{K}"][honest]
    ranks = target_ranks(model, parts, colluders, target)
    lengths = parts.train.rows.counts[users[honest]]
    return Measures(
        hr=float(hits.mean()),
        ndcg=float(table[f"NDCG@{K}"][honest].mean()),
        exposure=float((ranks <= K).mean()) if len(ranks) else 0.0,
        target_rank=float(np.median(ranks)) if len(ranks) else 0.0,
        hr_by_group={
            name: float(hits[members].mean())
            for name, members in zip(GROUPS, thirds(lengths), strict=True)
            if members.any()
        },
    )


def accuracy(
    model: Recommender, parts: Split, candidates: Candidates | None
) -> tuple[Ints, dict[str, Doubles]]:
    """The tested users, and metrics for each."""
    if candidates is None:
        ranks = rank_all(model, parts.seen(), parts.test.rows, parts.test.n_items, K)
    else:
        ranks = rank_candidates(model, candidates.by_user(), K)
    return ranks.users, per_user(ranks, (K,))


def target_ranks(model: Recommender, parts: Split, colluders: Ints, target: int) -> Doubles:
    """The rank of the target for every honest user who has not seen it; ties at the mean rank."""
    seen = parts.seen()
    known = np.zeros(parts.train.n_users, bool)
    known[np.repeat(np.arange(len(known)), seen.counts)[seen.items == target]] = True
    known[colluders] = True
    known[parts.train.rows.counts == 0] = True
    users = np.flatnonzero(~known).astype(np.int32)
    parts_of_ranks = [np.empty(0)]
    for first in range(0, len(users), BLOCK):
        block = users[first : first + BLOCK]
        scores = model.score(block).astype(np.float64)
        own = scores[:, target].copy()
        row, item = seen.take(block)
        scores[row, item] = -np.inf
        above = (scores > own[:, None]).sum(axis=1)
        tied = (scores == own[:, None]).sum(axis=1)
        parts_of_ranks.append(above + (tied + 1) / 2)
    return np.concatenate(parts_of_ranks)


def thirds(lengths: np.ndarray) -> list[Bools]:
    """Who is in the lower, the middle and the upper third; ties go by position."""
    order = np.argsort(lengths, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    third = rank * len(GROUPS) // max(len(order), 1)
    return [third == n for n in range(len(GROUPS))]
