"""What is trained on and what is held out. A split is a value: parts over the same users and items.

leave-one-out   the newest interaction of every user; without times, one at random
temporal        the newest int(fraction * n) of every user; without times, as many at random
global-time     everything after the moment that leaves `fraction` of the interactions behind it; newcomers are left out
random          int(fraction * n) of every user, at random
own             given as files of their own

Equal times are ordered by a fixed hash (see `Interactions`). A user always keeps one interaction for training: somebody
with a single item is trained on and not tested. The validation part is carved out of the rest in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from coterie.core import streams
from coterie.data.interactions import Interactions, canonical_order, contains
from coterie.data.training_set import TrainingSet
from coterie.errors import DataError
from coterie.types import Bools, Ids, Ints, Longs, Rows

Rule = Literal["leave-one-out", "temporal", "global-time", "random", "own"]


@dataclass(frozen=True, slots=True)
class Split:
    rule: str
    train: Interactions
    test: Interactions
    validation: Interactions | None = None

    def training(self, as_published: bool = False) -> TrainingSet:
        """What an algorithm gets. `as_published` also keeps negatives off the held-out items, as leaky code does."""
        train = self.train
        positives = train.rows
        ratings = None
        if train.ratings is not None:
            ratings = np.ascontiguousarray(train.ratings[np.lexsort((train.items, train.users))])
        excluded = self.everything() if as_published else positives
        return TrainingSet(
            train.n_users,
            train.n_items,
            positives,
            excluded,
            ratings,
            train.user_features,
            item_texts=train.item_texts,
            item_categories=train.item_categories,
            item_bodies=train.item_bodies,
        )

    def seen(self) -> Rows:
        """What a recommendation leaves out when the test part is judged: training and validation."""
        parts = [self.train] if self.validation is None else [self.train, self.validation]
        return _joined(parts)

    def for_tuning(self) -> Split:
        """The same split with the validation part in place of the test part, which is gone."""
        if self.validation is None:
            raise DataError(
                "this split has no validation part; expected one for tuning and early stopping. Set validation=true."
            )
        return Split(self.rule, self.train, self.validation)

    def everything(self) -> Rows:
        """All that a user did: what sampled candidates must not be."""
        return _joined(
            [part for part in (self.train, self.validation, self.test) if part is not None]
        )


def split(
    data: Interactions, rule: Rule, fraction: float, seed: int, validation: bool = False
) -> Split:
    """Hold out a test part and, if asked, a validation part carved from the rest by the same rule."""
    train, test = _carve(data, rule, fraction, seed, "test")
    train, kept = _carve(train, rule, fraction, seed, "validation") if validation else (train, None)
    return without_new_users(Split(rule, train, test, kept))


def without_new_users(parts: Split) -> Split:
    """Nobody is tested who has nothing to learn from."""
    trained = np.bincount(parts.train.users, minlength=parts.train.n_users) > 0
    known = replace(
        parts,
        test=parts.test.select(trained[parts.test.users]),
        validation=None
        if parts.validation is None
        else parts.validation.select(trained[parts.validation.users]),
    )
    for name, part in (("test", known.test), ("validation", known.validation)):
        if part is not None and not len(part):
            raise DataError(
                f"split {parts.rule!r} holds out nothing for the {name} part; expected people with more interactions than that. "
                "Use leave-one-out, another fraction, or validation=false."
            )
    return known


def with_validation(parts: Split, seed: int) -> Split:
    """A validation part for a split that has none: everybody's newest training interaction, or one at random."""
    train, held = _carve(parts.train, "leave-one-out", 0.0, seed, "validation")
    if not len(held):
        raise DataError(
            "nobody has two training interactions; expected some for a validation part. Set validation=false."
        )
    return replace(parts, train=train, validation=held)


def future_share(parts: Split) -> float | None:
    """Global-time leakage: the share of the training data that is newer than a test interaction, on average.

    Per-user splits let a model learn from what others did after the moment it is tested on.
    """
    if parts.train.times is None or parts.test.times is None:
        return None
    times = np.sort(parts.train.times)
    older = np.searchsorted(times, parts.test.times, side="right")
    return float(1 - older.mean() / len(times))


def own(train: Interactions, test: Interactions, validation: Interactions | None = None) -> Split:
    """A split that somebody else made: the parts are joined over one numbering of users and items."""
    parts = [p.compact() for p in (train, test, validation) if p is not None]
    whole = Interactions.from_columns(
        _texts([p.user_ids[p.users] for p in parts]),
        _texts([p.item_ids[p.items] for p in parts]),
    )
    whole = _described(whole, parts)
    renumbered = [_renumber(p, whole) for p in parts]
    return Split(
        "own", renumbered[0], renumbered[1], renumbered[2] if validation is not None else None
    )


