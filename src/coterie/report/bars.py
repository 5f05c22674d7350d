"""Bar plots: one value after the other from zero, each with its name and its figure, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from coterie.report.svg import MUTED, bar, picture, shortened, text, text_width

WIDTH = 520
ROW = 24
HEAD = 22
GAP = 10
LABELS = 150
VALUES = 66
"""Sizes: the picture, a bar with its space, the title of a group, space between groups, the most
that labels take, and figures."""
THICK = 14
SIZE = 12


class Bar(NamedTuple):
    """One value, at least zero."""

    label: str
    value: float
    shown: str
    colour: str


class BarGroup(NamedTuple):
    """Bars of one scale, which begins at zero."""

    title: str
    bars: Sequence[Bar]


def bar_plot(groups: Sequence[BarGroup], title: str) -> str:
    """The picture: groups below each other, each with its own scale."""
    labels = [one.label for group in groups for one in group.bars]
    left = min(max(text_width(label, SIZE) for label in labels) + 10, LABELS)
    parts: list[str] = []
    y = 0.0
    for group in groups:
        heading = shortened(group.title, WIDTH, SIZE)
        parts.append(text(0, y + 14, heading, size=SIZE, fill=MUTED))
        y += HEAD
        largest = max(one.value for one in group.bars) or 1.0
        for one in group.bars:
            parts += _bar(one, largest, left, y)
            y += ROW
        y += GAP
    return picture(WIDTH, y - GAP, title, parts)


def _bar(one: Bar, largest: float, left: float, y: float) -> list[str]:
    width = (WIDTH - left - VALUES) * max(one.value, 0.0) / largest
    base = y + ROW / 2 + 4
    return [
        text(0, base, shortened(one.label, left - 10, SIZE), size=SIZE),
        bar(left, y + (ROW - THICK) / 2, width, THICK, one.colour),
        text(left + width + 6, base, one.shown, size=SIZE),
    ]
