"""The tables of a report: theirs beside ours, and the verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any

from coterie.report.table import shown

Table = tuple[list[str], list[list[str]]]
ORDER = ("holds", "holds in part", "does not hold", "cannot be tested")


def theirs_beside_ours(table: Mapping[str, Any]) -> Table:
    """Every metric with its deviation over seeds, the paper's figure and the difference; then full ranking and costs."""
    metrics = table["metrics"]
    rows = table["rows"]
    printed = [m for k, m in enumerate(metrics) if any(len(v) > k for v in table["paper"].values())]
    ranked = [
        m
        for m in metrics
        if any(
            row.get("full", {}).get(m) not in (None, row["metrics"].get(m)) for row in rows.values()
        )
    ]
    header = ["method"]
    for metric in metrics:
        header += [metric, "paper", "difference"] if metric in printed else [metric]
    header += [f"{metric}, full ranking" for metric in ranked]
    costs = [
        c
        for c in ("rounds", "seconds", "MB up", "MB down")
        if any(_cost(row, c) for row in rows.values())
    ]
    found = []
    for label, row in rows.items():
        cells = [label]
        for k, metric in enumerate(metrics):
            ours = row["metrics"].get(metric)
            cells.append(_spread(metric, ours))
            if metric in printed:
                theirs = table["paper"].get(label, ())
                cells += (
                    [_figure(metric, theirs[k]), _gap(metric, mean(ours) - theirs[k])]
                    if len(theirs) > k and ours
                    else ["", ""]
                )
        cells += [_spread(metric, row["full"].get(metric)) for metric in ranked]
        found.append([*cells, *(_cost(row, c) for c in costs)])
    return [*header, *costs], found


def _cost(row: Mapping[str, Any], name: str) -> str:
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


def _gap(metric: str, value: float) -> str:
    text = _figure(metric, abs(value)).lstrip("+")
    return f"{'+' if value >= 0 else '−'}{text}"


def tests(table: Mapping[str, Any]) -> Table:
    """Paired over users."""
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


def verdicts(items: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many claims came out how."""
    found = [claim["verdict"] for item in items for claim in item["claims"]]
    return {verdict: found.count(verdict) for verdict in ORDER}


def claims(item: Mapping[str, Any]) -> Table:
    header = ["claim", "where", "verdict", "what we found"]
    rows = [
        [
            claim["said"],
            claim["where"],
            claim["verdict"],
            "; ".join(
                f"{name} ({verdict}): {text}" for name, (verdict, text) in claim["by"].items()
            ),
        ]
        for claim in item["claims"]
    ]
    return header, rows
