"""The figure of docs/poisoning.md: what the worst attack does to each algorithm, by defence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from coterie.report.dots import CENTRAL, OURS, TUNED
from coterie.report.svg import (
    FAINT,
    INK,
    MUTED,
    Axis,
    circle,
    diamond,
    line,
    picture,
    square,
    text,
    text_width,
)

WIDTH = 640
LABELS = 74
SPACE = 34
HEAD = 24
ROW = 22
FOOT = 24
LEGEND = 24
"""Sizes: the picture, names of algorithms, space between panels, a panel's title, a row, an axis,
and the legend."""
SIZE = 11
TICKS = 5
MARKS: dict[str, Callable[[float, float], str]] = {
    "none": lambda x, y: diamond(x, y, 4.6, INK),
    "bounded": lambda x, y: circle(x, y, 4, OURS),
    "trimmed": lambda x, y: square(x, y, 3.2, TUNED),
    "groups": lambda x, y: circle(x, y, 2.8, CENTRAL),
}
APART = 4.5
"""Between the marks of a row, so that equal values do not hide each other."""


class Panel(NamedTuple):
    """Values of each algorithm by defence; the axis begins at zero."""

    title: str
    largest: float
    rows: Mapping[str, Mapping[str, float]]


def poisoning_figure(rows_of_panels: Sequence[Sequence[Panel]], title: str) -> str:
    """Panels that share the names of their rows, and the title and a legend above them."""
    parts = [_legend(title)]
    y = float(LEGEND)
    for panels in rows_of_panels:
        labels = list(panels[0].rows)
        for k, label in enumerate(labels):
            parts.append(text(LABELS - 8, _middle(y, k) + 4, label, size=SIZE, anchor="end"))
        width = (WIDTH - LABELS - SPACE * (len(panels) - 1) - 12) / len(panels)
        for column, panel in enumerate(panels):
            left = LABELS + column * (width + SPACE)
            axis = Axis(low=0, high=panel.largest, left=left + 4, right=left + width)
            parts += _panel(panel, axis, y)
        y += HEAD + ROW * len(labels) + FOOT
    return picture(WIDTH, y, title, parts)


def _middle(top: float, row: int) -> float:
    return top + HEAD + ROW * (row + 0.5)


def _panel(panel: Panel, axis: Axis, top: float) -> list[str]:
    bottom = top + HEAD + ROW * len(panel.rows)
    parts = [text(axis.left, top + 15, panel.title, size=SIZE)]
    for value in axis.ticks(TICKS):
        x = axis.at(value)
        parts.append(line((x, top + HEAD), (x, bottom), stroke=FAINT))
        parts.append(text(x, bottom + 13, f"{value:g}", size=10, fill=MUTED, anchor="middle"))
    for k, by_defence in enumerate(panel.rows.values()):
        for number, (defence, mark) in enumerate(MARKS.items()):
            if defence in by_defence:
                y = _middle(top, k) + (number - (len(MARKS) - 1) / 2) * APART
                parts.append(mark(axis.at(by_defence[defence]), y))
    return parts


def _legend(title: str) -> str:
    parts = [text(0, 13, title, size=12)]
    x = text_width(title, 12) + 16
    for name, mark in MARKS.items():
        parts.append(mark(x, 9))
        parts.append(text(x + 11, 13, name, size=SIZE, fill=MUTED))
        x += text_width(name, SIZE) + 40
    return "".join(parts)
