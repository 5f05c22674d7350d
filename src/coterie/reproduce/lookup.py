"""Accessors that checks use to read the findings of one dataset (`findings.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import TypeAlias

from coterie.reproduce.chance import at_chance, chance_level
from coterie.reproduce.items import Effect, Holds, Verdict
from coterie.types import JsonObject

DatasetFindings: TypeAlias = JsonObject
"""The findings of one item on one dataset; `findings.py` documents the keys."""
MetricCurve: TypeAlias = list[tuple[int, float]]
"""(round, value) pairs of one seed."""


def combine_verdicts(verdicts: Sequence[Holds]) -> Holds:
    """One verdict over several datasets or parts of a claim; untestable parts do not count."""
    testable = [verdict for verdict in verdicts if verdict != "cannot be tested"]
    if not testable:
        return "cannot be tested"
    if len(set(testable)) == 1:
        return testable[0]
    return "holds in part"


def passed(good: bool) -> Holds:
    """The verdict of a check with two outcomes."""
    return "holds" if good else "does not hold"


def not_run(*methods: str) -> Verdict:
    """The verdict where a method that the claim needs has no results."""
    return Verdict.of("cannot be tested", f"not run here: {', '.join(methods)}")


def seed_values(findings: DatasetFindings, method: str, metric: str) -> list[float]:
    """A method's metric, one value per seed; empty where there is none."""
    row = findings["rows"].get(method)
    return list(row["metrics"].get(metric, ())) if row else []


def refused(findings: DatasetFindings, metric: str, *methods: str) -> Verdict | None:
    """ "Cannot be tested" where a method has no results or is at chance level; else None."""
    values = {method: seed_values(findings, method, metric) for method in methods}
    if not all(values.values()):
        return not_run(*(method for method, found in values.items() if not found))
    chance = chance_level(findings.get("protocol"), metric)
    for method, found in values.items():
        if at_chance(mean(found), chance):
            return Verdict.of(
                "cannot be tested",
                f"{method} is at chance level: {metric} {mean(found):.3f}, chance {chance:.3f}",
            )
    return None


def sweep_points(findings: DatasetFindings, series: str, metric: str) -> list[tuple[float, float]]:
    """(setting, mean over seeds) of a series, ordered by the setting.

    Methods without the setting, such as a baseline without clusters, are not part of the sweep.
    """
    rows = [row for row in findings["rows"].values() if not series or row["series"] == series]
    return sorted(
        (row["x"], mean(row["metrics"][metric]))
        for row in rows
        if metric in row["metrics"] and row["x"] is not None
    )


def curves(findings: DatasetFindings, method: str, metric: str) -> list[MetricCurve]:
    """A method's metric by round, one curve per seed."""
    row = findings["rows"].get(method)
    curve = row and row.get("curve")
    if not curve or metric not in curve["values"]:
        return []
    return [
        [(n, v) for n, v in zip(curve["rounds"], run, strict=True) if v is not None]
        for run in curve["values"][metric]
    ]


def find_test(findings: DatasetFindings, first: str, other: str, metric: str) -> JsonObject | None:
    """The paired test of two methods, if it was run."""
    for test in findings["tests"]:
        if (test["first"], test["other"], test["metric"]) == (first, other, metric):
            return dict(test)
    return None


def describe_test(findings: DatasetFindings, test: JsonObject) -> str:
    """A paired test in words: both means, the difference, its interval and p."""
    metric = test["metric"]
    first = mean(seed_values(findings, test["first"], metric))
    other = mean(seed_values(findings, test["other"], metric))
    p = "p < 0.0001" if test["p"] < 1e-4 else f"p = {test['p']:.2g}"
    return (
        f"{metric} {first:.4g} against {other:.4g} of {test['other']}: {test['difference']:+.4f} "
        f"[{test['low']:+.4f}, {test['high']:+.4f}], {p}"
    )


def effect_of(test: JsonObject, threshold: float, tolerance: bool = False) -> Effect:
    """A paired test as an effect."""
    return Effect(
        label=f"{test['metric']}: {test['first']} − {test['other']}",
        scale="difference",
        value=test["difference"],
        low=test["low"],
        high=test["high"],
        threshold=threshold,
        p=test["p"],
        tolerance=tolerance,
    )
