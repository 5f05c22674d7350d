"""What a device draws for a round: which clicks to learn from, what to compare them with, and which titles tell of its user."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie.algorithms.two_tower.settings import TwoTowers
from coterie.core import sampling as draws
from coterie.core import streams
from coterie.core.sampling import Keys
from coterie.data.content import Content
from coterie.data.text import Ragged
from coterie.data.training_set import TrainingSet
from coterie.types import Bools, Ints, Longs


@dataclass(frozen=True, slots=True)
class Requests:
    """A row for every user."""

    items: Ints  # (n, T) ascending: places tell nothing; -1 first where there are fewer
    clicked: Bools  # (n, T)
    profiles: Ints  # (n, titles) items whose titles tell of the user, never one of the clicks above; -1 where there are fewer

    @property
    def there(self) -> Bools:
        return self.items >= 0


def draw(
    training: TrainingSet,
    people: Ints | Longs,
    settings: TwoTowers,
    keys: Keys,
    sticky: Keys | None = None,
) -> Requests:
    """Some clicks at random, other clicks for the profile, and items outside the history; each from the user's own stream.

    With sticky keys, which a user keeps, those items come from a set that the user keeps too: as often as a click is asked for, so
    often is any of them, and who sees all requests cannot tell one from the other.
    """
    mine = training.positives.of_users(people)
    clicks = settings.clicks
    places = draws.draw_sequences(mine.counts, clicks + settings.titles, keys)
    drawn = np.where(places < 0, -1, _at(mine.items, mine.offsets[:-1, None] + places)).astype(
        np.int32
    )
    seen = training.excluded.of_users(people)
    everybody = np.arange(len(people))
    n = settings.compared - clicks
    if sticky is None:
        others = draws.unseen_items(seen, everybody, training.n_items, n, streams.mix_array(keys))
    else:
        decoys = draws.many_unseen_items(
            seen, everybody, training.n_items, -(-mine.counts * n // clicks), sticky
        )
        decoys = np.pad(
            decoys, ((0, 0), (0, 1)), constant_values=-1
        )  # somebody may have nothing left to ask for
        which = draws.draw_sets((decoys >= 0).sum(axis=1), n, streams.mix_array(keys))
        others = np.where(which < 0, -1, np.take_along_axis(decoys, np.maximum(which, 0), axis=1))
    items = np.hstack([drawn[:, :clicks], others])
    order = np.argsort(items, axis=1, kind="stable")
    return Requests(
        np.take_along_axis(items, order, axis=1),
        (order < clicks) & (np.sort(items, axis=1) >= 0),
        drawn[:, clicks:],
    )


def profiles(training: TrainingSet, people: Ints | Longs, n: int, keys: Keys) -> Ints:
    """(n, titles) what tells of users when they are recommended something."""
    mine = training.positives.of_users(people)
    places = draws.draw_sequences(mine.counts, n, keys)
    return np.where(places < 0, -1, _at(mine.items, mine.offsets[:-1, None] + places)).astype(
        np.int32
    )


def told_of(content: Content, people: Ints | Longs, titles: Ints) -> Ragged:
    """What is read about some users: their features, or those titles."""
    if content.users is not None:
        return content.users.take(people)
    joined = content.titles.joined(titles)
    return joined.merged() if content.encoding == "bags" else joined


def _at(values: Ints, places: Longs) -> Ints:
    """Places beyond the end, which nobody looks at, are read from the last one."""
    return (
        values[np.clip(places, 0, max(len(values) - 1, 0))]
        if len(values)
        else np.zeros(places.shape, np.int32)
    )
