"""Figures on a page: interactive with the extra `report`, static without it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from importlib import util

from coterie.report.figures import Figure
from coterie.report.interactive import div, script
from coterie.report.lines import line_plot


def is_interactive() -> bool:
    """Whether plotly is installed."""
    return util.find_spec("plotly") is not None


def charts(figures: Sequence[Figure], numbers: Iterator[int], more: str = "") -> str:
    """The figures side by side, below each other on a narrow screen; "" without any.

    `more` are static charts that follow.
    """
    drawn = "".join(_chart(figure, numbers) for figure in figures if figure.axes)
    return f"<div class=figures>{drawn}{more}</div>" if drawn or more else ""


def static_chart(figure: Figure) -> str:
    """The figure over each of its axes without a script: it needs no zoom and no buttons."""
    caption = f"<figcaption>{escape(figure.caption)}</figcaption>" if figure.caption else ""
    return "".join(f"<figure>{line_plot(figure, axis)}{caption}</figure>" for axis in figure.axes)


def _chart(figure: Figure, numbers: Iterator[int]) -> str:
    if is_interactive():
        return f"<div>{div(figure, next(numbers))}</div>"
    return static_chart(figure)


def scripts(body: str) -> str:
    """Plotly's script, if a figure of the page needs it."""
    return script() if "FIGURES.push" in body else ""
