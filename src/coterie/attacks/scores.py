"""Precision and recall of claims by user, next to a baseline that claims the most popular items."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie.attacks.evidence import Claims
from coterie.types import Bools, Doubles, Longs, Rows


@dataclass(frozen=True, slots=True)
class AttackScore:
    """Counts by user. A hit is a claimed item that is in the user's history."""

    liked: Longs  # (users,) the length R of the history
    claims: Longs
    hits: Longs
    popular_hits: Doubles  # hits of the same number of claims by popularity
    r_hits: Doubles  # hits of the R best scores
    popular_r_hits: Doubles  # hits of the R most popular items


@dataclass(frozen=True, slots=True)
class Figures:
    """Means over observed users; precision over those with any claims, None if there are none."""

    users: int
    claimed_users: int
    claims: float
    precision: float | None
    recall: float | None
    popular_precision: float | None
    popular_recall: float | None
    r_precision: float | None
    popular_r_precision: float | None


def score(claims: Claims, truth: Rows, n_items: int) -> AttackScore:
    """Compare claims with the users' histories."""
    n_users = len(truth.counts)
    users = claims.keys // n_items
    liked = truth.counts
    right = _in_history(claims.keys, truth, n_items)
    sent, sent_right, made, made_right = (
        np.bincount(users[which], minlength=n_users)
        for which in (slice(None), right, claims.made, claims.made & right)
    )
    rest = claims.elsewhere > 0
    n_claims = made + np.where(rest, n_items - sent, 0)
    hits = made_right + np.where(rest, liked - sent_right, 0)
    return AttackScore(
        liked,
        n_claims,
        hits,
        popular_hits(truth, n_items, n_claims),
        _r_hits(claims, right, truth, n_items),
        popular_hits(truth, n_items, liked),
    )


def _in_history(keys: Longs, truth: Rows, n_items: int) -> Bools:
    """Which of ascending keys are in a history."""
    owners = np.repeat(np.arange(len(truth.counts), dtype=np.int64), truth.counts)
    true = owners * n_items + truth.items
    known = np.zeros(len(keys), bool)
    places = np.searchsorted(keys, true)
    match = places < len(keys)
    match[match] = keys[places[match]] == true[match]
    known[places[match]] = True
    return known


def popular_hits(truth: Rows, n_items: int, n_claims: Longs) -> Doubles:
    """Hits of each user's `n_claims` most popular items; ties count at their expected value.

    Popularity is computed from the histories themselves, so this baseline is as strong as possible.
    """
    counts = np.bincount(truth.items, minlength=n_items)
    n_more_popular = n_items - np.searchsorted(np.sort(counts), counts, side="right")
    n_tied = np.bincount(counts)[counts]
    users = np.repeat(np.arange(len(truth.counts)), truth.counts)
    left = n_claims[users] - n_more_popular[truth.items]
    share = np.clip(left / n_tied[truth.items], 0, 1)
    return np.bincount(users, share, minlength=len(truth.counts)).astype(np.float64)


def _r_hits(claims: Claims, right: Bools, truth: Rows, n_items: int) -> Doubles:
    """Hits of the R best scores of each user, R the length of the history; ties as expected."""
    n_users = len(truth.counts)
    owners = claims.keys // n_items
    best = max(claims.scores.max(initial=0), claims.elsewhere.max(initial=0))
    worst = min(claims.scores.min(initial=0), claims.elsewhere.min(initial=0))
    shape = n_users, int(best - worst) + 1  # by user, then by score, the best first
    places = owners * shape[1] + (best - claims.scores)
    rest = (np.arange(n_users), best - claims.elsewhere)
    sizes, hits = (
        np.bincount(some, minlength=shape[0] * shape[1]).reshape(shape)
        for some in (places, places[right])
    )
    unsent = n_items - sizes.sum(axis=1)
    unsent_hits = truth.counts - hits.sum(axis=1)
    sizes[rest] += unsent
    hits[rest] += unsent_hits
    before = np.cumsum(sizes, axis=1) - sizes
    taken = np.clip(truth.counts[:, None] - before, 0, sizes)
    r_hits: Doubles = (hits * taken / np.maximum(sizes, 1)).sum(axis=1)
    return r_hits


def summarise(result: AttackScore, users: Bools) -> Figures:
    """Means over some users."""
    claimed = users & (result.claims > 0)
    n_claims = np.maximum(result.claims, 1)
    liked = np.maximum(result.liked, 1)
    return Figures(
        users=int(users.sum()),
        claimed_users=int(claimed.sum()),
        claims=_mean(result.claims, users) or 0.0,
        precision=_mean(result.hits / n_claims, claimed),
        recall=_mean(result.hits / liked, users),
        popular_precision=_mean(result.popular_hits / n_claims, claimed),
        popular_recall=_mean(result.popular_hits / liked, users),
        r_precision=_mean(result.r_hits / liked, users),
        popular_r_precision=_mean(result.popular_r_hits / liked, users),
    )


def _mean(values: Longs | Doubles, which: Bools) -> float | None:
    return float(values[which].mean()) if which.any() else None
