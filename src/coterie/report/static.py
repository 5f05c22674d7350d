"""Static figures: SVG and PNG by matplotlib."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coterie.errors import MissingExtra
from coterie.report.figures import COLOURS, GREY, Figure
from coterie.types import JsonObject

# matplotlib types its settings and axes too narrowly for lists with gaps (None): hence Any.
STYLE: Any = {
    "svg.hashsalt": "coterie",
    "font.family": "sans-serif",
    "font.size": 9,
    "svg.fonttype": "none",
}
DOTS_PER_INCH = 160
FEW_LINES = 6
"""A legend of more lines than this is drawn below the panel, not on it."""


def write(figures: Sequence[Figure], folder: Path) -> None:
    """Write each figure as NAME.svg and NAME.png."""
    folder.mkdir(parents=True, exist_ok=True)
    for figure in figures:
        for kind in ("svg", "png"):
            (folder / f"{figure.key}.{kind}").write_bytes(draw([figure], kind))


def draw(figures: Sequence[Figure], kind: str, columns: int = 2) -> bytes:
    """One or more figures as one image of this kind, svg or png."""
    try:
        import matplotlib
    except ImportError:
        raise MissingExtra("A figure", "report") from None
    from matplotlib.figure import Figure as Canvas

    across = min(columns, len(figures))
    down = -(-len(figures) // across)
    with matplotlib.rc_context(STYLE):
        height = 3.6 + max(map(_legend_height, figures))
        canvas = Canvas(figsize=(5.4 * across, height * down), layout="constrained")
        panels = canvas.subplots(down, across, squeeze=False).ravel()
        for panel, figure in zip(panels, figures, strict=False):
            _draw_panel(panel, figure)
        for panel in panels[len(figures) :]:
            panel.set_visible(False)
        image = io.BytesIO()
        # Without a date the same figure gives the same bytes.
        options: JsonObject = {"metadata": {"Date": None}}
        if kind != "svg":
            options = {"dpi": DOTS_PER_INCH}
        canvas.savefig(image, format=kind, **options)
    return image.getvalue()


def _legend_height(figure: Figure) -> float:
    """The height in inches that a legend below the panel needs."""
    rows = -(-len(figure.series) // 3)
    return 0.17 * rows if len(figure.series) > FEW_LINES else 0.0


def _draw_panel(panel: Any, figure: Figure) -> None:
    axis = figure.axes[0] if figure.axes else ""
    for number, series in enumerate(figure.series):
        colour = figure.colour(number)
        label = series.name.replace("$", r"\$")
        if series.level:
            dash = ":" if series.like or series.reference else "--"
            panel.axhline(series.y[0], color=colour, linestyle=dash, linewidth=1.2, label=label)
            continue
        x = list(series.xs[axis])
        if series.beneath:
            panel.plot(x, series.y, color=GREY, label=label, linewidth=1, zorder=1)
            continue
        few = len(x) <= 25
        panel.plot(
            x,
            series.y,
            color=colour,
            label=label,
            linewidth=1.5 if series.line else 0,
            linestyle=":" if number >= len(COLOURS) else "-",
            marker="o" if few or not series.line else None,
            markersize=3.5 if series.line else 5,
        )
        if series.low:
            panel.fill_between(x, series.low, series.high, color=colour, alpha=0.15, linewidth=0)
    if figure.log_x:
        panel.set_xscale("log")
    panel.set_title(figure.title.replace("$", r"\$"), loc="left", fontweight="bold", fontsize=10)
    panel.set_xlabel(axis)
    panel.set_ylabel(figure.y_label)
    panel.grid(alpha=0.25)
    panel.spines[["top", "right"]].set_visible(False)
    if len(figure.series) > FEW_LINES:
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "ncols": 3}
        panel.legend(frameon=False, fontsize=7, **below)
    elif figure.series:
        panel.legend(frameon=False, fontsize=7)
