"""The convergence figures of runs: by headline metric, over rounds, updates, bytes and time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import mean, stdev

from coterie.report.figures import Coordinates, Figure, Series
from coterie.report.steps import step_name
from coterie.report.table import Reported, labels
from coterie.types import JsonObject

Curve = Sequence[JsonObject]
MOST = 3
"""Metrics that have a figure."""
ON_TEST = "Measured on the test part, for inspection only: no model is selected by it."
LEVELS = "Dashed: the final value of a method that is trained in one step or has no such axis."


def panels(runs: Sequence[Reported], methods: Sequence[str] | None = None) -> list[Figure]:
    """One figure for each of the first three headline metrics that every run measured.

    `methods` names the method of every run. Runs of one method are one line, with a band of one
    standard deviation to either side. Rounds and epochs are different axes.
    """
    if not any(len(run.curve) > 1 for run in runs):
        return []
    lines = [line for run in runs for line in run.curve]
    names = [name for name in runs[0].result["headline"] if all(name in line for line in lines)]
    by_method: dict[str, list[Reported]] = {}
    for run, method in zip(runs, methods or labels(runs), strict=True):
        if run.curve:
            by_method.setdefault(method, []).append(run)
    return [_panel(name, by_method) for name in names[:MOST]]


def _panel(name: str, by_method: dict[str, list[Reported]]) -> Figure:
    found = [_line(method, runs, name) for method, runs in by_method.items()]
    series = [line for line in found if line is not None]
    return Figure(name, name, name, series, caption=_caption(series, by_method))


def _caption(series: Sequence[Series], by_method: dict[str, list[Reported]]) -> str:
    """The part that was measured, and what a dashed line is."""
    lines = [line for runs in by_method.values() for run in runs for line in run.curve]
    part = ", ".join(dict.fromkeys(str(line["part"]) for line in lines))
    text = ON_TEST if part == "test" else f"Measured on the {part} part."
    sizes = {
        users
        for runs in by_method.values()
        for run in runs
        if (users := _sampled_users(run)) is not None
    }
    if sizes:
        text += (
            f" Curves are measured on {', '.join(f'{n:,}' for n in sorted(sizes))} sampled users "
        )
        text += "and scaled to end at the figure of all users."
    axes = {axis for one in series for axis in one.xs}
    has_levels = any(one.level or axes - one.xs.keys() for one in series)
    return f"{text} {LEVELS}" if has_levels else text


def _sampled_users(run: Reported) -> int | None:
    """The number of users of the curve if it is a sample; earlier results have all users."""
    users = run.result.get("convergence", {}).get("users")
    tested = run.result.get("tested_users")
    sampled = users is not None and run.result["convergence"]["part"] == "test"
    return int(users) if sampled and users < tested else None


def _line(method: str, runs: Sequence[Reported], name: str) -> Series | None:
    """The mean of a method's runs; a single measurement becomes a level."""
    curves = [run.curve for run in runs]
    rounds, values = mean_curve(curves, name)
    if not rounds:
        return None
    if len(rounds) == 1:
        return Series(method, values, {}, level=True)
    spread = _spread(curves, name, rounds) if len(curves) > 1 else []
    low = [value - s for value, s in zip(values, spread, strict=False)]
    high = [value + s for value, s in zip(values, spread, strict=False)]
    xs: dict[str, Coordinates] = {step_name(runs[0].result): rounds}
    if _measured(curves, "updates"):
        xs["updates"] = _means(curves, rounds, lambda r: float(r["updates"]))
    if _measured(curves, "bytes_down"):
        xs["megabytes"] = _means(curves, rounds, lambda r: (r["bytes_up"] + r["bytes_down"]) / 1e6)
    if _measured(curves, "seconds"):
        xs["seconds"] = _means(curves, rounds, lambda r: float(r["seconds"]))
    return Series(method, values, xs, low, high)


def _measured(curves: Sequence[Curve], key: str) -> bool:
    return all(key in line for curve in curves for line in curve)


def _means(
    curves: Sequence[Curve], rounds: Sequence[int], value: Callable[[JsonObject], float]
) -> list[float]:
    """The mean over runs of a value, at each of the rounds."""
    by_round = [{line["round"]: value(line) for line in curve} for curve in curves]
    return [mean(values[n] for values in by_round) for n in rounds]


def mean_curve(curves: Sequence[Curve], name: str) -> tuple[list[int], list[float]]:
    """(rounds, means) of the rounds in which every curve was measured; some may stop earlier."""
    by_round = [{line["round"]: line[name] for line in curve} for curve in curves]
    rounds = sorted(set.intersection(*(set(values) for values in by_round)))
    return rounds, [sum(values[n] for values in by_round) / len(by_round) for n in rounds]


def _spread(curves: Sequence[Curve], name: str, rounds: Sequence[int]) -> list[float]:
    by_round = [{line["round"]: line[name] for line in curve} for curve in curves]
    return [stdev(values[n] for values in by_round) for n in rounds]
