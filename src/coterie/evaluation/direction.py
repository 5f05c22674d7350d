"""The better of two values of a metric: the lower one of an error, the higher one of all others.

Early stopping, targets, tuning and comparisons ask here, so that none has its own list of errors.
"""

from __future__ import annotations

from coterie.evaluation.metric_names import RATING_ERRORS, list_metric


def lower_is_better(metric: str) -> bool:
    """Whether low values are good; the name may have a prefix (full:RMSE) or a cut-off."""
    name = metric.rpartition(":")[2].partition("@")[0]
    of_lists = list_metric(name)
    return name in RATING_ERRORS if of_lists is None else of_lists.lower_is_better


def is_better(metric: str, one: float, other: float) -> bool:
    """Whether the first of two values is better; equal values are not."""
    return one < other if lower_is_better(metric) else one > other


def reaches(metric: str, value: float, target: float) -> bool:
    """Whether a value is at least as good as a target."""
    return not is_better(metric, target, value)


def loss(metric: str, value: float) -> float:
    """The value as something to minimise, for sorting: the best is the smallest."""
    return value if lower_is_better(metric) else -value
