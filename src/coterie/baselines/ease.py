"""EASE: a linear item-to-item model in closed form, and one of the strongest simple baselines.

Steck. Embarrassingly shallow autoencoders for sparse data. WWW 2019.

`algorithms/local/cooccurrence.py` has the closed form.
"""

from __future__ import annotations

from coterie.algorithms.algorithm import Algorithm, at_once, score_history
from coterie.algorithms.local.cooccurrence import (
    ItemPairs,
    fixed_point,
    gigabytes,
    item_weights,
    sum_pairs,
    weights,
)
from coterie.data.training_set import TrainingSet
from coterie.errors import ConfigError
from coterie.federated.trainer import Context
from coterie.models.linear import ItemWeights
from coterie.types import Floats


class EASE(ItemPairs):
    """Settings of EASE: those of the closed form."""


def train(training: TrainingSet, settings: EASE, context: Context) -> ItemWeights:
    needed = gigabytes(training.n_items)
    if needed > settings.max_memory:
        raise ConfigError(
            f"EASE needs about {needed:.1f} GiB for {training.n_items:,} items; "
            f"max_memory allows {settings.max_memory:g}. "
            "Raise it with --set max_memory=GIB, or filter items with --set core=5."
        )
    return ItemWeights(
        solve(training, settings), training.positives.offsets, training.positives.items
    )


def solve(training: TrainingSet, settings: EASE) -> Floats:
    """(items, items) the weights B."""
    histories = training.positives
    exponent = settings.length_exponent
    scale = fixed_point(training.n_users, training.n_items, exponent).scale
    pairs = sum_pairs(histories, training.n_items, weights(histories.counts, exponent, scale))
    return item_weights(pairs, training.n_items, scale, settings)


ALGORITHM = Algorithm(
    "closed-form linear item-to-item model",
    EASE,
    at_once(train),
    state=ItemWeights,
    steps=lambda settings: 1,
    kernels=("cooccurrence",),
    paper="Steck 2019",
    score_new_user=score_history,
    item_based=True,
)
