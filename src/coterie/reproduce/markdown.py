"""The report of a paper as Markdown, for the docs."""

from __future__ import annotations

from collections.abc import Mapping

from coterie.report.table import markdown_list, markdown_table
from coterie.reproduce import figures, tables
from coterie.reproduce.page import QUICK, key_values, machines, protocol_text, split_prose
from coterie.types import JsonObject

BEGIN = "<!-- papers -->\n"
END = "<!-- end of papers -->\n"


def summary(papers: Mapping[str, JsonObject]) -> str:
    """One line per paper: its datasets and its verdict counts."""
    rows = []
    for name, report in papers.items():
        datasets = dict.fromkeys(
            table["dataset"] for item in report["items"] for table in item["tables"]
        )
        counts = [str(n) for n in tables.verdicts(report["items"]).values()]
        rows.append([f"[{name}]({name}.md)", ", ".join(datasets), *counts])
    return markdown_table(["paper", "run on", *tables.ORDER], rows)


def markdown(
    report: JsonObject, prose: str = "", command: str = "", pictures: str = "figures"
) -> str:
    """The result of `running.reproduce`; figures are linked as PICTURES/NAME.svg.

    The page opens with the verdict counts and the conclusion, then lists the verdicts.
    """
    conclusion, details = split_prose(prose)
    items = report["items"]
    parts = [
        f"# {report['title']}\n",
        f"{report['reference']}\n",
        f"**{QUICK}**\n" if report["quick"] else "",
        f"**Claims: {tables.counts_text(items)}.**\n",
        conclusion,
        markdown_table(*tables.claims(items)),
        f"Reproduce it with:\n\n```\n{command}\n```\n" if command else "",
        "## Evidence\n",
    ]
    for item in items:
        if item["claims"]:
            parts.append(f"### {item['title']}\n\n{markdown_table(*tables.evidence(item))}")
    for item in items:
        parts += _section(item, pictures)
    return "\n".join(part for part in [*parts, details, _provenance(report)] if part)


def _section(item: JsonObject, pictures: str) -> list[str]:
    parts = [f"## {item['title']}\n\n{item['about']}\n"]
    for table in item["tables"]:
        heading = f"**{table['dataset']}.** {protocol_text(table)}"
        parts.append(f"{heading}\n\n{markdown_table(*tables.comparison(table))}")
    parts += [
        f"![{figure.title}]({pictures}/{figure.key}.svg)\n"
        for figure in figures.item_figures(item)
        if figure.series
    ]
    if item["absent"]:
        parts.append(f"Not reproduced:\n\n{markdown_list(item['absent'])}")
    return parts


def _provenance(report: JsonObject) -> str:
    lines = [key_values(report["code"]), *machines(report)]
    return f"## Provenance\n\n{markdown_list(lines)}"
