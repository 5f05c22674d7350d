"""Most popular: items by their number of training users, the same for every user."""

from __future__ import annotations

import numpy as np

from coterie.algorithms.algorithm import Algorithm, at_once, score_history
from coterie.core.settings import Settings
from coterie.data.training_set import TrainingSet
from coterie.federated.trainer import Context
from coterie.models.popular import ItemCounts


class Popular(Settings):
    pass


def solve(training: TrainingSet, settings: Popular, context: Context) -> ItemCounts:
    counts = np.bincount(training.positives.items, minlength=training.n_items)
    return ItemCounts(counts.astype(np.float32))


ALGORITHM = Algorithm(
    "items by popularity",
    Popular,
    at_once(solve),
    state=ItemCounts,
    steps=lambda settings: 1,
    score_new_user=score_history,
)