def _texts(ids: list[Ids]) -> Ids:
    """One array of ids: as they are where all are numbers, else as texts."""
    if all(i.dtype.kind in "iu" for i in ids):
        return np.concatenate(ids)
    return np.concatenate([np.array([str(v) for v in i], dtype=object) for i in ids])


def _described(whole: Interactions, parts: list[Interactions]) -> Interactions:
    texts: dict[str, str] = {}
    categories: dict[str, tuple[str, ...]] = {}
    bodies: dict[str, str] = {}
    features: dict[str, dict[str, str]] = {}
    for p in reversed(parts):
        names = [str(i) for i in p.item_ids]
        texts |= {} if p.item_texts is None else dict(zip(names, p.item_texts, strict=True))
        categories |= (
            {} if p.item_categories is None else dict(zip(names, p.item_categories, strict=True))
        )
        bodies |= {} if p.item_bodies is None else dict(zip(names, p.item_bodies, strict=True))
        for feature, values in p.user_features.items():
            features.setdefault(feature, {}).update(zip(map(str, p.user_ids), values, strict=True))
    return whole.describe_items(texts, categories, bodies).describe_users(features)


def given(data: Interactions, users: Ints, items: Ints) -> Split:
    """Test pairs that somebody published."""
    pairs = users.astype(np.int64) * data.n_items + items
    held = contains(pairs, data.pairs())
    if missing := len(pairs) - held.sum():
        raise DataError(
            f"{missing:,} published test pairs are not in the data; expected all of them. Load it unfiltered."
        )
    return Split("published", data.select(~held), data.select(held))


def _carve(
    data: Interactions, rule: Rule, fraction: float, seed: int, purpose: str
) -> tuple[Interactions, Interactions]:
    if rule == "global-time":
        newer = _after(data, fraction)
        return data.select(~newer), data.select(newer)
    held = _held_out(data, rule, fraction, seed, purpose)
    return data.select(~held), data.select(held)


def _held_out(data: Interactions, rule: Rule, fraction: float, seed: int, purpose: str) -> Bools:
    counts = np.bincount(data.users, minlength=data.n_users)
    wanted = (
        np.ones_like(counts) if rule == "leave-one-out" else (fraction * counts).astype(np.int64)
    )
    wanted = np.minimum(wanted, counts - 1)
    order = (
        _shuffled(data, seed, purpose)
        if rule == "random" or data.times is None
        else np.arange(len(data))
    )
    return _last(data.users, order, counts, wanted)


def _last(users: Ints, order: Longs, counts: Longs, wanted: Longs) -> Bools:
    """The last `wanted` interactions of every user; `order` lists the interactions user by user."""
    ends = np.cumsum(counts)
    from_end = np.repeat(ends, counts) - np.arange(len(users))
    held = np.zeros(len(users), bool)
    held[order] = from_end <= np.repeat(wanted, counts)
    return held


def _shuffled(data: Interactions, seed: int, purpose: str) -> Longs:
    """Interactions in random order within every user, whoever else is there."""
    keys = streams.keys(seed, f"split {purpose}", last=data.users)
    return np.lexsort(
        (
            streams.mix_array(keys + data.items.astype(np.uint64) * np.uint64(streams.GOLDEN)),
            data.users,
        )
    )


def _after(data: Interactions, fraction: float) -> Bools:
    """Which interactions are newer than the moment that leaves `fraction` behind it."""
    if data.times is None:
        raise DataError(
            "split 'global-time' needs times; the data has none. Use random or leave-one-out."
        )
    return data.times > np.quantile(data.times, 1 - fraction, method="lower")


def _renumber(part: Interactions, whole: Interactions) -> Interactions:
    places = (
        {str(u): i for i, u in enumerate(whole.user_ids)},
        {str(v): i for i, v in enumerate(whole.item_ids)},
    )
    users = np.array([places[0][str(u)] for u in part.user_ids], np.int32)[part.users]
    items = np.array([places[1][str(v)] for v in part.item_ids], np.int32)[part.items]
    order = canonical_order(users, items, part.times)
    return replace(
        whole,
        users=users[order],
        items=items[order],
        ratings=None if part.ratings is None else part.ratings[order],
        times=None if part.times is None else part.times[order],
        notes=(),
    )


def _joined(parts: list[Interactions]) -> Rows:
    users = np.concatenate([p.users for p in parts])
    items = np.concatenate([p.items for p in parts])
    return Rows.build(users, items, parts[0].n_users)
