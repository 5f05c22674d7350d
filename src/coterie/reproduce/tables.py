"""The tables of a report: our figures next to the paper's, costs, and paired tests."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, stdev
from typing import TypeAlias

from coterie.report.table import shown
from coterie.types import JsonObject

PaperTable: TypeAlias = tuple[list[str], list[list[str]]]
"""Header and rows."""
NARROW = 4
"""Most columns of a table in the docs, next to that of the methods. It is even: a metric and the
paper's figures stay together."""
WIDE = 8
"""Most columns of a table on a page."""
COLUMNS_OF_COST = ("rounds", "seconds", "MB up", "MB down")


def comparison(table: JsonObject) -> PaperTable:
    """Our figures with their deviation over seeds, next to the paper's."""
    metrics = table["metrics"]
    printed = [m for k, m in enumerate(metrics) if any(len(v) > k for v in table["paper"].values())]
    header = ["method"]
    for metric in metrics:
        header += [metric, "paper (difference)"] if metric in printed else [metric]
    lines = []
    for label, row in table["rows"].items():
        cells = [label]
        for k, metric in enumerate(metrics):
            ours = row["metrics"].get(metric)
            cells.append(_spread(metric, ours))
            if metric in printed:
                paper = table["paper"].get(label, ())
                cells.append(_printed(metric, paper[k], ours) if len(paper) > k else "")
        lines.append(cells)
    return header, lines


def _printed(metric: str, paper: float, ours: Sequence[float] | None) -> str:
    """The paper's figure, and how far ours is from it."""
    difference = f" ({_signed(metric, mean(ours) - paper)})" if ours else ""
    return _figure(metric, paper) + difference


def costs(table: JsonObject) -> PaperTable | None:
    """Full ranking where it differs from the protocol, rounds, time and traffic; None if empty."""
    rows = table["rows"]
    ranked = [m for m in table["metrics"] if any(_differs_in_full(r, m) for r in rows.values())]
    columns = [c for c in COLUMNS_OF_COST if any(_cost(row, c) for row in rows.values())]
    if not ranked and not columns:
        return None
    header = ["method", *(f"{metric}, full ranking" for metric in ranked), *columns]
    lines = []
    for label, row in rows.items():
        full = [_spread(metric, row["full"].get(metric)) for metric in ranked]
        lines.append([label, *full, *(_cost(row, c) for c in columns)])
    return header, lines


def narrow(table: PaperTable, most: int = NARROW) -> list[PaperTable]:
    """The table as tables of at most so many columns, each with the names of the methods."""
    header, rows = table
    starts = range(1, len(header), most)
    return [
        (
            [header[0], *header[start : start + most]],
            [[row[0], *row[start : start + most]] for row in rows],
        )
        for start in starts
    ]


def _differs_in_full(row: JsonObject, metric: str) -> bool:
    """Whether full ranking gives another value than the protocol."""
    return row.get("full", {}).get(metric) not in (None, row["metrics"].get(metric))


def _cost(row: JsonObject, name: str) -> str:
    costs = row.get("costs", {})
    if name == "rounds":
        return f"{costs['rounds']:,.0f}" if "rounds" in costs else ""
    if name == "seconds":
        return f"{costs['seconds']:,.1f}" if "seconds" in costs else ""
    value = costs.get("bytes_up" if name == "MB up" else "bytes_down")
    return f"{value / 1e6:,.1f}" if value else ""


def _spread(metric: str, values: Sequence[float] | None) -> str:
    if not values:
        return ""
    text = _figure(metric, mean(values))
    deviation = stdev(values) if len(values) > 1 else 0.0
    return f"{text} ±{_figure(metric, deviation)}" if deviation else text


def _figure(metric: str, value: float) -> str:
    if metric.startswith(("IC", "vectors", "rounds")):
        return f"{value:,.0f}"
    if metric.endswith(("ms", "MB")):
        return f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"
    return f"{value:+.3f}" if metric.startswith("BD ") else shown(metric, value)


def _signed(metric: str, value: float) -> str:
    text = _figure(metric, abs(value)).lstrip("+")
    return f"{'+' if value >= 0 else '−'}{text}"


def tests(table: JsonObject) -> PaperTable:
    """The paired tests over users."""
    header = ["first", "other", "metric", "difference", "95% interval", "p (Holm)"]
    rows = [
        [
            test["first"],
            test["other"],
            test["metric"],
            f"{test['difference']:+.4f}",
            f"{test['low']:+.4f} to {test['high']:+.4f}",
            "<0.0001" if test["p"] < 1e-4 else f"{test['p']:.4f}",
        ]
        for test in table["tests"]
    ]
    return header, rows


def short_title(item: JsonObject) -> str:
    """The title up to its colon: "Table 2" of "Table 2: accuracy"."""
    return str(item["title"]).split(":")[0]
