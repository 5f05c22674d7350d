"""Sections that the page of one run and that of several runs share."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from coterie.report.conditions import READING, facts, reading_lines
from coterie.report.parts import facts_list, folded, html_table, list_of
from coterie.report.table import Reported, labels, metric_columns, metric_rows, settings_lines
from coterie.types import JsonObject


def followed(result: JsonObject) -> str:
    """The metric of the first figure: the one that training follows."""
    metric = result.get("convergence", {}).get("metric")
    return str(metric) if metric in result["metrics"] else str(result["headline"][0])


def all_metrics(runs: Sequence[Reported]) -> str:
    """Every metric of every run, folded."""
    columns: dict[str, dict[str, str]] = {}
    for name, run in zip(labels(runs), runs, strict=True):
        columns |= metric_columns(run, name if len(runs) > 1 else "")
    kinds = [run.result[kind] for kind in ("full", "metrics") for run in runs]
    names = list(dict.fromkeys(name for values in kinds for name in values))
    return folded("All metrics", html_table(*metric_rows(columns, names), kind="metrics"))


def category_bias(runs: Sequence[Reported]) -> str:
    """Bias by category of training data and of recommendations; "" if no run measured it."""
    biases = [(run.result.get("bias") or {}).get("categories", {}) for run in runs]
    if not any(biases):
        return ""
    names = {name for bias in biases for name in bias}
    columns = ("source", "recommended", "disparity")
    header = ["category", *(f"{name} {column}" for name in labels(runs) for column in columns)]
    rows = [
        [name, *(_number(bias.get(name, {}).get(column)) for bias in biases for column in columns)]
        for name in sorted(names)
    ]
    caption = (
        "Share of training records (source) and of recommendations over share of items: "
        "above 1 is over-represented. Disparity 0: recommendations have the bias of training."
    )
    return f"<h3>Bias by category</h3>{html_table(header, rows)}<p class=about>{caption}</p>"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def conditions(runs: Sequence[Reported]) -> str:
    """Data, filters, split and protocol, how the data was read, and all settings."""
    return (
        facts_list(facts(runs[0].result))
        + folded(READING, list_of(reading_lines(runs[0].result)), "settings")
        + folded("Settings", list_of(settings_lines(runs)), "settings")
    )


def commands(runs: Sequence[Reported]) -> str:
    """The command lines that repeat the runs."""
    folders = [run.result["run"] for run in runs if run.result["run"]]
    if not folders:
        return "<p>The run was not saved to a folder.</p>"
    lines = "\n".join(f"coterie run {folder}/config.yaml" for folder in folders)
    return f"<pre>{escape(lines)}</pre>"
