"""How popular and varied recommended items are, and what of the catalogue they cover."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from coterie.report.bars import Bar, BarGroup, bar_plot
from coterie.report.parts import captioned, html_table
from coterie.report.references import Baselines, run_and_baselines
from coterie.report.table import metric_rows, shown
from coterie.types import JsonObject

ABOUT_LISTS = ("IC", "Gini", "Pop", "Nov", "Tail", "ILD", "CatILD", "Calib", "UC")
"""Metrics of the recommended lists, which say nothing about accuracy."""


def coverage_section(result: JsonObject, known: Baselines) -> str:
    """The share of the catalogue in a figure, and all metrics of lists in a table."""
    full: dict[str, float] = result["full"]
    names = [name for name in full if name.partition("@")[0] in ABOUT_LISTS]
    if not names:
        return ""
    columns = {"this run": _texts(full)}
    columns |= {one.label: _texts(one.full) for one in known.known if one.full}
    table = html_table(*metric_rows(columns, names), kind="metrics")
    return (
        f"{_sentences(result)}<div class=figures><div>{table}</div>{_picture(result, known)}</div>"
    )


def _texts(values: Mapping[str, float]) -> dict[str, str]:
    return {name: shown(name, value) for name, value in values.items()}


def _first(values: Mapping[str, float], metric: str) -> str:
    """The metric at its first cut-off; "" if it was not measured."""
    return next((name for name in values if name.startswith(f"{metric}@")), "")


def _sentences(result: JsonObject) -> str:
    full: dict[str, float] = result["full"]
    lines = []
    covered = _first(full, "IC")
    items = result["items"]
    if covered and items:
        k = covered.partition("@")[2]
        lines.append(
            f"The lists of {k} of all tested users have {full[covered]:,.0f} distinct items, "
            f"{full[covered] / items:.1%} of the catalogue."
        )
    popularity = _first(full, "Pop")
    if popularity:
        lines.append(
            f"On average {full[popularity]:.1%} of the users have a recommended item in their "
            "training data."
        )
    text = " ".join([*lines, "Lists are those of full ranking."])
    return f"<p>{escape(text)}</p>" if lines else ""


def _picture(result: JsonObject, known: Baselines) -> str:
    """The share of the catalogue that lists cover; "" if it was not measured."""
    covered = _first(result["full"], "IC")
    items = result["items"]
    if not covered or not items:
        return ""
    bars = [
        Bar(
            one.label, one.values[covered] / items, f"{one.values[covered] / items:.1%}", one.colour
        )
        for one in run_and_baselines(result["algorithm"], result["full"], known, "full")
        if covered in one.values
    ]
    title = "Share of the catalogue in lists"
    drawn = bar_plot([BarGroup(title, bars)], title)
    k = covered.partition("@")[2]
    return captioned(drawn, f"Distinct items in all lists of {k}, over items in the catalogue.")
