"""The convergence figure, as SVG text that needs nothing else."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from coterie.errors import MissingExtra
from coterie.report.table import Reported, labels

COLOURS = ("#2a6f97", "#e07a5f", "#3d8361", "#8e5ea2", "#c9a227", "#5c677d")


Curve = Sequence[dict[str, Any]]


def convergence(runs: Sequence[Reported], methods: Sequence[str] | None = None) -> str:
    """One panel per headline metric. `methods` names the method of every run: its runs share a colour and a mean line."""
    try:
        import matplotlib
    except ImportError:
        raise MissingExtra("The convergence figure", "report") from None
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    names = [n for n in runs[0].result["headline"] if all(n in line for run in runs for line in run.curve)][:3]
    if not names or not any(run.curve for run in runs):
        return ""
    curves: dict[str, list[Curve]] = {}
    for run, method in zip(runs, methods or labels(runs), strict=True):
        curves.setdefault(method, []).append(run.curve)
    with matplotlib.rc_context(
        {"svg.hashsalt": "coterie", "font.family": "sans-serif", "font.size": 10, "svg.fonttype": "none"}
    ):
        figure = Figure(figsize=(4.2 * len(names), 3.2), layout="constrained")
        for axis, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
            for number, (method, mine) in enumerate(curves.items()):
                label = method.replace("$", r"\$")  # no formula
                _draw(axis, mine, name, COLOURS[number % len(COLOURS)], label)
            axis.set_title(name, loc="left", fontweight="bold")
            axis.set_xlabel("round")
            axis.grid(alpha=0.25)
            axis.spines[["top", "right"]].set_visible(False)
            axis.legend(frameon=False, fontsize=8)
        text = io.StringIO()
        FigureCanvasSVG(figure).print_svg(text, metadata={"Date": None})  # type: ignore[no-untyped-call]
    return text.getvalue()[text.getvalue().index("<svg") :]


def _draw(axis: Any, curves: Sequence[Curve], name: str, colour: str, label: str) -> None:
    """The mean of a method's runs, and the runs themselves as thin lines; a single measurement is a dashed level."""
    rounds, values = mean_curve(curves, name)
    if len(rounds) > 1:
        axis.plot(rounds, values, color=colour, label=label, linewidth=1.8)
    elif rounds:
        axis.axhline(values[0], color=colour, label=label, linestyle="--", linewidth=1.4)
    for curve in curves if len(curves) > 1 and len(rounds) > 1 else ():
        axis.plot(
            [line["round"] for line in curve], [line[name] for line in curve], color=colour, linewidth=0.7, alpha=0.4
        )


def mean_curve(curves: Sequence[Curve], name: str) -> tuple[list[int], list[float]]:
    """(rounds, means) where every curve was measured: one may have stopped earlier than the others."""
    found = [{line["round"]: line[name] for line in curve} for curve in curves]
    rounds = sorted(set.intersection(*(set(values) for values in found)))
    return rounds, [sum(values[n] for values in found) / len(found) for n in rounds]
