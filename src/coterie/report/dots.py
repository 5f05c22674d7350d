"""Dot plots: methods by a metric, ours next to a paper's figures, one panel per dataset, as SVG."""

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
    diamond,
    line,
    picture,
    shortened,
    square,
    text,
    text_width,
)

WIDTH = 560
ROW = 16
HEAD = 20
FOOT = 22
LEGEND = 22
LABELS = 200
SPACE = 16
"""Sizes: the picture, a row, a panel's title and axis, the legend, labels, space of panels."""
SIZE = 11
OURS = "#2a6f97"
TUNED = "#e07a5f"
CENTRAL = "#3d8361"
POPULAR = "#8e5ea2"
LOG_ABOVE = 50
"""The axis is logarithmic if the largest value is this many times the smallest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DotRow:
    """One method: our mean and range over seeds, with tuned settings, and the paper's figure."""

    label: str
    ours: float | None = None
    low: float | None = None
    high: float | None = None
    tuned: float | None = None
    printed: float | None = None

    @property
    def values(self) -> list[float]:
        every = (self.ours, self.low, self.high, self.tuned, self.printed)
        return [value for value in every if value is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DotPanel:
    """The rows of one dataset, and levels to compare with."""

    title: str
    rows: tuple[DotRow, ...]
    chance: float | None = None
    central: float | None = None
    central_name: str = ""
    popular: float | None = None
    """The level of the ranking by popularity."""

    @property
    def values(self) -> list[float]:
        every = (self.chance, self.central, self.popular)
        levels = [level for level in every if level is not None]
        return [*levels, *(value for row in self.rows for value in row.values)]


def dot_plot(panels: Sequence[DotPanel], metric: str, title: str, dots_name: str = "ours") -> str:
    """The picture: panels share their rows and their axis. `dots_name` says what dots are."""
    labels = list(dict.fromkeys(row.label for panel in panels for row in panel.rows))
    label_width = min(max(text_width(label, SIZE) for label in labels) + 6, LABELS)
    columns = min(len(panels), 2)
    panel_width = (WIDTH - label_width - SPACE * (columns - 1) - 8) / columns
    panel_height = HEAD + ROW * len(labels) + FOOT
    values = [value for panel in panels for value in panel.values]
    # A chance level near zero is no reason for a logarithmic axis.
    shown = [value for panel in panels for row in panel.rows for value in row.values]
    log = min(shown) > 0 and max(shown) > LOG_ABOVE * min(shown)
    parts = [_legend(panels, metric, dots_name)]
    for number, panel in enumerate(panels):
        top = LEGEND + (number // columns) * panel_height
        left = label_width + (number % columns) * (panel_width + SPACE)
        axis = axis_around(values, left + 4, left + panel_width, log)
        if number % columns == 0:
            parts += [_row_label(label, k, top, label_width) for k, label in enumerate(labels)]
        parts += _panel(panel, labels, axis, top)
    rows_of_panels = -(-len(panels) // columns)
    return picture(WIDTH, LEGEND + rows_of_panels * panel_height, title, parts)


def _row_label(label: str, number: int, top: float, width: float) -> str:
    words = shortened(label, width - 6, SIZE)
    return text(width - 6, _row_y(top, number) + 4, words, size=SIZE, anchor="end")


def _row_y(top: float, number: int) -> float:
    return top + HEAD + ROW * (number + 0.5)


def _panel(panel: DotPanel, labels: Sequence[str], axis: Axis, top: float) -> list[str]:
    bottom = top + HEAD + ROW * len(labels)
    parts = [text(axis.left, top + 14, panel.title, size=SIZE)]
    for value in axis.ticks(5):
        x = axis.at(value)
        words = f"{round(value, 10):g}"
        parts.append(line((x, top + HEAD), (x, bottom), stroke=FAINT))
        parts.append(text(x, bottom + 13, words, size=10, fill=MUTED, anchor="middle"))
    if panel.chance is not None:
        x = axis.at(panel.chance)
        parts.append(line((x, top + HEAD), (x, bottom), stroke=MUTED, width=1.4, dash="1.5 2.5"))
    if panel.popular is not None:
        x = axis.at(panel.popular)
        parts.append(line((x, top + HEAD), (x, bottom), stroke=POPULAR, width=1.4, dash="2 2"))
    if panel.central is not None:
        x = axis.at(panel.central)
        parts.append(line((x, top + HEAD), (x, bottom), stroke=CENTRAL, width=1.4, dash="5 3"))
        # The name stands left of its line, or right of it where the title is in the way.
        room = x - axis.left > text_width(panel.title + panel.central_name, SIZE) + 8
        anchor = "end" if room else "start"
        parts.append(text(x, top + 14, panel.central_name, size=9.5, fill=CENTRAL, anchor=anchor))
    for row in panel.rows:
        parts += _marks(row, axis, _row_y(top, labels.index(row.label)))
    return parts


def _marks(row: DotRow, axis: Axis, y: float) -> list[str]:
    values = [v for v in (row.ours, row.tuned, row.printed) if v is not None]
    parts = []
    if len(values) > 1:
        parts.append(line((axis.at(min(values)), y), (axis.at(max(values)), y), stroke="#c3ccd6"))
    if row.low is not None and row.high is not None:
        parts.append(line((axis.at(row.low), y), (axis.at(row.high), y), stroke=OURS, width=2))
    if row.printed is not None:
        parts.append(diamond(axis.at(row.printed), y, 4.6, INK))
    if row.tuned is not None:
        parts.append(square(axis.at(row.tuned), y, 3.3, TUNED))
    if row.ours is not None:
        parts.append(circle(axis.at(row.ours), y, 4, OURS))
    return parts


def _legend(panels: Sequence[DotPanel], metric: str, dots_name: str) -> str:
    rows = [row for panel in panels for row in panel.rows]
    parts = [text(0, 13, metric, size=12)]
    x = 1.2 * text_width(metric, 12) + 22
    y = 9.0
    entries = [(circle(0, y, 4, OURS), dots_name)]
    if any(row.tuned is not None for row in rows):
        entries.append((square(0, y, 3.3, TUNED), "ours, tuned"))
    if any(row.printed is not None for row in rows):
        entries.append((diamond(0, y, 4.6, INK), "paper"))
    if any(panel.central is not None for panel in panels):
        dashed = line((-7, y), (7, y), stroke=CENTRAL, width=1.4, dash="5 3")
        entries.append((dashed, "best centralised"))
    if any(panel.popular is not None for panel in panels):
        dashed = line((-7, y), (7, y), stroke=POPULAR, width=1.4, dash="2 2")
        entries.append((dashed, "popular"))
    if any(panel.chance is not None for panel in panels):
        dotted = line((-7, y), (7, y), stroke=MUTED, width=1.4, dash="1.5 2.5")
        entries.append((dotted, "chance level"))
    for mark, name in entries:
        parts.append(f'<g transform="translate({x:.1f} 0)">{mark}</g>')
        parts.append(text(x + 11, 13, name, size=SIZE, fill=MUTED))
        x += text_width(name, SIZE) + 32
    return "".join(parts)
