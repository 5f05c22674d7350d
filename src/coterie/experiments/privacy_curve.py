"""Accuracy beside epsilon: the methods of a comparison that ran with several privacy budgets."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.algorithms.registry import algorithm
from coterie.errors import ConfigError
from coterie.experiments.cell_cache import CellResult
from coterie.experiments.comparison import Comparison, Standing
from coterie.experiments.plan import Method
from coterie.report.figures import Figure, Series

BUDGET = " (epsilon "
"""Between the label of a method and its budget, in parentheses."""
CAPTION = (
    "A larger epsilon is less noise and less privacy. Dashed: without a budget. Bands: one "
    "standard deviation over runs."
)


def with_budgets(methods: Sequence[Method], epsilons: Sequence[float]) -> list[Method]:
    """Methods once for each privacy budget; centralised ones, which have none, once."""
    private = [m for m in methods if "epsilon" in algorithm(m.algorithm).settings.model_fields]
    if epsilons and not private:
        names = ", ".join(method.label for method in methods)
        raise ConfigError(
            f"--epsilon is {epsilons[0]:g}, but none of {names} has a privacy budget; expected a "
            "federated algorithm or popular. Leave out --epsilon, or add such a method."
        )
    return [
        one
        for method in methods
        for one in (_budgets(method, epsilons) if epsilons and method in private else [method])
    ]


def _budgets(method: Method, epsilons: Sequence[float]) -> list[Method]:
    return [
        Method(
            f"{method.label}{BUDGET}{epsilon:g})",
            method.algorithm,
            {**method.settings, "epsilon": epsilon},
        )
        for epsilon in epsilons
    ]


def privacy_curve(comparison: Comparison, results: Sequence[CellResult]) -> Figure | None:
    """The first headline metric by epsilon; None if no method has several budgets."""
    metric = comparison.headline[0]
    budgets = {
        one.cell.method.label: float(one.result["privacy"]["epsilon"])
        for one in results
        if "privacy" in one.result
    }
    curves: dict[str, list[Standing]] = {}
    for standing in comparison.standings:
        curves.setdefault(standing.method.rpartition(BUDGET)[0] or standing.method, []).append(
            standing
        )
    series = [_series(name, curve, budgets, metric) for name, curve in curves.items()]
    if all(len(one.y) < 2 for one in series):
        return None
    title = f"{metric} by privacy budget"
    return Figure("privacy", title, metric, series, log_x=True, caption=CAPTION)


def _series(name: str, curve: Sequence[Standing], budgets: dict[str, float], metric: str) -> Series:
    spreads = [one.metrics[metric] for one in curve]
    means = [spread.mean for spread in spreads]
    epsilons = [budgets[one.method] for one in curve if one.method in budgets]
    if not epsilons:
        return Series(name, means, {}, level=True)
    deviations = [spread.deviation for spread in spreads if spread.deviation is not None]
    return Series(
        name,
        means,
        {"epsilon": epsilons},
        low=[mean - deviation for mean, deviation in zip(means, deviations, strict=False)],
        high=[mean + deviation for mean, deviation in zip(means, deviations, strict=False)],
    )
