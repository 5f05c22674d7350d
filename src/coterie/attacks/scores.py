"""How right claims are: precision and recall by user, beside somebody who knows only what is popular."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie.attacks.evidence import Claims
from coterie.types import Bools, Doubles, Longs, Rows


@dataclass(frozen=True, slots=True)
class CellResult:
    """Counts by user. A hit is a claimed item that is in the user's history."""

    liked: Longs  # (users,) the length of the history
    claims: Longs
    hits: Longs
    popular_hits: Doubles  # of as many claims, made by popularity alone
    told_hits: Doubles  # of as many claims as the history is long, best scores first
    popular_told_hits: Doubles


@dataclass(frozen=True, slots=True)
class Figures:
    """Means over users who were heard; precision over those of them about whom anything was claimed, else it is None."""

    users: int
    claimed_users: int
    claims: float
    precision: float | None
    recall: float | None
    popular_precision: float | None
    popular_recall: float | None
    told_precision: float | None
    popular_told_precision: float | None


def judge(claims: Claims, truth: Rows, n_items: int) -> CellResult:
    n_users = len(truth.counts)
    users = claims.keys // n_items
    liked = truth.counts
    right = _known(claims.keys, truth, n_items)
    sent, sent_right, made, made_right = (
        np.bincount(users[which], minlength=n_users)
        for which in (slice(None), right, claims.made, claims.made & right)
    )
    rest = claims.elsewhere > 0
    n_claims = made + np.where(rest, n_items - sent, 0)
    hits = made_right + np.where(rest, liked - sent_right, 0)
    return CellResult(
        liked,
        n_claims,
        hits,
        popular_hits(truth, n_items, n_claims),
        _told(claims, right, truth, n_items),
        popular_hits(truth, n_items, liked),
    )


def _known(keys: Longs, truth: Rows, n_items: int) -> Bools:
    """Which of ascending keys are in a history."""
    owners = np.repeat(np.arange(len(truth.counts), dtype=np.int64), truth.counts)
    true = owners * n_items + truth.items
    known = np.zeros(len(keys), bool)
    places = np.searchsorted(keys, true)
    there = places < len(keys)
    there[there] = keys[places[there]] == true[there]
    known[places[there]] = True
    return known


def popular_hits(truth: Rows, n_items: int, n_claims: Longs) -> Doubles:
    """Hits of the most popular items, so many for each user; items of equal popularity count at what a draw among them gives.

    Popularity is that of the histories themselves, the best that there is.
    """
    counts = np.bincount(truth.items, minlength=n_items)
    more = n_items - np.searchsorted(
        np.sort(counts), counts, side="right"
    )  # items that are more popular
    as_many = np.bincount(counts)[counts]
    users = np.repeat(np.arange(len(truth.counts)), truth.counts)
    share = np.clip((n_claims[users] - more[truth.items]) / as_many[truth.items], 0, 1)
    return np.bincount(users, share, minlength=len(truth.counts)).astype(np.float64)


def _told(claims: Claims, right: Bools, truth: Rows, n_items: int) -> Doubles:
    """Hits if an attacker were told how many to claim; ties count at what a draw among them gives."""
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
    told: Doubles = (hits * taken / np.maximum(sizes, 1)).sum(axis=1)
    return told


def summarise(outcome: CellResult, who: Bools) -> Figures:
    """Means over some users."""
    some = who & (outcome.claims > 0)
    n_claims = np.maximum(outcome.claims, 1)
    liked = np.maximum(outcome.liked, 1)
    return Figures(
        int(who.sum()),
        int(some.sum()),
        _mean(outcome.claims, who) or 0.0,
        _mean(outcome.hits / n_claims, some),
        _mean(outcome.hits / liked, who),
        _mean(outcome.popular_hits / n_claims, some),
        _mean(outcome.popular_hits / liked, who),
        _mean(outcome.told_hits / liked, who),
        _mean(outcome.popular_told_hits / liked, who),
    )


def _mean(values: Longs | Doubles, which: Bools) -> float | None:
    return float(values[which].mean()) if which.any() else None
