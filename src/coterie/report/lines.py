"""Figures as static SVG: lines with bands over one axis, levels, and a legend below."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from coterie.report.figures import COLOURS, Figure, Series
from coterie.report.svg import (
    FAINT,
    MUTED,
    Axis,
    axis_around,
    circle,
    line,
    picture,
    polygon,
    polyline,
    shortened,
    square,
    text,
    text_width,
)

WIDTH = 520
LEFT = 52
RIGHT = 10
TOP = 24
FOOT = 36
LEGEND_ROW = 16
SIZE = 11
"""Sizes: the picture, the margins of the panel, a row of the legend, the font."""
LABEL_SIZE = 10
LABEL_ROW = 11
LABEL_ROWS = 9
"""Of the names of points, which stand at most so many rows above or below."""
FEW = 25
"""Up to this number of points, a line has markers."""
DASH = "5 3"
DASHES_LIKE = ("6 3", "2 2.5")
"""Of the first and second series that has the colour of another one."""


def line_plot(figure: Figure, axis: str, width: float = WIDTH, legend: bool = True) -> str:
    """The figure over one of its axes; "" if no series has it.

    A series without this axis is a level: the epochs of a centralised method are no rounds. Without
    a legend it is one panel of several, which `legend_plot` explains.
    """
    right = width - RIGHT
    xs = [x for series in figure.series for x in series.xs.get(axis, ()) if x is not None]
    if not xs:
        return ""
    across = axis_around(xs, LEFT, right, figure.log_x and min(xs) > 0)
    # A vertical axis is a horizontal one from the bottom up.
    bottom = TOP + figure.height
    up = axis_around(_heights(figure), bottom, TOP)
    drawn = [
        mark
        for number in range(len(figure.series))
        for mark in _marks(figure, number, axis, across, up)
    ]
    drawn += _labels(figure, axis, across, up)
    height = bottom + FOOT
    title = f"{figure.title} by {axis}" if len(figure.axes) > 1 else figure.title
    parts = [text(0, 14, shortened(title, width, 12), size=12), *_grid(across, up, axis), *drawn]
    if legend:
        parts += _legend(figure, axis, height, width)
        height += LEGEND_ROW * (1 + _legend_rows(figure, width))
    return picture(width, height, title, parts)


def legend_plot(figure: Figure, width: float = WIDTH) -> str:
    """The legend of a figure whose panels have none."""
    axis = figure.axes[0]
    # Entries begin where a panel does; here there is nothing to their left.
    height = LEGEND_ROW * _legend_rows(figure, width + LEFT)
    parts = [
        f'<g transform="translate({-LEFT} 0)">',
        *_legend(figure, axis, 0, width + LEFT),
        "</g>",
    ]
    return picture(width, height, f"Legend: {figure.title}", parts)


def _heights(figure: Figure) -> list[float]:
    """All values of the vertical axis, edges of bands included."""
    return [
        value
        for series in figure.series
        for values in (series.y, series.low, series.high)
        for value in values
        if value is not None
    ]


def _grid(across: Axis, up: Axis, name: str) -> list[str]:
    parts = []
    bottom = up.left
    for value in up.ticks(5):
        y = up.at(value)
        parts.append(line((across.left, y), (across.right, y), stroke=FAINT))
        parts.append(text(LEFT - 6, y + 4, _tick(value), size=10, fill=MUTED, anchor="end"))
    for value in across.ticks(6):
        x = across.at(value)
        parts.append(line((x, TOP), (x, bottom), stroke=FAINT))
        below = bottom + 13
        # The label of a tick at the right edge must not leave the picture.
        half = text_width(_tick(value), 10) / 2
        at = min(x, across.right + RIGHT - half)
        parts.append(text(at, below, _tick(value), size=10, fill=MUTED, anchor="middle"))
    middle = (across.left + across.right + RIGHT) / 2
    foot = bottom + 27
    return [*parts, text(middle, foot, name, size=10, fill=MUTED, anchor="middle")]


def _tick(value: float) -> str:
    if 10_000 <= abs(value) < 1_000_000:
        return f"{value:,.0f}".replace("-", "−")
    return f"{round(value, 10):g}".replace("-", "−")


def is_level_over(series: Series, axis: str) -> bool:
    """Whether a series is one value for all x of this axis."""
    return series.level or axis not in series.xs


def _marks(figure: Figure, number: int, axis: str, across: Axis, up: Axis) -> list[str]:
    series = figure.series[number]
    colour = figure.colour(number)
    if is_level_over(series, axis):
        last = next((value for value in reversed(series.y) if value is not None), None)
        if last is None:
            return []
        y = up.at(last)
        ends = (across.left, y), (across.right, y)
        return [line(*ends, stroke=colour, width=1.4, dash=DASH)]
    places = series.xs[axis]
    parts = []
    if series.low:
        edge = [*_points(places, series.low, across, up)]
        edge += reversed(_points(places, series.high, across, up))
        parts.append(polygon(edge, colour))
    points = _points(places, series.y, across, up)
    if not series.line:
        radius = 4 / (1 + _beneath(figure, number, axis, across, up))
        shape = 0 if series.colour else number
        return [*parts, *(_point(shape, x, y, colour, radius) for x, y in points)]
    parts.append(polyline(points, stroke=colour, width=1.8, dash=_dash(figure, number)))
    if len(points) <= FEW:
        words = _words(series, axis)
        parts += [circle(x, y, 2.4, colour, at) for (x, y), at in zip(points, words, strict=True)]
    return parts


def _words(series: Series, axis: str) -> list[str]:
    """What a point of a line says where a pointer rests on it."""
    return [
        f"{series.name}: {y:.4g} at {x:,.6g} {axis}"
        for x, y in zip(series.xs[axis], series.y, strict=True)
        if x is not None and y is not None
    ]


def _dash(figure: Figure, number: int) -> str:
    """Dashes of a line that has the colour of another one; "" for all others."""
    series = figure.series[number]
    if not series.like:
        return ""
    names = [one.name for one in figure.series if one.like == series.like]
    return DASHES_LIKE[names.index(series.name) % len(DASHES_LIKE)]


def _point(number: int, x: float, y: float, colour: str, radius: float = 4) -> str:
    """A circle; a square for a series whose colour is that of an earlier one."""
    if number < len(COLOURS):
        return circle(x, y, radius, colour)
    return square(x, y, 0.875 * radius, colour)


def _beneath(figure: Figure, number: int, axis: str, across: Axis, up: Axis) -> int:
    """Earlier series whose points are under those of this one, which must not hide them."""
    points = _points_over(figure.series[number], axis, across, up)
    return sum(
        any(math.dist(one, other) < 2 for one in points for other in found)
        for series in figure.series[:number]
        if not series.line and (found := _points_over(series, axis, across, up))
    )


Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""


def _labels(figure: Figure, axis: str, across: Axis, up: Axis) -> list[str]:
    """The names of points, each where it covers no point and no other name."""
    named = [
        (series.name, x, y)
        for series in figure.series
        if series.labelled
        for x, y in _points_over(series, axis, across, up)
    ]
    taken: list[Box] = [(x - 4, y - 4, x + 4, y + 4) for _, x, y in named]
    parts = []
    for name, x, y in named:
        boxes = list(_label_places(x, y, 1.2 * text_width(name, LABEL_SIZE)))
        free = [
            box
            for box in boxes
            if across.left <= box[0]
            and box[2] <= across.right
            and up.right <= box[1]
            and box[3] <= up.left
            and not any(_overlap(box, other) for other in taken)
        ]
        box = (free or boxes)[0]
        taken.append(box)
        if box not in boxes[:2]:
            near = box[0] if box[0] > x else box[2]
            parts.append(line((x, y), (near, (box[1] + box[3]) / 2), stroke=MUTED, width=0.5))
        parts.append(text(box[0], box[3] - 2, name, size=LABEL_SIZE))
    return parts


def _label_places(x: float, y: float, width: float) -> Iterator[Box]:
    """Places of a label around a point, the nearest first: right, left, below or above."""
    for lines in sorted(range(-LABEL_ROWS, LABEL_ROWS + 1), key=lambda n: (abs(n), -n)):
        middle = y + lines * LABEL_ROW
        for left in (x + 7, x - 7 - width):
            yield left, middle - LABEL_ROW / 2, left + width, middle + LABEL_ROW / 2


def _overlap(one: Box, other: Box) -> bool:
    across = one[0] < other[2] and other[0] < one[2]
    return across and one[1] < other[3] and other[1] < one[3]


def _points_over(series: Series, axis: str, across: Axis, up: Axis) -> list[tuple[float, float]]:
    if is_level_over(series, axis):
        return []
    return _points(series.xs[axis], series.y, across, up)


def _points(
    xs: Sequence[float | None], ys: Sequence[float | None], across: Axis, up: Axis
) -> list[tuple[float, float]]:
    """Where the values are drawn; those that were not measured are left out."""
    return [
        (across.at(x), up.at(y))
        for x, y in zip(xs, ys, strict=True)
        if x is not None and y is not None
    ]


def _entry_width(series: Series) -> float:
    return 1.1 * text_width(series.name, SIZE) + 34


def _explained(figure: Figure) -> list[int]:
    """The series of the legend: those whose name does not stand beside their points."""
    return [number for number, series in enumerate(figure.series) if not series.labelled]


def _legend_places(figure: Figure, width: float) -> list[tuple[float, int]]:
    """(x, row) of every entry; an entry that does not fit begins another row."""
    places = []
    x = float(LEFT)
    row = 0
    for number in _explained(figure):
        series = figure.series[number]
        if x > LEFT and x + _entry_width(series) > width:
            x = float(LEFT)
            row += 1
        places.append((x, row))
        x += _entry_width(series)
    return places


def _legend_rows(figure: Figure, width: float) -> int:
    return 1 + max((row for _, row in _legend_places(figure, width)), default=-1)


def _legend(figure: Figure, axis: str, top: float, width: float) -> list[str]:
    parts = []
    places = _legend_places(figure, width)
    for number, (x, row) in zip(_explained(figure), places, strict=True):
        series = figure.series[number]
        y = top + LEGEND_ROW * (row + 0.5)
        name = shortened(series.name, (width - x - 21) / 1.1, SIZE)
        if not series.line and not is_level_over(series, axis):
            parts.append(_point(number, x + 8, y, figure.colour(number)))
            parts.append(text(x + 21, y + 4, name, size=SIZE, fill=MUTED))
            continue
        dash = DASH if is_level_over(series, axis) else _dash(figure, number)
        parts.append(line((x, y), (x + 16, y), stroke=figure.colour(number), width=1.8, dash=dash))
        parts.append(text(x + 21, y + 4, name, size=SIZE, fill=MUTED))
    return parts
