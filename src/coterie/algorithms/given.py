"""Own algorithms as objects: what a Python program may pass instead of an algorithm's name.

Algorithm      a complete algorithm, centralised or federated, as packages add it
a function     fit(training, seed) -> Recommender, for centralised training in one step
a Recommender  a model that is already trained; it is only evaluated
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from coterie.algorithms.algorithm import Algorithm, at_once
from coterie.algorithms.registry import ALGORITHMS
from coterie.core.settings import Settings
from coterie.data.training_set import TrainingSet
from coterie.errors import ConfigError, ContractError
from coterie.federated.trainer import Context
from coterie.models.recommender import Recommender


class Fit(Protocol):
    """Centralised training in one step."""

    def __call__(self, training: TrainingSet, seed: int) -> Recommender: ...


OwnAlgorithm: TypeAlias = Algorithm | Recommender | Fit


class NoSettings(Settings):
    """A function or a trained model has no settings of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedAlgorithm:
    name: str
    algorithm: Algorithm


def named(value: OwnAlgorithm, name: str | None = None) -> NamedAlgorithm:
    """An own algorithm under the name that results show."""
    if isinstance(value, Algorithm):
        return NamedAlgorithm(name=_name(name, value.settings.__name__.lower()), algorithm=value)
    if isinstance(value, Recommender):
        return NamedAlgorithm(name=_name(name, value.kind), algorithm=_trained(value))
    if not callable(value) or isinstance(value, type):
        raise ConfigError(
            f"algorithm is {value!r}; expected a name (coterie algorithms), an Algorithm, a "
            "function fit(training, seed), or a trained Recommender. Pass one of them."
        )
    return NamedAlgorithm(
        name=_name(name, str(getattr(value, "__name__", "own"))), algorithm=_fitted_by(value)
    )


def _name(chosen: str | None, usual: str) -> str:
    if chosen is None:
        usual = re.sub(r"\W+", "", usual) or "own"
        return f"own-{usual}" if usual in ALGORITHMS else usual
    if not re.fullmatch(r"[A-Za-z][\w.+-]*", chosen) or chosen in ALGORITHMS:
        raise ConfigError(
            f"name is {chosen!r}; expected letters, digits and + - . _ from a letter on, and no "
            "name of Coterie's own algorithms. Choose another."
        )
    return chosen


def _fitted_by(fit: Fit) -> Algorithm:
    def solve(training: TrainingSet, settings: NoSettings, context: Context) -> Recommender:
        return _checked(fit(training, context.seed), training)

    return Algorithm(
        "own function", NoSettings, at_once(solve), state=Recommender, steps=lambda settings: 1
    )


def _trained(model: Recommender) -> Algorithm:
    def solve(training: TrainingSet, settings: NoSettings, context: Context) -> Recommender:
        return _checked(model, training)

    return Algorithm(
        "own model", NoSettings, at_once(solve), state=type(model), steps=lambda settings: 1
    )


def _checked(model: object, training: TrainingSet) -> Recommender:
    """A model that scores all items for the users of the training set."""
    if not isinstance(model, Recommender):
        raise ContractError(
            f"fit returned a {type(model).__name__}; expected a Recommender, which has "
            "score(users, items). See the docs: your own model."
        )
    first = np.zeros(1, np.int32)
    shape = np.shape(model.score(first))
    if shape != (1, training.n_items):
        raise ContractError(
            f"score of {type(model).__name__} returned the shape {shape} for one user; expected "
            f"{(1, training.n_items)}, a score for every item. Use the indices of the training set."
        )
    return model
