"""The convergence figure of runs: one panel for every headline metric."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import stdev

from coterie.report import static
from coterie.report.figures import Figure, Series
from coterie.report.table import Reported, labels
from coterie.types import JsonObject

Curve = Sequence[JsonObject]


def convergence(runs: Sequence[Reported], methods: Sequence[str] | None = None) -> str:
    """The figure as self-contained SVG; "" if nothing was measured."""
    figures = panels(runs, methods)
    if not figures:
        return ""
    text = static.draw(figures, "svg", columns=len(figures)).decode()
    return text[text.index("<svg") :]


def panels(runs: Sequence[Reported], methods: Sequence[str] | None = None) -> list[Figure]:
    """One figure for each of the first three headline metrics that every run measured.

    `methods` names the method of every run. Runs of one method are one line, with a band of one
    standard deviation to either side.
    """
    if not any(run.curve for run in runs):
        return []
    lines = [line for run in runs for line in run.curve]
    names = [name for name in runs[0].result["headline"] if all(name in line for line in lines)]
    curves: dict[str, list[Curve]] = {}
    for run, method in zip(runs, methods or labels(runs), strict=True):
        curves.setdefault(method, []).append(run.curve)
    return [_panel(name, curves) for name in names[:3]]


def _panel(name: str, curves: dict[str, list[Curve]]) -> Figure:
    series = [_line(method, of_method, name) for method, of_method in curves.items()]
    return Figure(name, name, name, [line for line in series if line is not None])


def _line(method: str, curves: Sequence[Curve], name: str) -> Series | None:
    """The mean of a method's runs; a single measurement becomes a level."""
    rounds, values = mean_curve(curves, name)
    if not rounds:
        return None
    if len(rounds) == 1:
        return Series(method, values, {}, level=True)
    spread = _spread(curves, name, rounds) if len(curves) > 1 else []
    low = [value - s for value, s in zip(values, spread, strict=False)]
    high = [value + s for value, s in zip(values, spread, strict=False)]
    return Series(method, values, {"round": rounds}, low, high)


def mean_curve(curves: Sequence[Curve], name: str) -> tuple[list[int], list[float]]:
    """(rounds, means) of the rounds in which every curve was measured; some may stop earlier."""
    by_round = [{line["round"]: line[name] for line in curve} for curve in curves]
    rounds = sorted(set.intersection(*(set(values) for values in by_round)))
    return rounds, [sum(values[n] for values in by_round) / len(by_round) for n in rounds]


def _spread(curves: Sequence[Curve], name: str, rounds: Sequence[int]) -> list[float]:
    by_round = [{line["round"]: line[name] for line in curve} for curve in curves]
    return [stdev(values[n] for values in by_round) for n in rounds]
