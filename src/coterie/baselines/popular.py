"""Most popular: items by their number of training users, the same for every user.

Under a privacy budget a user of n items counts as 1 / sqrt(n) of a user for each, so that no user
adds more than a vector of norm 1 to the counts, and noise is added to them once.
"""

from __future__ import annotations

import numpy as np

from coterie.algorithms.algorithm import Algorithm, at_once, score_history
from coterie.algorithms.private_pairs import item_weights_of_users, weighted_counts
from coterie.core import streams
from coterie.data.training_set import TrainingSet
from coterie.federated.privacy.discrete_gaussian import seeded_words, system_words
from coterie.federated.privacy.noise import central_noise
from coterie.federated.privacy.plan import NoisePlan, central_plan
from coterie.federated.privacy.settings import PrivacySettings, noise_kernels
from coterie.federated.trainer import Context
from coterie.models.popular import ItemCounts
from coterie.types import Longs, Rows


class Popular(PrivacySettings):
    """Only those of differential privacy."""


def solve(training: TrainingSet, settings: Popular, context: Context) -> ItemCounts:
    if settings.epsilon is None:
        counts = np.bincount(training.positives.items, minlength=training.n_items)
        return ItemCounts(counts.astype(np.float32))
    plan = central_plan(settings, training.n_users, releases=1)
    noisy = private_counts(training.positives, training.n_items, plan)
    words = system_words()
    if settings.noise_source == "seeded":
        words = seeded_words(streams.at(context.seed, "privacy noise", 0, 0))
    noisy += central_noise(plan, len(noisy), words)
    return ItemCounts((noisy / plan.sensitivity).astype(np.float32))


def private_counts(histories: Rows, n_items: int, plan: NoisePlan) -> Longs:
    """(items,) what users add to the counts, in grid units."""
    weight = item_weights_of_users(histories.counts, int(plan.sensitivity))
    return weighted_counts(histories, n_items, weight)


ALGORITHM = Algorithm(
    "items by popularity",
    Popular,
    at_once(solve),
    state=ItemCounts,
    steps=lambda settings: 1,
    kernels=noise_kernels,
    score_new_user=score_history,
)
