"""Forest plots: one line per effect with its interval, grouped by dataset, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coterie.report.svg import (
    FAINT,
    INK,
    MUTED,
    Axis,
    axis_around,
    circle,
    line,
    picture,
    shortened,
    text,
    text_width,
)

WIDTH = 440
LINE = 13
AXIS = 19
GAP = 5
LABELS = 300
"""Width of the picture, height of an effect and of the axis, space between groups, and the most
that the labels take of the width."""
SIZE = 10.5
BETTER = "#2e7d4f"
UNCLEAR = "#5c677d"
WORSE = "#b5402a"
"""Colours of an interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """One line of a forest plot."""

    group: str
    """The dataset; it is named once for all its lines."""
    label: str
    colour: str
    value: float | None = None
    low: float = 0.0
    high: float = 0.0
    note: str = ""
    """Shown in place of the interval where there is no value."""


def forest(
    intervals: Sequence[Interval], thresholds: Sequence[float], nothing: float, title: str
) -> str:
    """The picture. `nothing` is no effect: 0 for differences, 1 for ratios."""
    groups = list(dict.fromkeys(interval.group for interval in intervals))
    # Two columns of labels if both fit; otherwise the group's name has a line of its own.
    name_width = max(text_width(group, SIZE) for group in groups) + 8
    label_width = max(text_width(interval.label, SIZE) for interval in intervals)
    own_line = name_width + label_width > LABELS and label_width > 0
    labels = min(label_width if own_line else name_width + label_width, LABELS)
    drawn = [interval for interval in intervals if interval.value is not None]
    values = [nothing, *thresholds]
    for interval in drawn:
        values += [interval.low, interval.high]
    axis = axis_around(values, labels + 12, WIDTH - 10)
    marks: list[str] = []
    y = 2.0
    for group in groups:
        lines = [interval for interval in intervals if interval.group == group]
        marks.append(text(0, y + LINE - 3, group, size=SIZE))
        if own_line:
            y += LINE
        for interval in lines:
            marks.append(_label(interval, labels, y))
            marks += _interval(interval, axis, nothing, y + LINE / 2)
            y += LINE
        y += GAP
    bottom = y - GAP + 2
    grid = [
        line((axis.at(nothing), 0), (axis.at(nothing), bottom), stroke=MUTED, width=1),
        *(
            line((axis.at(t), 0), (axis.at(t), bottom), stroke=INK, width=1, dash="3 2")
            for t in thresholds
            if t != nothing
        ),
    ]
    ticks = [_tick(axis, value, bottom) for value in axis.ticks(4)]
    return picture(WIDTH, bottom + AXIS, title, [*ticks, *grid, *marks])


def _label(interval: Interval, right: float, y: float) -> str:
    words = shortened(interval.label, right, SIZE)
    return text(right, y + LINE - 3, words, size=SIZE, fill=MUTED, anchor="end")


def _interval(interval: Interval, axis: Axis, nothing: float, y: float) -> list[str]:
    if interval.value is None:
        # The wider side of the line of no effect, so that the line does not cross the note.
        middle = (axis.left + axis.right) / 2
        left = axis.at(nothing) + 4 if axis.at(nothing) < middle else axis.left
        return [text(left, y + 3.5, interval.note, size=SIZE, fill=MUTED)]
    ends = [(axis.at(interval.low), y), (axis.at(interval.high), y)]
    return [
        line(ends[0], ends[1], stroke=interval.colour, width=2),
        circle(axis.at(interval.value), y, 3.6, interval.colour),
    ]


def _tick(axis: Axis, value: float, bottom: float) -> str:
    x = axis.at(value)
    words = f"{round(value, 10):g}".replace("-", "−")
    grid = line((x, 0), (x, bottom), stroke=FAINT)
    return grid + text(x, bottom + 13, words, size=10, fill=MUTED, anchor="middle")
