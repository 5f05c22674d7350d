"""Evaluating a model under a protocol and, always, under full ranking."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from coterie.core.progress import SILENT, Progress
from coterie.data.interactions import Interactions
from coterie.data.splits import Split
from coterie.evaluation.bias import Bias, by_category
from coterie.evaluation.candidates import Candidates
from coterie.evaluation.list_values import list_values
from coterie.evaluation.metrics import overall, per_user
from coterie.evaluation.popularity import popular_accuracy
from coterie.evaluation.protocols import Protocol
from coterie.evaluation.ranking import Ranks, rank_all, rank_candidates
from coterie.evaluation.rating_errors import RatingErrors, rating_errors
from coterie.models.recommender import Recommender
from coterie.types import Bools, Doubles, Ints, Rows


@dataclass(frozen=True, slots=True)
class Evaluation:
    metrics: dict[str, float]
    """Under the protocol."""
    full: dict[str, float]
    """Under full ranking. Errors of ratings rank nothing: with candidates they are not repeated."""
    users: Ints
    table: dict[str, Doubles]
    """Per user: the protocol's metrics; with sampled candidates also `full:...` of full ranking."""
    popular: dict[str, float] = field(default_factory=dict)
    """Accuracy of the most popular items under the protocol."""
    bias: dict[str, Bias] | None = None
    """By item category, over the lists of full ranking at the first cut-off."""


def evaluate(
    model: Recommender,
    split: Split,
    protocol: Protocol,
    candidates: Candidates | None,
    progress: Progress = SILENT,
) -> Evaluation:
    """Evaluate on the test part. Items of the training and validation parts are not recommended.

    If the test part has ratings, the model predicts ratings, and their errors are added.
    """
    k = max(protocol.cutoffs)
    popularity = np.bincount(split.train.items, minlength=split.train.n_items)
    wanted = split.test.rows
    with progress.task("Evaluating", int(np.count_nonzero(wanted.counts))) as advance:
        whole = rank_all(model, split.seen(), wanted, split.test.n_items, k, advance)
    full_table = per_user(whole, protocol.cutoffs, protocol.named)
    full_table |= list_values(protocol, whole, wanted, split.train)
    full = (
        means(full_table)
        | means_of_served(full_table, whole.served)
        | overall(whole, protocol.cutoffs, popularity, split.train.n_users)
    )
    bias = _bias(split.train, whole, protocol)
    errors = _rating_errors(model, split.test)
    popular = popular_accuracy(split, protocol, candidates)
    if candidates is None:
        both = full | errors.metrics
        return Evaluation(both, both, whole.users, full_table | errors.table, popular, bias)
    sampled = rank_candidates(model, candidates.by_user(), k)
    table = per_user(sampled, protocol.cutoffs, protocol.named)
    table |= list_values(protocol, sampled, wanted, split.train, among_candidates=True)
    metrics = means(table) | means_of_served(table, sampled.served) | errors.metrics
    both_tables = table | {f"full:{name}": values for name, values in full_table.items()}
    return Evaluation(metrics, full, whole.users, both_tables | errors.table, popular, bias)


def quick(
    model: Recommender,
    protocol: Protocol,
    seen: Rows,
    held: Interactions,
    candidates: Candidates | None,
) -> dict[str, float]:
    """The protocol's accuracy and the errors of ratings, for the curve during training."""
    table = accuracy_per_user(model, protocol, seen, held.rows, held.n_items, candidates)
    return means(table) | _rating_errors(model, held).metrics


def accuracy_per_user(
    model: Recommender,
    protocol: Protocol,
    seen: Rows,
    wanted: Rows,
    n_items: int,
    candidates: Candidates | None,
) -> dict[str, Doubles]:
    """Accuracy of every tested user, ranked among the candidates or, without them, all items."""
    k = max(protocol.cutoffs)
    if candidates is None:
        ranks = rank_all(model, seen, wanted, n_items, k)
    else:
        ranks = rank_candidates(model, candidates, k)
    return per_user(ranks, protocol.cutoffs, protocol.named)


def _rating_errors(model: Recommender, held: Interactions) -> RatingErrors:
    """Errors of predicted ratings; none with implicit feedback."""
    return RatingErrors({}, {}) if held.ratings is None else rating_errors(model, held)


def means(table: dict[str, Doubles]) -> dict[str, float]:
    return {name: float(values.mean()) for name, values in table.items()}


def means_of_served(table: dict[str, Doubles], served: Bools) -> dict[str, float]:
    """Means over served users, as `served:...`; nothing if the model serves all users or none."""
    if served.all() or not served.any():
        return {}
    return {f"served:{name}": float(values[served].mean()) for name, values in table.items()}


def _bias(train: Interactions, whole: Ranks, protocol: Protocol) -> dict[str, Bias] | None:
    if not protocol.category_bias or train.item_categories is None:
        return None
    listed = whole.top[:, : protocol.cutoffs[0]]
    return by_category(train.items, listed[listed >= 0], train.item_categories)
