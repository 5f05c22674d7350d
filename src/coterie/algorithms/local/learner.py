"""A learner is a record of functions: initial parameters, local training, and the recommender."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import ClassVar, NamedTuple

import numpy as np

from coterie.algorithms.local.objective import LocalObjective
from coterie.algorithms.local.samples import Samples
from coterie.algorithms.local.settings import Federated
from coterie.core.records import Record
from coterie.federated.federation import (
    AnyWorld,
)
from coterie.models.recommender import Recommender
from coterie.types import Floats, Ints, Longs


@dataclass(frozen=True, slots=True)
class Parameters(Record):
    """A model's parameters: w[U], w[I] and w[N] of FedFast's Section 3.2."""

    of_users: ClassVar[tuple[str, ...]] = ("user_rows",)
    user_rows: Floats  # (users, width)
    item_rows: Floats  # (items, width)
    dense: Floats  # (size,)

    def with_moments(self) -> Parameters:
        """Append Adam's two moments and their age, all zero: a width of d becomes 3 d + 1."""
        return Parameters(*(_widened(getattr(self, f.name)) for f in fields(self)))

    def without_moments(self) -> Parameters:
        """The inverse of `with_moments`."""
        return Parameters(*(values_of(getattr(self, f.name)) for f in fields(self)))


def values_of(part: Floats) -> Floats:
    """The values of an array that also holds moments: the first d of 3 d + 1 columns."""
    return np.ascontiguousarray(part[..., : n_values(part.shape[-1])])


def n_values(width: int) -> int:
    """How many columns of an array with moments are values: d of 3 d + 1."""
    return width // 3


def _widened(part: Floats) -> Floats:
    moments = np.zeros((*part.shape[:-1], 2 * part.shape[-1] + 1), np.float32)
    return np.concatenate([part, moments], axis=-1)


def embeddings(settings: Federated, user_rows: Floats) -> Floats:
    """User rows as clustering compares them: without Adam's moments."""
    return values_of(user_rows) if settings.moments == "averaged" else user_rows


class Changes(NamedTuple):
    """The changes that a cohort made to its copies, in fixed point."""

    user_rows: Ints  # (cohort, width)
    item_rows: Ints  # (rows of the samples, width)
    dense: Ints  # (cohort, size)

    @classmethod
    def room_for(cls, given: Parameters, samples: Samples) -> Changes:
        """Uninitialised arrays for a kernel to fill."""
        n, width = given.user_rows.shape
        shapes = (n, width), (len(samples.items), width), (n, len(given.dense))
        return cls(*(np.empty(shape, np.int32) for shape in shapes))


class SummedChanges(NamedTuple):
    """The changes of a cohort, those of item rows summed over users times their samples."""

    user_rows: Ints  # (cohort, width)
    items: Longs  # (items, width)
    dense: Ints  # (cohort, size)


@dataclass(frozen=True, slots=True)
class Learner:
    """What a federated algorithm needs to know of a model."""

    start: Callable[[AnyWorld], Parameters]
    train: Callable[[AnyWorld, Parameters, Samples, bool, LocalObjective | None], Changes]
    """(world, parameters with the cohort's user rows, samples, whether targets are ratings, an
    extra term of the local loss) -> the changes. An extra term trains with PyTorch."""
    model: Callable[[AnyWorld, Parameters], Recommender]
    kernels: Callable[[Federated], tuple[str, ...]]
    """settings -> the kernel families that training needs"""
    sums_up: Callable[[Federated], bool] = lambda settings: False
    """settings -> whether `train_and_sum` applies"""
    train_and_sum: Callable[[AnyWorld, Parameters, Samples, bool], SummedChanges | None] = (
        lambda world, given, samples, rated: None
    )
    """`train` and the sum in one pass; None where validation would refuse an update"""
