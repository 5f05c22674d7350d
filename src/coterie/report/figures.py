"""Figures as data.

`static.py` draws them with matplotlib, `interactive.py` with plotly, `lines.py` without either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Coordinates = Sequence[float | None]
GREY = "#9aa5b1"
AXES = ("rounds", "epochs", "updates", "megabytes", "seconds")
"""The axes of training, in the order in which they are offered."""
COLOURS = (
    "#2a6f97",
    "#e07a5f",
    "#3d8361",
    "#8e5ea2",
    "#c9a227",
    "#5c677d",
    "#b5446e",
    "#4ea8de",
    "#7f5539",
    "#1d3557",
)


@dataclass(frozen=True, slots=True)
class Series:
    """One line or set of points of a figure."""

    name: str
    y: Coordinates
    xs: dict[str, Coordinates]
    """The x values for every axis, such as rounds or megabytes. The first axis is shown first."""
    low: Coordinates = ()
    high: Coordinates = ()
    """The band around the line; empty if there is none."""
    line: bool = True
    """Whether points are joined."""
    labelled: bool = False
    """Whether its name stands beside its points."""
    level: bool = False
    """Whether it is one value for all x: a method that is trained in one step."""
    beneath: bool = False
    """Whether it is a thin grey line behind the others."""
    like: str = ""
    """The series whose colour it has: the paper's figure of the same method, or the same method
    with another setting. Drawn dotted."""
    reference: bool = False
    """Whether it is a grey level that is no method: the chance level."""
    colour: str = ""
    """A colour of its own, which it has in other pictures of the page; "" for one by its place."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure to draw."""

    key: str
    """Name of its file, without the ending."""
    title: str
    y_label: str
    series: list[Series] = field(default_factory=list)
    log_x: bool = False
    caption: str = ""
    height: float = 230
    """Of the panel. Many names beside points need more."""

    def colour(self, number: int) -> str:
        """The colour of a series, by its place among the methods or by the series it is like."""
        series = self.series[number]
        if series.colour:
            return series.colour
        if series.reference or series.beneath:
            return GREY
        names = [one.name for one in self.series if not one.like and not one.reference]
        return COLOURS[names.index(series.like or series.name) % len(COLOURS)]

    @property
    def axes(self) -> list[str]:
        """The x axes that it can be drawn over."""
        found = dict.fromkeys(axis for series in self.series for axis in series.xs)
        return sorted(found, key=lambda axis: AXES.index(axis) if axis in AXES else -1)
