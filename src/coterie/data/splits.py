"""Splits into training, validation and test parts over the same users and items.

leave-one-out   holds out the newest interaction of every user; without times, a random one
temporal        the newest int(fraction * n) of every user; without times, as many random ones
global-time     the newest `fraction` of all interactions, after one moment; new users are dropped
random          int(fraction * n) of every user, at random
k-fold          one of k random parts of every user; over the k folds, every interaction is tested
                once, but for those of users with a single one
own             parts given as separate files
given           parts given as data frames or interactions, from Python

Equal times are ordered by a fixed hash (see `Interactions`). Every user keeps at least one training
interaction, so that a user with a single item is not tested. The validation part is held out of the
rest by the same rule.
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

Rule = Literal["leave-one-out", "temporal", "global-time", "random", "k-fold", "own", "given"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """Which of several random held-out parts a split has."""

    folds: int = 0
    """Number of folds of k-fold."""
    fold: int = 0
    """The fold that is held out."""
    repeat: int = 0
    """Number of the repetition: another number gives other parts for the same seed."""

    def purpose(self, part: str) -> str:
        """The name of the random stream that a part is drawn from."""
        return f"{part} repeat {self.repeat}" if self.repeat else part


ONCE = Draw()


@dataclass(frozen=True, slots=True)
class Split:
    rule: str
    train: Interactions
    test: Interactions
    validation: Interactions | None = None

    def training(self, as_published: bool = False) -> TrainingSet:
        """The input of an algorithm.

        With `as_published`, negatives also exclude held-out items: the leak of published code.
        """
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
        """Training and validation items, which recommendations exclude in the test evaluation."""
        parts = [self.train] if self.validation is None else [self.train, self.validation]
        return _joined(parts)

    def for_tuning(self) -> Split:
        """The split without its test part: the validation part takes its place."""
        if self.validation is None:
            raise DataError(
                "this split has no validation part; expected one for tuning and early stopping. "
                "Set validation=true."
            )
        return Split(self.rule, self.train, self.validation)

    def without_ratings(self) -> Split:
        """The split for algorithms that learn from implicit feedback."""
        validation = None if self.validation is None else self.validation.without_ratings()
        train = self.train.without_ratings()
        return replace(self, train=train, test=self.test.without_ratings(), validation=validation)

    def everything(self) -> Rows:
        """All items of every user, which sampled candidates exclude."""
        parts = (self.train, self.validation, self.test)
        return _joined([part for part in parts if part is not None])


def split(
    data: Interactions,
    rule: Rule,
    fraction: float,
    seed: int,
    validation: bool = False,
    draw: Draw = ONCE,
) -> Split:
    """Hold out a test part and, if wanted, a validation part from the rest by the same rule.

    With k-fold, the validation part is as large as a fold and drawn at random from the rest.
    """
    if rule == "k-fold":
        in_fold = folds_of(data, seed, draw) == draw.fold
        train = data.select(~in_fold)
        test = data.select(in_fold)
        rule_of_rest: Rule = "random"
        fraction = 1 / draw.folds
    else:
        train, test = _hold_out(data, rule, fraction, seed, draw.purpose("test"))
        rule_of_rest = rule
    held: Interactions | None = None
    if validation:
        purpose = draw.purpose("validation")
        train, held = _hold_out(train, rule_of_rest, fraction, seed, purpose)
    return without_new_users(Split(rule, train, test, held))


def folds_of(data: Interactions, seed: int, draw: Draw) -> Longs:
    """The fold that tests every interaction; -1 for the only interaction of a user.

    A user's interactions are shuffled and dealt to the folds in turn, from a random fold on, so
    that folds have equal sizes over all users. A user's folds do not depend on other users.
    """
    counts = np.bincount(data.users, minlength=data.n_users)
    starts = np.cumsum(counts) - counts
    position = np.empty(len(data), np.int64)
    order = _shuffled(data, seed, draw.purpose("folds"))
    position[order] = np.arange(len(data)) - np.repeat(starts, counts)
    users = np.arange(data.n_users)
    keys = streams.keys(seed, f"split {draw.purpose('first fold')}", last=users)
    first = (streams.mix_array(keys) % np.uint64(draw.folds)).astype(np.int64)
    folds = (position + first[data.users]) % draw.folds
    return np.where(counts[data.users] > 1, folds, -1)


def without_new_users(parts: Split) -> Split:
    """Drop users without training interactions from the held-out parts."""
    trained = np.bincount(parts.train.users, minlength=parts.train.n_users) > 0
    test = parts.test.select(trained[parts.test.users])
    validation = parts.validation
    if validation is not None:
        validation = validation.select(trained[validation.users])
    for name, part in (("test", test), ("validation", validation)):
        if part is not None and not len(part):
            raise DataError(
                f"split {parts.rule!r} holds out nothing for the {name} part; "
                "expected users with more interactions. "
                "Use leave-one-out, another fraction, or validation=false."
            )
    return replace(parts, test=test, validation=validation)


def with_validation(parts: Split, seed: int) -> Split:
    """Add a validation part: every user's newest training interaction, or a random one."""
    train, held = _hold_out(parts.train, "leave-one-out", 0.0, seed, "validation")
    if not len(held):
        raise DataError(
            "no user has two training interactions; a validation part needs some. "
            "Set validation=false."
        )
    return replace(parts, train=train, validation=held)


