"""src/coterie/data/training_set.py."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from coterie.types import Bools, Floats, Ids, Ints, Longs, Rows

if TYPE_CHECKING:
    from coterie.data.content import Content


@dataclass(frozen=True, slots=True)
class PrivacyPreferences:
    """What people want to keep for themselves, by person."""

    since: Rows
    """From which epochs on a person's next disclosure rate counts, ascending."""
    rates: Floats
    """Aligned with `since.items`."""
    hidden: Bools
    """Aligned with a training's positives: what is never disclosed, whatever the rate."""

    def fingerprint(self) -> str:
        """The same for the same wishes: a run that is gone on with must not find others."""
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
        """The rate of each user in its epoch; NaN where nothing was said by then."""
        owners = np.repeat(np.arange(len(self.since.counts)), self.since.counts)
        keys = (owners << 32) + self.since.items
        last = np.searchsorted(keys, (users.astype(np.int64) << 32) + epochs, side="right") - 1
        said = last >= self.since.offsets[users]
        return np.where(
            said, np.append(self.rates, np.float32(np.nan))[last], np.float32(np.nan)
        ).astype(np.float32)


@dataclass(frozen=True)
class TrainingSet:
    """All that training may see. Built from the training part alone; evaluation data never enters it."""

    n_users: int
    n_items: int
    positives: Rows
    """What users did."""
    excluded: Rows
    """What negatives avoid: the training positives, and nothing else unless a published leak is asked for."""
    ratings: Floats | None
    """Aligned with `positives.items`; None for implicit feedback."""
    user_features: Mapping[str, Ids] = field(default_factory=dict)
    """What is known about people beside what they did, such as their region."""
    preferences: PrivacyPreferences | None = None
    """What people said that they want to keep for themselves: devices know, the server does not."""
    item_texts: Ids | None = None
    item_categories: Ids | None = None
    item_bodies: Ids | None = None
    content: Content | None = None
    """The same, and what people's features say, as a model reads it; only where one does."""
    presence: Longs | None = None
    """(rows, 3) user, and the first and last round of a stretch in which they are there; of a trace of devices."""

    @cached_property
    def users(self) -> Ints:
        """The user of every positive, aligned with `positives.items`."""
        return np.repeat(np.arange(self.n_users, dtype=np.int32), self.positives.counts)

    @cached_property
    def by_item(self) -> Rows:
        """The users of every item."""
        return Rows.build(self.positives.items, self.users, self.n_items)

    def of_users(self, users: Ints) -> TrainingSet:
        """The part of some people, who are numbered anew in the given order."""
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
