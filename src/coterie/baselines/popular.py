"""Most popular: items by their number of training users, the same list for everybody less what they have."""

from __future__ import annotations

import numpy as np

from coterie.algorithm import Algorithm, Context, at_once
from coterie.models.popular import ItemCounts
from coterie.settings import Settings
from coterie.types import Training


class Popular(Settings):
    pass


def solve(training: Training, settings: Popular, context: Context) -> ItemCounts:
    return ItemCounts(np.bincount(training.positives.items, minlength=training.n_items).astype(np.float32))


ALGORITHM = Algorithm("items by popularity", Popular, at_once(solve), state=ItemCounts, steps=lambda settings: 1)
