"""A learner is a value: start values, local training, and the recommender that parameters make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from coterie.algorithms.local.samples import Samples
from coterie.core.records import Record
from coterie.federated.federation import (
    AnyWorld,
)
from coterie.models.recommender import Recommender
from coterie.types import Floats, Ints


@dataclass(frozen=True, slots=True)
class Parameters(Record):
    """A model's parameters as every federated algorithm sees them: w[U], w[I] and w[N] of FedFast's Section 3.2."""

    user_rows: Floats  # (users, width)
    item_rows: Floats  # (items, width)
    dense: Floats  # (size,)

    def with_moments(self) -> Parameters:
        """Each part three times as wide and one more: room for both of Adam's moments and their age behind the values."""
        return Parameters(*(_widened(getattr(self, f.name)) for f in fields(self)))

    def without_moments(self) -> Parameters:
        return Parameters(*(values_of(getattr(self, f.name)) for f in fields(self)))


def values_of(part: Floats) -> Floats:
    """Parameters with moments, without them."""
    return np.ascontiguousarray(part[..., : part.shape[-1] // 3])


def _widened(part: Floats) -> Floats:
    return np.concatenate(
        [part, np.zeros((*part.shape[:-1], 2 * part.shape[-1] + 1), np.float32)], axis=-1
    )


def embeddings(settings: Any, user_rows: Floats) -> Floats:
    """What similar people have alike."""
    return values_of(user_rows) if settings.moments == "averaged" else user_rows


class Changes(NamedTuple):
    """What users changed, in fixed point."""

    user_rows: Ints  # (users of the cohort, width)
    item_rows: Ints  # (rows of the samples, width)
    dense: Ints  # (users of the cohort, size)

    @classmethod
    def room_for(cls, given: Parameters, samples: Samples) -> Changes:
        """Arrays for a kernel to fill."""
        n, width = given.user_rows.shape
        shapes = (n, width), (len(samples.items), width), (n, len(given.dense))
        return cls(*(np.empty(shape, np.int32) for shape in shapes))


@dataclass(frozen=True, slots=True)
class Learner:
    start: Callable[[AnyWorld], Parameters]
    train: Callable[[AnyWorld, Parameters, Samples, bool], Changes]
    """(world, the cohort's user rows with all item rows, samples, whether targets are ratings)"""
    model: Callable[[AnyWorld, Parameters], Recommender]
    kernels: Callable[[Any], tuple[str, ...]]
    """settings -> the kernel families it needs"""
