"""Random: every unseen item is as good as any other. The floor of every table."""

from __future__ import annotations

from coterie.algorithm import Algorithm, Context, at_once
from coterie.models.random import RandomScores
from coterie.settings import Settings
from coterie.types import Training


class Random(Settings):
    pass


def solve(training: Training, settings: Random, context: Context) -> RandomScores:
    return RandomScores(context.seed, training.n_items)


ALGORITHM = Algorithm(
    "random order of the unseen items", Random, at_once(solve), state=RandomScores, steps=lambda settings: 1
)
