"""The report of a paper as Markdown, for the docs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coterie.report.table import markdown_list, markdown_table
from coterie.reproduce import figures, tables
from coterie.reproduce.page import QUICK, about, machines, told

BEGIN = "<!-- papers -->\n"
END = "<!-- end of papers -->\n"


def summary(papers: Mapping[str, Mapping[str, Any]]) -> str:
    """One line a paper: how many of its claims came out how."""
    rows = []
    for name, found in papers.items():
        data = dict.fromkeys(
            table["dataset"] for item in found["items"] for table in item["tables"]
        )
        counts = [str(n) for n in tables.verdicts(found["items"]).values()]
        rows.append([f"[{name}]({name}.md)", ", ".join(data), *counts])
    return markdown_table(["paper", "run on", *tables.ORDER], rows)


def markdown(
    found: Mapping[str, Any], prose: str = "", command: str = "", pictures: str = "figures"
) -> str:
    """What `running.reproduce` returns; figures are linked as PICTURES/NAME.svg."""
    counts = ", ".join(
        f"{verdict} {n}" for verdict, n in tables.verdicts(found["items"]).items() if n
    )
    parts = [
        f"# {found['title']}\n",
        f"{found['reference']}\n",
        f"**{QUICK}**\n" if found["quick"] else "",
        f"```\n{command}\n```\n" if command else "",
        f"## What is claimed, and what holds\n\nClaims: {counts}.\n",
    ]
    for item in found["items"]:
        if item["claims"]:
            parts.append(f"### {item['title']}\n\n{markdown_table(*tables.claims(item))}")
    for item in found["items"]:
        parts += _section(item, pictures)
    return "\n".join(part for part in [*parts, prose, _how(found)] if part)


def _section(item: Mapping[str, Any], pictures: str) -> list[str]:
    beside = ", theirs beside ours" if any(table["paper"] for table in item["tables"]) else ""
    parts = [f"## {item['title']}{beside}\n\n{item['about']}\n"]
    for table in item["tables"]:
        parts.append(
            f"**{table['dataset']}.** {about(table)}\n\n{markdown_table(*tables.theirs_beside_ours(table))}"
        )
    parts += [
        f"![{figure.title}]({pictures}/{figure.key}.svg)\n"
        for figure in figures.of_item(item)
        if figure.series
    ]
    if item["absent"]:
        parts.append(f"Not repeated:\n\n{markdown_list(item['absent'])}")
    return parts


def _how(found: Mapping[str, Any]) -> str:
    return f"## How\n\n{markdown_list([told(found['code']), *machines(found)])}"
