"""A comparison in a few sentences: the best method, and who differs from the first one."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.evaluation.direction import is_better, loss
from coterie.experiments.comparison import Comparison, Standing
from coterie.experiments.comparison_tables import (
    BETTER,
    LEVEL,
    WORSE,
    marks,
    metric_format,
    spread_text,
)
from coterie.report.references import TRIVIAL, Compared, best_centralised


def summary(comparison: Comparison) -> list[str]:
    """What the tables say about the followed metric, the conclusion first."""
    measured = by_value(comparison)
    if len(measured) < 2:
        return []
    best = best_methods(comparison)
    value = _value(comparison, best[0])
    lines = [f"Best by {comparison.followed}: {_names(best)}, {value}."]
    return [*lines, *_against_first(comparison), *_against_references(comparison)]


def by_value(comparison: Comparison) -> list[Standing]:
    """The methods that have the followed metric, the best one first."""
    metric = comparison.followed
    measured = [one for one in comparison.standings if metric in one.metrics]
    return sorted(measured, key=lambda one: loss(metric, one.metrics[metric].mean))


def best_methods(comparison: Comparison) -> list[Standing]:
    """The best method, and those whose mean is shown with the same figure."""
    metric = comparison.followed
    shown = metric_format(metric)
    measured = by_value(comparison)
    best = shown(measured[0].metrics[metric].mean)
    return [one for one in measured if shown(one.metrics[metric].mean) == best]


def compared(comparison: Comparison) -> list[Compared]:
    """The methods with their means of the followed metric."""
    metric = comparison.followed
    return [
        Compared(
            one.method,
            one.algorithm,
            one.federated,
            one.metrics[metric].mean,
            one.metrics[metric].deviation or 0.0,
        )
        for one in comparison.standings
        if metric in one.metrics
    ]


def popular(comparison: Comparison) -> Standing | None:
    """The ranking by popularity, if it is compared."""
    found = (one for one in by_value(comparison) if one.algorithm == "popular")
    return next(found, None)


def _against_first(comparison: Comparison) -> list[str]:
    """Which methods differ significantly from the first one on the followed metric."""
    found = {
        method: sign
        for (method, metric), sign in marks(comparison).items()
        if metric == comparison.followed
    }
    if not found:
        return []
    first = comparison.standings[0].method
    kinds = {
        f"significantly better than {first}": [m for m, sign in found.items() if sign == BETTER],
        f"significantly worse than {first}": [m for m, sign in found.items() if sign == WORSE],
        f"not significantly different from {first}": [m for m, sign in found.items() if not sign],
    }
    texts = [f"{words}: {', '.join(names)}" for words, names in kinds.items() if names]
    text = "; ".join(texts)
    return [f"{text[:1].upper()}{text[1:]} (p < {LEVEL:g} after Holm's correction)."]


def _against_references(comparison: Comparison) -> list[str]:
    """Where the methods stand to popularity and to the best centralised method."""
    others = [one for one in by_value(comparison) if one.algorithm not in TRIVIAL]
    if not others:
        return []
    lines = _against_popular(comparison, others)
    if any(one.federated for one in others):
        lines += _centralised(comparison)
    return lines


def _against_popular(comparison: Comparison, others: Sequence[Standing]) -> list[str]:
    """The methods that are not better than popularity, or that all are."""
    floor = popular(comparison)
    if floor is None:
        return []
    value = _value(comparison, floor)
    below = [one for one in others if not _is_ahead(comparison, one, floor)]
    if below:
        return [f"Not better than {floor.method} ({value}): {_names(below)}."]
    chance = [one for one in by_value(comparison) if one.algorithm == "random"]
    behind = [one for one in chance if not _is_ahead(comparison, one, floor)]
    exception = f" but {_names(behind)}" if behind else ""
    return [f"{floor.method} has {value}; every other method{exception} is better."]


def _centralised(comparison: Comparison) -> list[str]:
    """The best centralised method, unless it is the best of all; popularity, where it is ahead."""
    metric = comparison.followed
    central = best_centralised(compared(comparison), metric)
    if central is None or central.label in [one.method for one in best_methods(comparison)]:
        return []
    text = f"{central.label}, {metric_format(metric)(central.value)}"
    floor = popular(comparison)
    if floor is not None and is_better(metric, floor.metrics[metric].mean, central.value):
        value = metric_format(metric)(floor.metrics[metric].mean)
        text = f"{floor.method}, {value}; then {text}"
    return [f"Best centralised: {text}."]


def _is_ahead(comparison: Comparison, one: Standing, other: Standing) -> bool:
    metric = comparison.followed
    return is_better(metric, one.metrics[metric].mean, other.metrics[metric].mean)


def _value(comparison: Comparison, standing: Standing) -> str:
    metric = comparison.followed
    return spread_text(standing.metrics[metric], metric_format(metric))


def _names(standings: Sequence[Standing]) -> str:
    return ", ".join(one.method for one in standings)
