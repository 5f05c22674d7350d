"""Filters of interactions. They run in the order of their settings below."""

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

RATINGS_NOT_USED = (
    "ratings are not used: every row counts as a positive (feedback=implicit); "
    "min_rating=N leaves out lower ones"
)


class Filters(Settings):
    duplicates: Literal["newest", "oldest", "error"] = "newest"
    """Which of several interactions of one user with one item to keep; `error` rejects the file."""
    min_rating: float | None = None
    """Keep only ratings of at least this value."""
    feedback: Literal["implicit", "explicit"] = "implicit"
    """Drop ratings after filtering (implicit), or predict them (explicit)."""
    min_user_records: int = Field(0, ge=0)
    """Drop users with fewer rows in the source, repeated pairs included."""
    min_user_interactions: int = Field(0, ge=0)
    """Drop users with fewer distinct interactions, in one pass."""
    core: int = Field(0, ge=0)
    """Keep the k-core: repeatedly drop users and items with fewer than k interactions."""
    sample_users: int = Field(0, ge=0)
    """Keep this many randomly drawn users; 0 keeps all."""
    sample_seed: int = Field(0, ge=0, lt=2**63)
    """Seed of the draw of sample_users."""


def apply(data: Interactions, filters: Filters, keep_ratings: bool = False) -> Interactions:
    """The filtered data with users and items renumbered, and a note for each effective filter.

    `keep_ratings` is for data that is written to a file: whether a run uses them is its choice.
    """
    data = apply_ratings(data, filters, keep_ratings)
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
            f"no interaction is left after filtering ({filters}). "
            "Lower min_user_interactions, core or min_rating."
        )
    if filters.sample_users:
        data = _sample_users(data, filters.sample_users, filters.sample_seed)
    return data.compact()


def apply_ratings(data: Interactions, filters: Filters, keep_ratings: bool = False) -> Interactions:
    """Apply the filters that look at single rows: min_rating and feedback."""
    if filters.min_rating is not None:
        part = data.select(_ratings(data) >= filters.min_rating)
        # Said also if no rating is lower: a reader must know what became of the ratings.
        data = part.note(_kept(part, data, f"rated at least {filters.min_rating:g}"))
    if keep_ratings:
        return data
    if filters.feedback == "implicit":
        return replace(data, ratings=None, reading=_reading_without_ratings(data, filters))
    _ratings(data)
    return data


def in_core(data: Interactions, k: int) -> Bools:
    """Mask of the interactions in the k-core, where every user and item has at least k of them."""
    left = np.ones(len(data), bool)
    while True:
        users = np.bincount(data.users[left], minlength=data.n_users)
        items = np.bincount(data.items[left], minlength=data.n_items)
        keep = left & (users[data.users] >= k) & (items[data.items] >= k)
        if keep.sum() == left.sum():
            return left
        left = keep


def _sample_users(data: Interactions, n: int, seed: int) -> Interactions:
    """The n users with the lowest random keys: a larger n keeps them and adds others."""
    users = np.unique(data.users)
    if n > len(users):
        raise ConfigError(
            f"setting 'sample_users' is {n:,}, but {len(users):,} users are left after the other "
            f"filters; expected at most {len(users):,}. "
            "Lower it with --set sample_users=N, or keep all with sample_users=0."
        )
    keys = streams.keys(seed, "sampled users", last=users)
    chosen = np.zeros(data.n_users, bool)
    chosen[users[np.argsort(keys, kind="stable")[:n]]] = True
    why = f"by {n:,} of {len(users):,} users, drawn with sample_seed {seed}"
    return _keep(data, chosen[data.users], why)


def _reading_without_ratings(data: Interactions, filters: Filters) -> tuple[str, ...]:
    """How a file was read, and that its ratings are dropped if nothing else uses them."""
    is_unused = data.ratings is not None and filters.min_rating is None
    return (*data.reading, RATINGS_NOT_USED) if data.reading and is_unused else data.reading


def _ratings(data: Interactions) -> np.ndarray:
    if data.ratings is None:
        raise ConfigError(
            "the data has no ratings; "
            "expected a column 'rating' for min_rating and feedback=explicit. Leave both out."
        )
    return data.ratings


def _keep(data: Interactions, which: Bools, why: str) -> Interactions:
    part = data.select(which)
    if len(part) == len(data):
        return part
    return part.note(_kept(part, data, why))


def _kept(part: Interactions, data: Interactions, why: str) -> str:
    return f"{len(part):,} of {len(data):,} interactions kept: {why}"
