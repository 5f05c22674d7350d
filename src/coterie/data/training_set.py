"""The input of training, and the users' privacy preferences."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from coterie.core.settings import DataSize
from coterie.types import Bools, Floats, Ids, Ints, Longs, Rows

if TYPE_CHECKING:
    from coterie.data.content import Content


@dataclass(frozen=True, slots=True)
class PrivacyPreferences:
    """Disclosure rates and hidden items, per user."""

    since: Rows
    """user -> the epochs at which a new disclosure rate takes effect, ascending."""
    rates: Floats
    """The disclosure rates, aligned with `since.items`."""
    hidden: Bools
    """Items that are never disclosed, aligned with the training set's positives."""

    def fingerprint(self) -> str:
        """A hash of the preferences, which must not change when a run is resumed."""
        digest = hashlib.blake2b(digest_size=8)
        for array in (self.since.offsets, self.since.items, self.rates, self.hidden):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def of_users(self, users: Ints | Longs, positives: Rows) -> PrivacyPreferences:
        return PrivacyPreferences(
            self.since.of_users(users),
            self.rates[self.since.places(users)],
            self.hidden[positives.places(users)],
        )

    def rates_at(self, users: Ints | Longs, epochs: Ints | Longs) -> Floats:
        """The rate of each user in its epoch; NaN if no rate is in effect yet."""
        owners = np.repeat(np.arange(len(self.since.counts)), self.since.counts)
        keys = (owners << 32) + self.since.items
        last = np.searchsorted(keys, (users.astype(np.int64) << 32) + epochs, side="right") - 1
        in_effect = last >= self.since.offsets[users]
        rates = np.append(self.rates, np.float32(np.nan))[last]
        return np.where(in_effect, rates, np.float32(np.nan)).astype(np.float32)


@dataclass(frozen=True)
class TrainingSet:
    """All data that training may read. It comes from the training part only."""

    n_users: int
    n_items: int
    positives: Rows
    """The items of every user."""
    excluded: Rows
    """Items that negatives exclude: the training positives, plus held-out items `as_published`."""
    ratings: Floats | None
    """Aligned with `positives.items`; None for implicit feedback."""
    user_features: Mapping[str, Ids] = field(default_factory=dict)
    """Features of users, such as their region."""
    preferences: PrivacyPreferences | None = None
    """The users' privacy preferences. Clients know them; the server does not."""
    item_texts: Ids | None = None
    item_categories: Ids | None = None
    item_bodies: Ids | None = None
    content: Content | None = None
    """Texts and user features as a tower reads them; None for other models."""
    presence: Longs | None = None
    """(rows, 3) user, first and last round of a period of availability, from a device trace.
    Rounds are 0 for a user whose periods the simulator draws (availability=heavy_away)."""

    @property
    def size(self) -> DataSize:
        return DataSize(
            self.n_users, self.n_items, len(self.positives.items), self.ratings is not None
        )

    @cached_property
    def users(self) -> Ints:
        """The user of every positive, aligned with `positives.items`."""
        return np.repeat(np.arange(self.n_users, dtype=np.int32), self.positives.counts)

    @cached_property
    def by_item(self) -> Rows:
        """The users of every item."""
        return Rows.build(self.positives.items, self.users, self.n_items)

    def of_users(self, users: Ints | Longs) -> TrainingSet:
        """The part of some users, renumbered in the given order."""
        ratings = None
        if self.ratings is not None:
            ratings = self.ratings[self.positives.places(users)]
        preferences = self.preferences and self.preferences.of_users(users, self.positives)
        return TrainingSet(
            len(users),
            self.n_items,
            self.positives.of_users(users),
            self.excluded.of_users(users),
            ratings,
            {},
            preferences,
            content=self.content and self.content.of_users(users),
        )

    def __len__(self) -> int:
        return len(self.positives.items)
