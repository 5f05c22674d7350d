"""The report of a paper as Markdown, for the docs. Its HTML tags only add colour and folding."""

from __future__ import annotations

from collections.abc import Mapping

from coterie.report.table import markdown_list, markdown_table
from coterie.reproduce import figures, methods, pictures, scoreboard, tables
from coterie.reproduce.page import LEGEND, protocol_text, quick_text, sentence, split_prose
from coterie.types import JsonObject

BEGIN = "<!-- papers -->\n"
END = "<!-- end of papers -->\n"


def summary(papers: Mapping[str, JsonObject]) -> str:
    """One line per paper: its datasets, and the verdict counts of its claims and of ours."""
    rows = []
    for name, report in papers.items():
        items = report["items"]
        datasets = dict.fromkeys(table["dataset"] for item in items for table in item["tables"])
        counts = [str(n) for n in scoreboard.verdicts(items, ours=False).values()]
        ours = scoreboard.counts_text(scoreboard.verdicts(items, ours=True))
        rows.append([f"[{name}]({name}.md)", ", ".join(datasets), *counts, ours])
    return markdown_table(["paper", "run on", *scoreboard.ORDER, "our additional claims"], rows)


def markdown(
    report: JsonObject, prose: str = "", command: str = "", folder: str = "figures"
) -> str:
    """The result of `running.reproduce`; pictures are linked as FOLDER/NAME.svg.

    The page opens with the summary, the scoreboard and one figure; then come the claims.
    """
    conclusion, details = split_prose(prose)
    parts = [
        f"# {report['title']}\n",
        f"{report['reference']}\n",
        f"**{quick_text(report)}**\n" if report["quick"] else "",
        conclusion,
        _scoreboard(report),
        _overview(report, folder),
        f"## Claims\n\n{LEGEND}\n",
        *(_claims(item, folder) for item in report["items"] if item["claims"]),
        _methods(report, command),
    ]
    for item in report["items"]:
        parts += _section(item, report, folder)
    return "\n".join(part for part in [*parts, details] if part)


def _scoreboard(report: JsonObject) -> str:
    lines = [
        f"**{score.title}:** {scoreboard.score_badges(score)}\n"
        for score in scoreboard.scores(report["items"])
    ]
    return "\n".join(lines)


def _overview(report: JsonObject, folder: str) -> str:
    shown = pictures.overview(report)
    if shown is None:
        return ""
    return f"![{shown.caption}]({folder}/{shown.key}.svg)\n\n*{shown.caption}*\n"


def _claims(item: JsonObject, folder: str) -> str:
    rows = "\n".join(_claim(claim, item, folder) for claim in item["claims"])
    return f"### {item['title']}\n\n{rows}"


def _claim(claim: JsonObject, item: JsonObject, folder: str) -> str:
    """One block: verdict, claim, and a plot of its effects; the evidence is folded."""
    ours = "(ours) " if claim["ours"] else ""
    where = "" if claim["where"] == "ours" else f" *({claim['where']})*"
    holds = scoreboard.where_it_holds(claim)
    plots = [
        f"![Effects by dataset]({folder}/{pictures.claim_key(item, claim, number)}.svg)"
        for number in range(len(pictures.forests(claim)))
    ]
    drawn = "\n".join(plots)
    verdicts = " ".join(
        scoreboard.badge(found["verdict"], scoreboard.dataset_text(dataset, found))
        for dataset, found in claim["by"].items()
    )
    shown = pictures.fits_a_row(claim)
    evidence = [
        f"{scoreboard.SIGNS[part['verdict']]} {dataset}: {part['evidence']}"
        for dataset, found in claim["by"].items()
        for part in found["parts"]
    ]
    listed = markdown_list([_escaped(line) for line in evidence])
    lines = [
        '<div class="claim">\n',
        f"{scoreboard.badge(claim['verdict'])} {ours}{_escaped(sentence(claim['said']))}{where}"
        f"{f' **{_escaped(holds)}**' if holds else ''}\n",
        f"{drawn if shown else verdicts}\n",
        folded("Evidence", f"{drawn}\n\n{listed}" if drawn and not shown else listed),
        "</div>\n",
    ]
    return "\n".join(lines)


def folded(title: str, text: str) -> str:
    """Markdown that a reader opens by a click."""
    return f"<details><summary>{title}</summary>\n\n{text}\n</details>\n"


def _escaped(text: str) -> str:
    """Text that Markdown leaves as it is."""
    for letter in "\\`*_<>[]":
        text = text.replace(letter, f"\\{letter}")
    return text


def _methods(report: JsonObject, command: str) -> str:
    parts = ["## Methods\n", f"```\n{command}\n```\n" if command else ""]
    for fact in methods.facts(report):
        if len(fact.lines) == 1:
            parts.append(f"**{fact.name}.** {_escaped(fact.lines[0])}\n")
        else:
            lines = markdown_list([_escaped(line) for line in fact.lines])
            parts.append(f"**{fact.name}.**\n\n{lines}")
    for item in report["items"]:
        for table in item["tables"]:
            if any("settings" in row for row in table["rows"].values()):
                lines = markdown_list([_escaped(line) for line in methods.settings_lines(table)])
                title = f"Settings: {tables.short_title(item)}, {table['dataset']}"
                parts.append(folded(title, lines))
    return "\n".join(part for part in parts if part)


def _narrow(table: tables.PaperTable) -> str:
    return "\n".join(markdown_table(*part) for part in tables.narrow(table))


def _section(item: JsonObject, report: JsonObject, folder: str) -> list[str]:
    parts = [f"## {item['title']}\n\n{item['about']}\n"]
    parts += [f"![{key}]({folder}/{key}.svg)\n" for key in pictures.dot_plots(item)]
    parts += [
        f"![{figure.title}]({folder}/{figure.key}.svg)\n"
        for figure in figures.item_figures(item, report["items"])
        if figure.series
    ]
    for table in item["tables"]:
        heading = f"**{table['dataset']}.** {protocol_text(table)}"
        parts.append(f"{heading}\n\n{_narrow(tables.comparison(table))}")
        costs = tables.costs(table)
        if costs:
            parts.append(folded("Full ranking and costs", _narrow(costs)))
    if item["absent"]:
        parts.append(f"Not reproduced:\n\n{markdown_list(item['absent'])}")
    return parts
