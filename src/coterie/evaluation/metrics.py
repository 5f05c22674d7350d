"""Metrics from ranks.

Under ties every metric is its expected value over all orders of the tied items, so that a constant
model scores k / candidates, never 1 or 0.

per user   HR@k NDCG@k MRR@k P@k R@k F1@k AUC      averaged over the users with a held-out item
overall    IC@k    item coverage: distinct items recommended
           Gini@k  1 - Gini index over all items, as FPL uses it: higher is more even
           Pop@k   mean share of the users who have a recommended item in training
           UC      user coverage: share of the tested users whom the model serves

A user who is not served has an empty list and scores 0. The mean over all users is then UC times
the mean over served users: accuracy weighted by user coverage (Mesas and Bellogín 2017), as in
FPL's Tables 2 and 3 for methods that skip users.
"""

from __future__ import annotations

import numpy as np

from coterie.evaluation.ranking import Ranks
from coterie.types import Doubles, Ints, Longs


def per_user(ranks: Ranks, cutoffs: tuple[int, ...]) -> dict[str, Doubles]:
    """One value per tested user and metric."""
    table: dict[str, Doubles] = {}
    for k in cutoffs:
        # Expected number of relevant items among the first k.
        hits = _sum(ranks, _share_within(ranks, k))
        first, reciprocal = _first_hit(ranks, k)
        table[f"HR@{k}"] = first
        ideal = _discounts(k)[np.minimum(ranks.relevant, k)]
        table[f"NDCG@{k}"] = _sum(ranks, _gain_within(ranks, k)) / ideal
        table[f"MRR@{k}"] = reciprocal
        table[f"P@{k}"] = hits / k
        table[f"R@{k}"] = hits / ranks.relevant
        table[f"F1@{k}"] = 2 * hits / (k + ranks.relevant)  # 2PR / (P + R) with P = h/k, R = h/n
    table["AUC"] = _auc(ranks)
    return {name: np.where(ranks.served, values, 0.0) for name, values in table.items()}


def overall(
    ranks: Ranks, cutoffs: tuple[int, ...], popularity: Longs, n_users: int
) -> dict[str, float]:
    """Coverage and diversity of the recommended lists.

    `popularity` is the number of training users of every item, `n_users` the number of all users.
    """
    table = {"UC": float(ranks.served.mean())}
    for k in cutoffs:
        listed = ranks.top[:, :k][ranks.top[:, :k] >= 0]
        table[f"IC@{k}"] = float(len(np.unique(listed)))
        table[f"Gini@{k}"] = evenness(listed, len(popularity))
        table[f"Pop@{k}"] = float(popularity[listed].mean() / n_users) if len(listed) else 0.0
    return table


def evenness(listed: Ints, n_items: int) -> float:
    """1 - Gini index over the catalogue: 1 if all items are listed equally, 0 if only one is."""
    counts = np.sort(np.bincount(listed, minlength=n_items))
    if n_items < 2 or not counts.sum():
        return 0.0
    weights = 2 * np.arange(1, n_items + 1) - n_items - 1
    return float(1 - (weights * counts).sum() / (counts.sum() * (n_items - 1)))


def _sum(ranks: Ranks, values: Doubles) -> Doubles:
    return np.bincount(ranks.owner, weights=values, minlength=len(ranks.users)).astype(np.float64)


def _share_within(ranks: Ranks, k: int) -> Doubles:
    """Probability that a relevant item is among the first k: its rank is uniform among its ties."""
    return np.clip(k - ranks.above, 0, ranks.tied) / ranks.tied


def _gain_within(ranks: Ranks, k: int) -> Doubles:
    """Expected discounted gain of a relevant item within the first k."""
    total = _discounts(k)
    gain: Doubles = (
        total[np.minimum(ranks.above + ranks.tied, k)] - total[np.minimum(ranks.above, k)]
    ) / ranks.tied
    return gain


def _discounts(k: int) -> Doubles:
    """sum_{rank <= j} 1 / log2(rank + 1) for j = 0..k."""
    return np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(2, k + 2)))])


def _first_hit(ranks: Ranks, k: int) -> tuple[Doubles, Doubles]:
    """(probability of a hit within k, expected reciprocal rank of the first hit within k).

    Only the best tie group with a relevant item matters. With m relevant items among its t items,
    the first relevant one is at position j of the group with probability C(t - j, m - 1) / C(t, m),
    computed position by position.
    """
    best = np.full(len(ranks.users), np.iinfo(np.int64).max)
    np.minimum.at(best, ranks.owner, ranks.above)
    in_group = ranks.above == best[ranks.owner]
    m = np.bincount(ranks.owner[in_group], minlength=len(ranks.users))
    t = np.zeros(len(ranks.users), np.int64)
    t[ranks.owner[in_group]] = ranks.tied[in_group]
    hit = np.zeros(len(ranks.users))
    reciprocal = np.zeros(len(ranks.users))
    none_yet = np.ones(len(ranks.users))
    for j in range(1, k + 1):
        inside = (best + j <= k) & (j <= t)
        first_at_j = np.where(inside, none_yet * np.minimum(m / np.maximum(t - j + 1, 1), 1), 0)
        hit += first_at_j
        reciprocal += first_at_j / (best + j)
        none_yet -= first_at_j
    return hit, reciprocal


def _auc(ranks: Ranks) -> Doubles:
    """Probability that a relevant item outscores another (ties: half); one half without others."""
    # Middle rank from the bottom: 1 is the worst.
    from_bottom = ranks.candidates[ranks.owner] - ranks.above - (ranks.tied - 1) / 2
    r = ranks.relevant
    others = ranks.candidates - r
    wins = _sum(ranks, from_bottom) - r * (r + 1) / 2
    return np.where(others > 0, wins / np.maximum(r * others, 1), 0.5)
