"""What a client draws for a round: clicks to train on, negatives, and titles for its profile."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie import kernels
from coterie.algorithms.two_tower.settings import TwoTowers
from coterie.core import sampling as draws
from coterie.core import streams
from coterie.core.sampling import Keys
from coterie.data.content import Content
from coterie.data.text import Ragged
from coterie.data.training_set import TrainingSet
from coterie.types import Bools, Ints, Longs, Rows


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests of a cohort, one row per user."""

    items: Ints
    """(n, T) ascending, so that positions reveal nothing; padded with -1 in front."""
    clicked: Bools
    """(n, T) which items the user clicked."""
    profiles: Ints
    """(n, titles) items whose titles describe the user, none of them in `items`; padded with -1."""

    @property
    def valid(self) -> Bools:
        """(n, T) which entries of `items` are items and not padding."""
        return self.items >= 0


def draw(
    training: TrainingSet,
    users: Ints | Longs,
    settings: TwoTowers,
    keys: Keys,
    sticky: Keys | None = None,
) -> Requests:
    """Draw clicks, other clicks for the profile, and negatives, from each user's own stream.

    With sticky keys, which do not change between rounds, negatives come from a fixed set per user.
    Its size makes a negative recur as often as a click, so the sequence of all requests does not
    distinguish them.
    """
    clicks = settings.clicks
    n = settings.compared - clicks
    drawn = _draw_items(training.positives, users, clicks + settings.titles, keys)
    if sticky is None:
        negatives = _draw_unseen(training, users, n, streams.mix_array(keys))
    else:
        negatives = _draw_decoys(training, users, settings, keys, sticky)
    items = np.hstack([drawn[:, :clicks], negatives])
    clicked = np.empty(items.shape, bool)
    kernels.load("requests").sort(items, clicks, clicked)
    return Requests(items, clicked, drawn[:, clicks:])


def profiles(training: TrainingSet, users: Ints | Longs, n: int, keys: Keys) -> Ints:
    """(users, n) the items whose titles describe the users at recommendation time."""
    return _draw_items(training.positives, users, n, keys)


def user_texts(content: Content, users: Ints | Longs, titles: Ints) -> tuple[Ragged, Longs]:
    """The texts that the user tower reads, and the rows of the given users in them.

    The texts are the features of all users, or the given titles.
    """
    if content.users is not None:
        return content.users, users.astype(np.int64)
    joined = content.titles.joined(titles)
    texts = joined.merged() if content.encoding == "bags" else joined
    return texts, np.arange(len(users))


def _draw_items(histories: Rows, users: Ints | Longs, n: int, keys: Keys) -> Ints:
    """(users, n) distinct items of each user's history in random order; -1 past its end."""
    drawn = np.empty((len(users), n), np.int32)
    kernels.load("requests").draw_items(
        users.astype(np.int64), histories.offsets, histories.items, keys, drawn
    )
    return drawn


def _draw_unseen(training: TrainingSet, users: Ints | Longs, n: int, keys: Keys) -> Ints:
    """(users, n) distinct items that each user has not seen; -1 where there are fewer."""
    seen = training.excluded
    drawn = np.empty((len(users), n), np.int32)
    kernels.load("requests").draw_unseen(
        users.astype(np.int64), seen.offsets, seen.items, training.n_items, keys, drawn
    )
    return drawn


def _draw_decoys(
    training: TrainingSet, users: Ints | Longs, settings: TwoTowers, keys: Keys, sticky: Keys
) -> Ints:
    """(users, negatives) distinct items of each user's fixed set; -1 where there are fewer."""
    n = settings.compared - settings.clicks
    seen = training.excluded.of_users(users)
    rows = np.arange(len(users))
    n_decoys = -(-training.positives.counts_of(users) * n // settings.clicks)
    decoys = draws.many_unseen_items(seen, rows, training.n_items, n_decoys, sticky)
    # A user who has seen every item has no decoys: keep at least one column.
    decoys = np.pad(decoys, ((0, 0), (0, 1)), constant_values=-1)
    which = draws.draw_sets((decoys >= 0).sum(axis=1), n, streams.mix_array(keys))
    chosen = np.take_along_axis(decoys, np.maximum(which, 0), axis=1)
    return np.where(which < 0, np.int32(-1), chosen)