def future_share(parts: Split) -> float | None:
    """Global-time leakage: the average share of training data newer than a test interaction.

    With per-user splits, a model learns from interactions of other users after the tested moment.
    """
    if parts.train.times is None or parts.test.times is None:
        return None
    times = np.sort(parts.train.times)
    older = np.searchsorted(times, parts.test.times, side="right")
    return float(1 - older.mean() / len(times))


def from_parts(
    train: Interactions, test: Interactions, validation: Interactions | None = None
) -> Split:
    """A split from given parts, with one common index of users and items."""
    parts = [p.compact() for p in (train, test, validation) if p is not None]
    whole = Interactions.from_columns(
        _joined_ids([p.user_ids[p.users] for p in parts]),
        _joined_ids([p.item_ids[p.items] for p in parts]),
    )
    whole = _described(whole, parts)
    renumbered = [_renumber(p, whole) for p in parts]
    held = renumbered[2] if validation is not None else None
    return Split("own", renumbered[0], renumbered[1], held)


def _joined_ids(ids: list[Ids]) -> Ids:
    """One array of ids: integers if all are integers, else texts."""
    if all(i.dtype.kind in "iu" for i in ids):
        return np.concatenate(ids)
    return np.concatenate([np.array([str(v) for v in i], dtype=object) for i in ids])


def _described(whole: Interactions, parts: list[Interactions]) -> Interactions:
    """Attach the descriptions of all parts; the first part that has a value wins."""
    texts: dict[str, str] = {}
    categories: dict[str, tuple[str, ...]] = {}
    bodies: dict[str, str] = {}
    features: dict[str, dict[str, str]] = {}
    for part in reversed(parts):
        names = [str(i) for i in part.item_ids]
        if part.item_texts is not None:
            texts |= dict(zip(names, part.item_texts, strict=True))
        if part.item_categories is not None:
            categories |= dict(zip(names, part.item_categories, strict=True))
        if part.item_bodies is not None:
            bodies |= dict(zip(names, part.item_bodies, strict=True))
        users = [str(u) for u in part.user_ids]
        for feature, values in part.user_features.items():
            features.setdefault(feature, {}).update(zip(users, values, strict=True))
    return whole.describe_items(texts, categories, bodies).describe_users(features)


def from_test_pairs(data: Interactions, users: Ints, items: Ints) -> Split:
    """A split whose test part is the given pairs, such as published ones."""
    pairs = users.astype(np.int64) * data.n_items + items
    held = contains(pairs, data.pairs())
    if missing := len(pairs) - held.sum():
        raise DataError(
            f"{missing:,} published test pairs are not in the data; expected all of them. "
            "Load it unfiltered."
        )
    return Split("published", data.select(~held), data.select(held))


def _hold_out(
    data: Interactions, rule: Rule, fraction: float, seed: int, purpose: str
) -> tuple[Interactions, Interactions]:
    """(the rest, the part held out)."""
    if rule == "global-time":
        held = _after(data, fraction)
    else:
        held = _held_out_per_user(data, rule, fraction, seed, purpose)
    return data.select(~held), data.select(held)


def _held_out_per_user(
    data: Interactions, rule: Rule, fraction: float, seed: int, purpose: str
) -> Bools:
    counts = np.bincount(data.users, minlength=data.n_users)
    if rule == "leave-one-out":
        wanted = np.ones_like(counts)
    else:
        wanted = (fraction * counts).astype(np.int64)
    wanted = np.minimum(wanted, counts - 1)
    order = np.arange(len(data))
    if rule == "random" or data.times is None:
        order = _shuffled(data, seed, purpose)
    return _last(data.users, order, counts, wanted)


def _last(users: Ints, order: Longs, counts: Longs, wanted: Longs) -> Bools:
    """Mask of every user's last `wanted` interactions; `order` lists interactions by user."""
    ends = np.cumsum(counts)
    from_end = np.repeat(ends, counts) - np.arange(len(users))
    held = np.zeros(len(users), bool)
    held[order] = from_end <= np.repeat(wanted, counts)
    return held


def _shuffled(data: Interactions, seed: int, purpose: str) -> Longs:
    """Interactions by user, in random order within a user, independent of the other users."""
    keys = streams.keys(seed, f"split {purpose}", last=data.users)
    values = streams.mix_array(keys + data.items.astype(np.uint64) * np.uint64(streams.GOLDEN))
    return np.lexsort((values, data.users))


def _after(data: Interactions, fraction: float) -> Bools:
    """Mask of the newest `fraction` of the interactions."""
    if data.times is None:
        raise DataError(
            "split 'global-time' needs times; the data has none. Use random or leave-one-out."
        )
    return data.times > np.quantile(data.times, 1 - fraction, method="lower")


def _renumber(part: Interactions, whole: Interactions) -> Interactions:
    user_index = {str(u): i for i, u in enumerate(whole.user_ids)}
    item_index = {str(v): i for i, v in enumerate(whole.item_ids)}
    users = np.array([user_index[str(u)] for u in part.user_ids], np.int32)[part.users]
    items = np.array([item_index[str(v)] for v in part.item_ids], np.int32)[part.items]
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
