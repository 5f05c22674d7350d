"""The report of runs as Markdown: one section for each group of comparable runs."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.report.conditions import READING, facts, reading_lines
from coterie.report.groups import RunGroup, grouped, warning
from coterie.report.table import Reported, all_notes, markdown_list, markdown_table, settings_lines
from coterie.report.table import table as table_of


def markdown(runs: Sequence[Reported]) -> str:
    """Tables of comparable runs, each under its own heading with its conditions."""
    groups = grouped(runs)
    flag = warning(groups)
    parts = ["# Results\n", *([f"**{flag}**\n"] if flag else [])]
    return "\n".join([*parts, *map(_section, groups)])


def _section(group: RunGroup) -> str:
    runs = group.runs
    conditions = [f"{fact.name}: {line}" for fact in facts(runs[0].result) for line in fact.lines]
    conditions += [f"{READING}: {line}" for line in reading_lines(runs[0].result)]
    settings = [f"Settings of {line}" for line in settings_lines(runs)]
    title = " ".join(group.title.split())
    return (
        f"## {title}\n\n{markdown_table(*table_of(runs))}\n"
        f"{markdown_list([*conditions, *all_notes(runs), *settings])}"
    )
