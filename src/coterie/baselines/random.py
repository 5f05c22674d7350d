"""Random: a random order of the unseen items, the lower bound of every comparison."""

from __future__ import annotations

from coterie.algorithms.algorithm import Algorithm, at_once
from coterie.core.settings import Settings
from coterie.data.training_set import TrainingSet
from coterie.federated.trainer import Context
from coterie.models.random import RandomScores


class Random(Settings):
    pass


def solve(training: TrainingSet, settings: Random, context: Context) -> RandomScores:
    return RandomScores(context.seed, training.n_items)


ALGORITHM = Algorithm(
    "random order of the unseen items",
    Random,
    at_once(solve),
    state=RandomScores,
    steps=lambda settings: 1,
)
