"""The spread of a metric over users: quantiles, and their figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from coterie.report.figures import Figure, Series
from coterie.types import Doubles

QUANTILES = tuple(range(0, 101, 5))
"""In percent of the users."""
CAPTION = "Users sorted by the metric: the share of users, in percent, with at most this value."


def quantiles(values: Doubles) -> list[float]:
    """The quantiles of a metric over users."""
    return [round(float(value), 4) for value in np.percentile(values, QUANTILES)]


def telling_metric(names: Sequence[str], spreads: Sequence[Mapping[str, Sequence[float]]]) -> str:
    """The first metric whose quantiles say more than its mean; "" if there is none.

    Hits on one held-out item are 0 or 1, and where most users have none, half of a figure is a line
    at the bottom.
    """
    known = [name for name in names if spreads and all(spread.get(name) for spread in spreads)]
    return next((name for name in known if any(_is_telling(s[name]) for s in spreads)), "")


def _is_telling(spread: Sequence[float]) -> bool:
    """Whether the values are more than two, and not the lowest one for half of the users."""
    return len(set(spread)) > 2 and spread[len(spread) // 2] > spread[0]


def over_users(
    key: str, title: str, metric: str, rows: Mapping[str, Sequence[float]], caption: str = CAPTION
) -> Figure:
    """Quantiles by method: they show users that the mean hides."""
    series = [
        Series(label, values, {"users, in percent": list(QUANTILES)})
        for label, values in rows.items()
    ]
    return Figure(key, title, metric, series, caption=caption)
