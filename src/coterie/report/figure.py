"""The convergence figure of runs: one panel for every headline metric."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import stdev
from typing import Any

from coterie.report import static
from coterie.report.figures import Figure, Series
from coterie.report.table import Reported, labels

Curve = Sequence[dict[str, Any]]


def convergence(runs: Sequence[Reported], methods: Sequence[str] | None = None) -> str:
    """As SVG text that needs nothing else; "" where nothing was measured."""
    drawn = panels(runs, methods)
    if not drawn:
        return ""
    text = static.drawn(drawn, "svg", columns=len(drawn)).decode()
    return text[text.index("<svg") :]


def panels(runs: Sequence[Reported], methods: Sequence[str] | None = None) -> list[Figure]:
    """`methods` names the method of every run: its runs are one line, with a band of one deviation to either side."""
    names = [
        n
        for n in runs[0].result["headline"]
        if all(n in line for run in runs for line in run.curve)
    ][:3]
    if not any(run.curve for run in runs):
        return []
    curves: dict[str, list[Curve]] = {}
    for run, method in zip(runs, methods or labels(runs), strict=True):
        curves.setdefault(method, []).append(run.curve)
    return [
        Figure(
            name,
            name,
            name,
            [line for method, mine in curves.items() if (line := _line(method, mine, name))],
        )
        for name in names
    ]


def _line(method: str, curves: Sequence[Curve], name: str) -> Series | None:
    """The mean of a method's runs; a single measurement is a level."""
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
    """(rounds, means) where every curve was measured: one may have stopped earlier than the others."""
    found = [{line["round"]: line[name] for line in curve} for curve in curves]
    rounds = sorted(set.intersection(*(set(values) for values in found)))
    return rounds, [sum(values[n] for values in found) / len(found) for n in rounds]


def _spread(curves: Sequence[Curve], name: str, rounds: Sequence[int]) -> list[float]:
    found = [{line["round"]: line[name] for line in curve} for curve in curves]
    return [stdev(values[n] for values in found) for n in rounds]
