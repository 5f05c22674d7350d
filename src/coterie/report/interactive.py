"""Interactive figures by plotly, for a self-contained page that includes plotly's script once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from coterie.errors import MissingExtra
from coterie.report.figures import COLOURS, GREY, Coordinates, Figure, Series
from coterie.types import JsonObject

HEIGHT = 340
ROW = 20
"""Height in pixels of a figure, and of a row of its legend."""
FEW = 25
"""Up to this number of points, a line has markers."""
CONFIG = {"responsive": True, "displayModeBar": False}
DRAW = (
    "<script>addEventListener('load', () => FIGURES.forEach(([id, data, layout]) => "
    "Plotly.newPlot(id, data, layout, %s)))</script>"
)


def script() -> str:
    """Plotly's script, and code that draws all figures once the page is loaded."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise MissingExtra("An interactive report", "report") from None
    draw = DRAW % json.dumps(CONFIG)
    return f"<script>{get_plotlyjs()}</script><script>const FIGURES = []</script>{draw}"


def div(figure: Figure, number: int) -> str:
    """The HTML element of a figure, with its data."""
    name = f"figure-{number}"
    data = _script_safe(traces(figure))
    options = _script_safe(layout(figure))
    caption = f"<p class=about>{escape(figure.caption)}</p>" if figure.caption else ""
    push = f"<script>FIGURES.push([{name!r}, {data}, {options}])</script>"
    return f"<div class=figure id={name}></div>{push}{caption}"


def _script_safe(values: object) -> str:
    """JSON that cannot end or open a script element."""
    return json.dumps(values).replace("<", "\\u003c")


def _plain(words: str) -> str:
    """Words that plotly shows as they are; it reads tags such as <b> otherwise."""
    return escape(words, quote=False)


def traces(figure: Figure) -> list[JsonObject]:
    """Lines, and bands behind them for series that have one."""
    axis = figure.axes[0] if figure.axes else ""
    drawn: list[JsonObject] = []
    for number, series in enumerate(figure.series):
        colour = figure.colour(number)
        if series.level:
            drawn.append(_level(figure, series, colour, axis))
            continue
        points = _points(figure, number, axis)
        if series.low:
            drawn += _band(series, points, colour)
        if series.beneath:
            drawn.insert(0, _background(series, points.x))
        else:
            drawn.append(_line(series, points, colour))
    return drawn


class Points(NamedTuple):
    """A series over one axis: its line, and the edges of its band."""

    x: Coordinates
    y: Coordinates
    dash: str
    band_x: Coordinates
    low: Coordinates
    high: Coordinates


def _points(figure: Figure, number: int, axis: str) -> Points:
    """The series over an axis; one without this axis is a dashed level at its last value."""
    series = figure.series[number]
    if axis not in series.xs:
        return Points(_range(figure, axis), [series.y[-1]] * 2, "dash", [], [], [])
    x = list(series.xs[axis])
    dash = "dot" if number >= len(COLOURS) else "solid"
    return Points(x, list(series.y), dash, x, list(series.low), list(series.high))


def _line(series: Series, points: Points, colour: str) -> JsonObject:
    mode = "markers"
    if series.line:
        mode = "lines+markers" if len(points.x) <= FEW else "lines"
    return {
        "type": "scatter",
        "name": _plain(series.name),
        "x": list(points.x),
        "y": list(points.y),
        "legendgroup": series.name,
        "mode": mode,
        "line": {"color": colour, "width": 2, "dash": points.dash},
        "marker": {"color": colour, "size": 7},
    }


def _background(series: Series, x: Coordinates) -> JsonObject:
    """A thin grey line behind the others."""
    return {
        "type": "scatter",
        "name": _plain(series.name),
        "x": list(x),
        "y": list(series.y),
        "mode": "lines",
        "line": {"color": GREY, "width": 1},
    }


def _band(series: Series, points: Points, colour: str) -> list[JsonObject]:
    shared = {
        "type": "scatter",
        "mode": "lines",
        "line": {"width": 0},
        "x": list(points.band_x),
        "showlegend": False,
        "hoverinfo": "skip",
        "legendgroup": series.name,
    }
    return [
        shared | {"y": list(points.low)},
        shared | {"y": list(points.high), "fill": "tonexty", "fillcolor": f"{colour}26"},
    ]


def _level(figure: Figure, series: Series, colour: str, axis: str) -> JsonObject:
    """A horizontal line over the range of the other series; dotted if it is no run of ours."""
    dash = "dot" if series.like or series.reference else "dash"
    return {
        "type": "scatter",
        "mode": "lines",
        "name": _plain(series.name),
        "x": _range(figure, axis),
        "y": [series.y[0]] * 2,
        "line": {"color": colour, "width": 1.5, "dash": dash},
    }


def _range(figure: Figure, axis: str) -> list[float | None]:
    """[smallest, largest] x of all series that are not levels."""
    values = [
        x
        for series in figure.series
        if not series.level
        for x in series.xs.get(axis, ())
        if x is not None
    ]
    return [min(values, default=0), max(values, default=1)]


def layout(figure: Figure) -> JsonObject:
    axes = figure.axes
    top = 80 if len(axes) > 1 else 45
    legend_height = ROW * -(-len(figure.series) // 3)
    x_axis: JsonObject = {"title": {"text": axes[0] if axes else ""}, "gridcolor": "#eef1f4"}
    if figure.log_x:
        x_axis |= {"type": "log", "dtick": 1, "minor": {"ticks": "outside"}}
    options: JsonObject = {
        "title": {
            "text": _plain(figure.title),
            "x": 0,
            "y": 0.98,
            "yanchor": "top",
            "font": {"size": 15},
        },
        "margin": {"l": 55, "r": 10, "t": top, "b": 60 + legend_height},
        "height": HEIGHT + legend_height,
        "hovermode": "closest",
        "plot_bgcolor": "#fff",
        "xaxis": x_axis,
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
        options["updatemenus"] = [_buttons(figure, axes)]
    return options


def _buttons(figure: Figure, axes: Sequence[str]) -> JsonObject:
    """Buttons that switch the x axis: by rounds, updates, megabytes or seconds."""
    return {
        "type": "buttons",
        "direction": "right",
        "x": 0,
        "xanchor": "left",
        "y": 1.03,
        "yanchor": "bottom",
        "pad": {"t": 0, "r": 0},
        "buttons": [_button(figure, axis) for axis in axes],
        "showactive": True,
        "font": {"size": 11},
    }


def _button(figure: Figure, axis: str) -> JsonObject:
    """One button: the coordinates of every trace, in the order of `traces`."""
    xs: list[Coordinates] = []
    ys: list[Coordinates] = []
    dashes: list[str] = []
    for number, series in enumerate(figure.series):
        if series.level:
            level = _level(figure, series, "", axis)
            xs.append(level["x"])
            ys.append(level["y"])
            dashes.append(level["line"]["dash"])
            continue
        points = _points(figure, number, axis)
        if series.low:
            xs += [points.band_x] * 2
            ys += [points.low, points.high]
            dashes += ["solid"] * 2
        xs.append(points.x)
        ys.append(points.y)
        dashes.append(points.dash)
    changes: JsonObject = {"x": xs}
    # Without a series that becomes a level, a button need not repeat the values.
    lines = [series for series in figure.series if not series.level]
    if any(other not in series.xs for series in lines for other in figure.axes):
        changes |= {"y": ys, "line.dash": dashes}
    return {
        "label": f"by {axis}",
        "method": "update",
        "args": [changes, {"xaxis.title.text": axis, "xaxis.autorange": True}],
    }
