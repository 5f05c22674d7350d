"""The tables of a report: our figures next to the paper's, paired tests, and verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, stdev
from typing import TypeAlias

from coterie.report.table import shown
from coterie.types import JsonObject

PaperTable: TypeAlias = tuple[list[str], list[list[str]]]
"""Header and rows."""
ORDER = ("holds", "holds in part", "does not hold", "cannot be tested")
COLUMNS_OF_COST = ("rounds", "seconds", "MB up", "MB down")


def comparison(table: JsonObject) -> PaperTable:
    """Our figures and their deviation over seeds next to the paper's, full ranking, and costs."""
    metrics = table["metrics"]
    rows = table["rows"]
    printed = [m for k, m in enumerate(metrics) if any(len(v) > k for v in table["paper"].values())]
    ranked = [m for m in metrics if any(_differs_in_full(row, m) for row in rows.values())]
    costs = [c for c in COLUMNS_OF_COST if any(_cost(row, c) for row in rows.values())]
    header = ["method"]
    for metric in metrics:
        header += [metric, "paper", "difference"] if metric in printed else [metric]
    header += [f"{metric}, full ranking" for metric in ranked]
    lines = []
    for label, row in rows.items():
        cells = [label]
        for k, metric in enumerate(metrics):
            ours = row["metrics"].get(metric)
            cells.append(_spread(metric, ours))
            if metric in printed:
                paper = table["paper"].get(label, ())
                if len(paper) > k and ours:
                    difference = mean(ours) - paper[k]
                    cells += [_figure(metric, paper[k]), _signed(metric, difference)]
                else:
                    cells += ["", ""]
        cells += [_spread(metric, row["full"].get(metric)) for metric in ranked]
        lines.append([*cells, *(_cost(row, c) for c in costs)])
    return [*header, *costs], lines


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
    if metric.startswith(("IC", "vectors")):
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


def verdicts(items: Sequence[JsonObject]) -> dict[str, int]:
    """How many claims have each verdict."""
    given = [claim["verdict"] for item in items for claim in item["claims"]]
    return {verdict: given.count(verdict) for verdict in ORDER}


def counts_text(items: Sequence[JsonObject]) -> str:
    """The verdict counts in one line; verdicts that no claim has are left out."""
    return ", ".join(f"{verdict} {n}" for verdict, n in verdicts(items).items() if n)


def short_title(item: JsonObject) -> str:
    """The title up to its colon: "Table 2" of "Table 2: accuracy"."""
    return str(item["title"]).split(":")[0]


def claims(items: Sequence[JsonObject]) -> PaperTable:
    """Every claim with its verdict over all datasets; an item is named once."""
    header = ["item", "claim", "where", "verdict"]
    rows = []
    for item in items:
        title = short_title(item)
        for claim in item["claims"]:
            rows.append([title, claim["said"], claim["where"], claim["verdict"]])
            title = ""
    return header, rows


def evidence(item: JsonObject) -> PaperTable:
    """The evidence for every claim of an item, one row per dataset."""
    header = ["claim", "dataset", "verdict", "evidence"]
    rows = []
    for claim in item["claims"]:
        text = claim["said"]
        for dataset, found in claim["by"].items():
            for part in found["parts"]:
                rows.append([text, dataset, part["verdict"], part["evidence"]])
                text = ""
    return header, rows
