"""What methods are compared with: the ranking by popularity, and the best centralised method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from coterie.report.metric_words import best_of

TRIVIAL = ("random", "popular")
"""Baselines that learn nothing about single users."""


class Compared(NamedTuple):
    """A method with its value of the headline metric."""

    label: str
    algorithm: str
    federated: bool
    value: float
    deviation: float = 0.0
    """Over seeds."""


def popular_level(methods: Sequence[Compared]) -> float | None:
    """The value of the ranking by popularity, if it is compared."""
    return next((one.value for one in methods if one.algorithm == "popular"), None)


def best_centralised(methods: Sequence[Compared], metric: str) -> Compared | None:
    """The best centralised method that learns about single users, if one is compared."""
    central = [one for one in methods if not one.federated and one.algorithm not in TRIVIAL]
    best = best_of(metric, [one.value for one in central])
    return central[min(best, default=0)] if central else None
