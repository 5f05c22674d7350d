"""Figures that a reader can touch, in a page that needs nothing else: plotly's script stands in the page, once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any

from coterie.errors import MissingExtra
from coterie.report.figures import COLOURS, GREY, Figure, Series

HEIGHT = 340
ROW = 20
"""Pixels of a figure, and of a row of its legend."""
CONFIG = {"responsive": True, "displayModeBar": False}
DRAW = "<script>addEventListener('load', () => FIGURES.forEach(([id, data, layout]) => Plotly.newPlot(id, data, layout, %s)))</script>"


def script() -> str:
    """Plotly itself, and what draws all figures once their places are known."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise MissingExtra("An interactive report", "report") from None
    return f"<script>{get_plotlyjs()}</script><script>const FIGURES = []</script>{DRAW % json.dumps(CONFIG)}"


def div(figure: Figure, number: int) -> str:
    """A figure's place in a page, and what draws it there."""
    name = f"figure-{number}"
    data = json.dumps(traces(figure)).replace("</", "<\\/")
    looks = json.dumps(layout(figure)).replace("</", "<\\/")
    caption = f"<p class=about>{escape(figure.caption)}</p>" if figure.caption else ""
    return f"<div class=figure id={name}></div><script>FIGURES.push([{name!r}, {data}, {looks}])</script>{caption}"


def traces(figure: Figure) -> list[dict[str, Any]]:
    """Lines and, where there are several seeds, bands behind them."""
    axis = figure.axes[0] if figure.axes else ""
    found = []
    for number, series in enumerate(figure.series):
        colour = COLOURS[number % len(COLOURS)]
        if series.level:
            found.append(_level(figure, series, colour, axis))
            continue
        x = list(series.xs[axis])
        if series.low:
            found += _band(series, x, colour)
        if series.beneath:
            found.insert(
                0,
                {
                    "type": "scatter",
                    "name": series.name,
                    "x": x,
                    "y": list(series.y),
                    "mode": "lines",
                    "line": {"color": GREY, "width": 1},
                },
            )
            continue
        found.append(
            {
                "type": "scatter",
                "name": series.name,
                "x": x,
                "y": list(series.y),
                "legendgroup": series.name,
                "mode": "lines+markers"
                if series.line and len(x) <= 25
                else "lines"
                if series.line
                else "markers",
                "line": {
                    "color": colour,
                    "width": 2,
                    "dash": "dot" if number >= len(COLOURS) else "solid",
                },
                "marker": {"color": colour, "size": 7},
            }
        )
    return found


def _band(series: Series, x: Sequence[float | None], colour: str) -> list[dict[str, Any]]:
    shared = {
        "type": "scatter",
        "mode": "lines",
        "line": {"width": 0},
        "x": list(x),
        "showlegend": False,
        "hoverinfo": "skip",
        "legendgroup": series.name,
    }
    return [
        shared | {"y": list(series.low)},
        shared | {"y": list(series.high), "fill": "tonexty", "fillcolor": f"{colour}26"},
    ]


def _level(figure: Figure, series: Series, colour: str, axis: str) -> dict[str, Any]:
    """A dashed line from one end of the others to the other."""
    there = [
        x
        for other in figure.series
        if not other.level
        for x in other.xs.get(axis, ())
        if x is not None
    ] or [0, 1]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": series.name,
        "x": [min(there), max(there)],
        "y": [series.y[0]] * 2,
        "line": {"color": colour, "width": 1.5, "dash": "dash"},
    }


def layout(figure: Figure) -> dict[str, Any]:
    axes = figure.axes
    top = 80 if len(axes) > 1 else 45
    below = ROW * -(-len(figure.series) // 3)  # the legend's rows
    found: dict[str, Any] = {
        "title": {"text": figure.title, "x": 0, "y": 0.98, "yanchor": "top", "font": {"size": 15}},
        "margin": {"l": 55, "r": 10, "t": top, "b": 60 + below},
        "height": HEIGHT + below,
        "hovermode": "closest",
        "plot_bgcolor": "#fff",
        "xaxis": {
            "title": {"text": axes[0] if axes else ""},
            "gridcolor": "#eef1f4",
            **({"type": "log", "dtick": 1, "minor": {"ticks": "outside"}} if figure.log_x else {}),
        },
        "yaxis": {"title": {"text": figure.y_label}, "gridcolor": "#eef1f4"},
        "legend": {
            "orientation": "h",
            "y": -58 / (HEIGHT - top - 60),
            "yanchor": "top",
            "font": {"size": 11},
        },
        "font": {"family": "system-ui, sans-serif", "size": 12},
    }
    if len(axes) > 1:
        found["updatemenus"] = [_buttons(figure, axes)]
    return found


def _buttons(figure: Figure, axes: Sequence[str]) -> dict[str, Any]:
    """By rounds, by megabytes, by seconds."""
    buttons = []
    for axis in axes:
        xs: list[list[float | None]] = []
        for series in figure.series:
            if series.level:
                there = [
                    x
                    for s in figure.series
                    if not s.level
                    for x in s.xs.get(axis, ())
                    if x is not None
                ] or [0, 1]
                xs.append([min(there), max(there)])
                continue
            own = list(series.xs.get(axis, ()))
            xs += [own] * (3 if series.low else 1)
        buttons.append(
            {
                "label": f"by {axis}",
                "method": "update",
                "args": [{"x": xs}, {"xaxis.title.text": axis, "xaxis.autorange": True}],
            }
        )
    return {
        "type": "buttons",
        "direction": "right",
        "x": 0,
        "xanchor": "left",
        "y": 1.03,
        "yanchor": "bottom",
        "pad": {"t": 0, "r": 0},
        "buttons": buttons,
        "showactive": True,
        "font": {"size": 11},
    }
