"""Most popular: items by their number of training users, the same list for everybody less what they have."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from coterie.algorithm import Algorithm, Context
from coterie.models.popular import ItemCounts
from coterie.settings import Settings
from coterie.types import Training


class Popular(Settings):
    pass


def train(training: Training, settings: Popular, context: Context) -> Iterator[ItemCounts]:
    yield ItemCounts(np.bincount(training.positives.items, minlength=training.n_items).astype(np.float32))


ALGORITHM = Algorithm("items by popularity", Popular, train, steps=lambda settings: 1)
