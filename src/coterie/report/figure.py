"""The convergence figure, as SVG text that needs nothing else."""

from __future__ import annotations

import io
from collections.abc import Sequence

from coterie.errors import MissingExtra
from coterie.finished import Run
from coterie.report.table import labels

COLOURS = ("#2a6f97", "#e07a5f", "#3d8361", "#8e5ea2", "#c9a227", "#5c677d")


def convergence(runs: Sequence[Run]) -> str:
    """One panel per headline metric, one line per run; a single measurement is a dashed level."""
    try:
        import matplotlib
    except ImportError:
        raise MissingExtra("The convergence figure", "report") from None
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    names = [n for n in runs[0].result["headline"] if all(n in line for run in runs for line in run.curve)][:3]
    if not names or not any(run.curve for run in runs):
        return ""
    with matplotlib.rc_context(
        {"svg.hashsalt": "coterie", "font.family": "sans-serif", "font.size": 10, "svg.fonttype": "none"}
    ):
        figure = Figure(figsize=(4.2 * len(names), 3.2), layout="constrained")
        for axis, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
            for number, (run, label) in enumerate(zip(runs, labels(runs), strict=True)):
                colour = COLOURS[number % len(COLOURS)]
                rounds, values = [line["round"] for line in run.curve], [line[name] for line in run.curve]
                if len(rounds) > 1:
                    axis.plot(rounds, values, color=colour, label=label, linewidth=1.8)
                elif rounds:
                    axis.axhline(values[0], color=colour, label=label, linestyle="--", linewidth=1.4)
            axis.set_title(name, loc="left", fontweight="bold")
            axis.set_xlabel("round")
            axis.grid(alpha=0.25)
            axis.spines[["top", "right"]].set_visible(False)
            axis.legend(frameon=False, fontsize=8)
        text = io.StringIO()
        FigureCanvasSVG(figure).print_svg(text, metadata={"Date": None})  # type: ignore[no-untyped-call]
    return text.getvalue()[text.getvalue().index("<svg") :]
