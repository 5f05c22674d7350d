"""Errors of predicted ratings: RMSE and MAE, for explicit feedback.

The error of a held-out interaction is the model's score minus the rating, in the data's own scale:
algorithms with `explicit` minimise the squared error on ratings as they are, so their score is the
predicted rating. Predictions are not clipped to the range of the ratings.

RMSE = sqrt(mean of squared errors)     MAE = mean of absolute errors

Both are means over interactions, so a user with many held-out ratings counts more than one with
few. Per user, the means are over the user's own interactions; RMSE is therefore not the mean of the
users' RMSE.

Koren. Factor in the neighbors: scalable and accurate collaborative filtering. TKDD 2010: biases as
a reference.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie.data.interactions import Interactions
from coterie.errors import ConfigError, DataError
from coterie.evaluation.metric_names import RATING_ERRORS
from coterie.evaluation.protocols import Protocol
from coterie.evaluation.ranking import finite
from coterie.models.recommender import Recommender
from coterie.types import Doubles, Ints, Longs

BLOCK = 1 << 12
"""Interactions that are scored at a time."""
ITEM_DAMPING = 25.0
USER_DAMPING = 10.0
"""Ratings at the mean that every item and every user is given, as in Koren (2010)."""


@dataclass(frozen=True, slots=True)
class RatingErrors:
    metrics: dict[str, float]
    """Over all interactions."""
    table: dict[str, Doubles]
    """One value per user with a held-out interaction, in the order of the users."""


def rating_errors(model: Recommender, held: Interactions) -> RatingErrors:
    """The errors of a model on held-out interactions, which must have ratings."""
    _check_served(model, held.users)
    return summarise(held.users, predictions(model, held) - ratings_of(held))


def predictions(model: Recommender, held: Interactions) -> Doubles:
    """(interactions,) the scores of exactly the held-out pairs."""
    blocks = [slice(first, first + BLOCK) for first in range(0, len(held), BLOCK)]
    # A row per interaction: with a row per user, the user with most ratings would widen all rows.
    scores = [model.score(held.users[block], held.items[block, None])[:, 0] for block in blocks]
    return finite(np.concatenate(scores)).astype(np.float64)


def summarise(users: Ints, errors: Doubles) -> RatingErrors:
    """RMSE and MAE over interactions, and over the interactions of every user."""
    squared = errors**2
    absolute = np.abs(errors)
    counts = np.bincount(users)
    tested = np.flatnonzero(counts)
    return RatingErrors(
        metrics={"RMSE": float(np.sqrt(squared.mean())), "MAE": float(absolute.mean())},
        table={
            "RMSE": np.sqrt(_means(users, squared, counts)[tested]),
            "MAE": _means(users, absolute, counts)[tested],
        },
    )


def reference_errors(train: Interactions, held: Interactions) -> dict[str, dict[str, float]]:
    """What predictions without a model give, by name: the mean rating, and mean plus biases.

    Biases (Koren 2010): b_i = sum_u (r_ui - mu) / (25 + n_i), then
    b_u = sum_i (r_ui - mu - b_i) / (10 + n_u), over the training part.
    """
    ratings = ratings_of(train)
    mu = ratings.mean()
    of_items = _damped_means(train.items, ratings - mu, ITEM_DAMPING, train.n_items)
    rest = ratings - mu - of_items[train.items]
    of_users = _damped_means(train.users, rest, USER_DAMPING, train.n_users)
    predicted = {
        "mean": np.full(len(held), mu),
        "biases": mu + of_items[held.items] + of_users[held.users],
    }
    return {
        name: summarise(held.users, values - ratings_of(held)).metrics
        for name, values in predicted.items()
    }


def check_ratings(protocol: Protocol, predicted: bool) -> None:
    """Raise if the protocol shows errors of ratings but no ratings are predicted."""
    errors = [name for name in protocol.named if name in RATING_ERRORS]
    if errors and not predicted:
        key = "headline" if errors[0] in protocol.headline else "metrics"
        raise ConfigError(
            f"setting {key!r} is {errors[0]!r}, an error of predicted ratings, but with "
            "feedback=implicit no ratings are predicted; expected feedback=explicit. "
            "Set feedback=explicit, or another metric such as NDCG."
        )


def ratings_of(data: Interactions) -> Doubles:
    if data.ratings is None:
        raise DataError(
            "the interactions have no ratings; expected one each for RMSE and MAE. "
            "Load the data with feedback=explicit."
        )
    return data.ratings.astype(np.float64)


def _check_served(model: Recommender, users: Ints) -> None:
    """A user without predictions would make the error look better than it is."""
    unserved = users[~model.serves(users)]
    if len(unserved):
        raise DataError(
            f"the model predicts no ratings for {len(np.unique(unserved)):,} tested users; "
            "expected predictions for all of them. Use a model that serves every user."
        )


def _means(groups: Ints, values: Doubles, counts: Longs) -> Doubles:
    """The mean of every group; 0 for an empty one."""
    means: Doubles = np.bincount(groups, values) / np.maximum(counts, 1)
    return means


def _damped_means(groups: Ints, values: Doubles, damping: float, n_groups: int) -> Doubles:
    """The mean of every group, as if it had `damping` more values of zero."""
    counts = np.bincount(groups, minlength=n_groups)
    means: Doubles = np.bincount(groups, values, n_groups) / (counts + damping)
    return means
