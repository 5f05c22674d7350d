"""Figures as data: what is drawn, not how. `static.py` draws them with matplotlib, `interactive.py` with plotly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Numbers = Sequence[float | None]
GREY = "#9aa5b1"
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
    name: str
    y: Numbers
    xs: dict[str, Numbers]
    """The same points over several things: rounds, megabytes, seconds. The first is shown first."""
    low: Numbers = ()
    high: Numbers = ()
    """A band, where there is one."""
    line: bool = True
    """Points are joined."""
    level: bool = False
    """One figure for all x: a method that is trained in one step."""
    beneath: bool = False
    """A thin grey line that others lie upon."""


@dataclass(frozen=True, slots=True)
class Figure:
    key: str
    """Of its file."""
    title: str
    y_label: str
    series: list[Series] = field(default_factory=list)
    log_x: bool = False
    caption: str = ""

    @property
    def axes(self) -> list[str]:
        """What it can be drawn over."""
        return list(dict.fromkeys(axis for series in self.series for axis in series.xs))
