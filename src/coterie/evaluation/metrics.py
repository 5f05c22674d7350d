"""Metrics from ranks.

Under ties every metric is its expected value over all orders of the tied items, so that a constant
model scores k / candidates, never 1 or 0.

per user   HR@k NDCG@k MRR@k P@k R@k F1@k AUC      averaged over the users with a held-out item
           MAP@k   on request: sum of the precisions at the hits within k, over min(k, relevant)
overall    IC@k    item coverage: distinct items recommended
           Gini@k  1 - Gini index over all items, as FPL uses it: higher is more even
           Pop@k   mean share of the users who have a recommended item in training
           UC      user coverage: share of the tested users whom the model serves

A user who is not served has an empty list and scores 0. The mean over all users is then UC times
the mean over served users: accuracy weighted by user coverage (Mesas and Bellogín 2017), as in
FPL's Tables 2 and 3 for methods that skip users.
"""

from __future__ import annotations

from collections.abc import Container

import numpy as np

from coterie.evaluation.ranking import Ranks
from coterie.types import Doubles, Ints, Longs


def per_user(
    ranks: Ranks, cutoffs: tuple[int, ...], requested: Container[str] = ()
) -> dict[str, Doubles]:
    """One value per tested user and metric; MAP only if it is requested."""
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
        if "MAP" in requested:
            table[f"MAP@{k}"] = _average_precision(ranks, k)
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


def _average_precision(ranks: Ranks, k: int) -> Doubles:
    """Expected average precision within k.

    A relevant item of a tie group of t items, m of them relevant, is at each position j of the
    group with probability 1 / t. The precision there counts the h relevant items above the group,
    the item itself, and (j - 1) (m - 1) / (t - 1) others of the group before it.
    """
    above = ranks.above
    t = ranks.tied
    # Relevant items of one user in the order of their ranks; ties are next to each other.
    order = np.lexsort((above, ranks.owner))
    group = np.stack([ranks.owner[order], above[order]])
    starts = np.concatenate([[True], (np.diff(group) != 0).any(axis=0)])
    first = np.flatnonzero(starts)
    sizes = np.diff(np.append(first, len(order)))
    first_of_user = np.searchsorted(group[0], group[0][first])
    m = np.empty(len(order))
    m[order] = np.repeat(sizes, sizes)
    h = np.empty(len(order))
    h[order] = np.repeat(first - first_of_user, sizes)
    inside = np.clip(k - above, 0, t)  # positions of the group that are within k
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, k + 1))])
    start = np.minimum(above, k)
    reciprocals = harmonic[start + inside] - harmonic[start]  # sum of 1 / (above + j)
    earlier = inside - (above + 1) * reciprocals  # sum of (j - 1) / (above + j)
    others = (m - 1) / np.maximum(t - 1, 1)
    gain = ((h + 1) * reciprocals + others * earlier) / t
    return _sum(ranks, gain) / np.minimum(ranks.relevant, k)


def _auc(ranks: Ranks) -> Doubles:
    """Probability that a relevant item outscores another (ties: half); one half without others."""
    # Middle rank from the bottom: 1 is the worst.
    from_bottom = ranks.candidates[ranks.owner] - ranks.above - (ranks.tied - 1) / 2
    r = ranks.relevant
    others = ranks.candidates - r
    wins = _sum(ranks, from_bottom) - r * (r + 1) / 2
    return np.where(others > 0, wins / np.maximum(r * others, 1), 0.5)
