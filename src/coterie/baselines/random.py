"""Random: every unseen item is as good as any other. The floor of every table."""

from __future__ import annotations

from collections.abc import Iterator

from coterie.algorithm import Algorithm, Context
from coterie.models.random import RandomScores
from coterie.settings import Settings
from coterie.types import Training


class Random(Settings):
    pass


def train(training: Training, settings: Random, context: Context) -> Iterator[RandomScores]:
    yield RandomScores(context.seed, training.n_items)


ALGORITHM = Algorithm("random order of the unseen items", Random, train, steps=lambda settings: 1)
