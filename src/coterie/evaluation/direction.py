"""The better of two values of a metric: the lower one of an error, the higher one of all others.

Early stopping, targets, tuning and comparisons ask here, so that none has its own list of errors.
"""

from __future__ import annotations

from coterie.evaluation.protocols import RATING_ERRORS


def lower_is_better(metric: str) -> bool:
    """Whether a metric is an error; the name may have a prefix (full:RMSE) or a cut-off."""
    return metric.rpartition(":")[2].partition("@")[0] in RATING_ERRORS


def is_better(metric: str, one: float, other: float) -> bool:
    """Whether the first of two values is better; equal values are not."""
    return one < other if lower_is_better(metric) else one > other


def reaches(metric: str, value: float, target: float) -> bool:
    """Whether a value is at least as good as a target."""
    return not is_better(metric, target, value)


def loss(metric: str, value: float) -> float:
    """The value as something to minimise, for sorting: the best is the smallest."""
    return value if lower_is_better(metric) else -value
