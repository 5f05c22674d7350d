"""Which interactions count. Filters run in the order of their settings below."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from coterie.core import streams
from coterie.core.settings import Settings
from coterie.data.interactions import Interactions
from coterie.errors import ConfigError
from coterie.types import Bools


class Filters(Settings):
    duplicates: Literal["newest", "oldest", "error"] = "newest"
    """Which of several interactions of one user with one item stays; `error` refuses the file."""
    min_rating: float | None = None
    """Keep only ratings of at least this."""
    feedback: Literal["implicit", "explicit"] = "implicit"
    """Whether ratings are forgotten once filtered (implicit) or predicted (explicit)."""
    min_user_records: int = Field(0, ge=0)
    """Drop users who stand in the source less often, repeated pairs counted."""
    min_user_interactions: int = Field(0, ge=0)
    """Drop users with fewer interactions; counted once."""
    core: int = Field(0, ge=0)
    """Keep the k-core: drop users and items with fewer than k until none is left to drop."""
    sample_users: int = Field(0, ge=0)
    """Keep so many users, drawn by sample_seed; 0 keeps all."""
    sample_seed: int = Field(0, ge=0, lt=2**63)
    """Which users sample_users draws."""


def apply(data: Interactions, filters: Filters) -> Interactions:
    """The filtered data, users and items renumbered, with a note for each filter that took something away."""
    data = rated(data, filters)
    counts = np.bincount(data.users, minlength=data.n_users)
    if filters.min_user_records:
        records = counts if data.user_records is None else data.user_records
        enough = records[data.users] >= filters.min_user_records
        data = _keep(data, enough, f"by users with at least {filters.min_user_records} records")
    if filters.min_user_interactions:
        enough = counts[data.users] >= filters.min_user_interactions
        data = _keep(data, enough, f"by users with at least {filters.min_user_interactions}")
    if filters.core:
        data = _keep(data, in_core(data, filters.core), f"in the {filters.core}-core")
    if not len(data):
        raise ConfigError(
            f"no interaction is left after filtering ({filters}). Lower min_user_interactions, core or min_rating."
        )
    if filters.sample_users:
        data = _drawn(data, filters.sample_users, filters.sample_seed)
    return data.compact()


def rated(data: Interactions, filters: Filters) -> Interactions:
    """What each row says by itself: ratings high enough, and forgotten or kept."""
    if filters.min_rating is not None:
        data = _keep(
            data, _ratings(data) >= filters.min_rating, f"rated at least {filters.min_rating:g}"
        )
    if filters.feedback == "implicit":
        return replace(data, ratings=None)
    _ratings(data)
    return data


def in_core(data: Interactions, k: int) -> Bools:
    """Which interactions lie in the k-core: every user and item left has at least k of those left."""
    left = np.ones(len(data), bool)
    while True:
        users = np.bincount(data.users[left], minlength=data.n_users)
        items = np.bincount(data.items[left], minlength=data.n_items)
        keep = left & (users[data.users] >= k) & (items[data.items] >= k)
        if keep.sum() == left.sum():
            return left
        left = keep


def _drawn(data: Interactions, n: int, seed: int) -> Interactions:
    """The users whose own random number is among the n lowest: more users with the same seed are these and others."""
    users = np.unique(data.users)
    if n > len(users):
        raise ConfigError(
            f"setting 'sample_users' is {n:,}, but there are {len(users):,} users after the other filters; expected at most so many. "
            "Lower it with --set sample_users=N, or keep all with sample_users=0."
        )
    chosen = np.zeros(data.n_users, bool)
    chosen[
        users[np.argsort(streams.keys(seed, "sampled users", last=users), kind="stable")[:n]]
    ] = True
    return _keep(
        data, chosen[data.users], f"by {n:,} of {len(users):,} users, drawn with sample_seed {seed}"
    )


def _ratings(data: Interactions) -> np.ndarray:
    if data.ratings is None:
        raise ConfigError(
            "the data has no ratings; expected a column 'rating' for min_rating and feedback=explicit. Leave both out."
        )
    return data.ratings


def _keep(data: Interactions, which: Bools, why: str) -> Interactions:
    kept = data.select(which)
    return (
        kept
        if len(kept) == len(data)
        else kept.note(f"{len(kept):,} of {len(data):,} interactions kept: {why}")
    )
