"""The report of a paper as one self-contained HTML page: summary, scoreboard, claims, methods."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import count

from coterie.algorithms.registry import ALGORITHMS
from coterie.report.interactive import div, script
from coterie.report.parts import document, facts_list, folded, html_table, list_of
from coterie.reproduce import figures, methods, pictures, scoreboard, tables
from coterie.types import JsonObject

QUICK = (
    "A quick look: one seed, the smallest data and few rounds. "
    "It shows that everything runs. Its verdicts and figures are not results."
)
LEGEND = (
    "Each line is one comparison: our value and its interval (95 % over users for a difference, "
    "the range over seeds for a ratio). Vertical lines: no effect (solid), the claim's threshold "
    "(dashed). Green: the claim holds, for a difference with p < 0.05 after Holm's correction over "
    "all tests of the dataset. Red: it is not shown, which does not show the opposite. A claim of "
    "being ahead of all others needs every comparison."
)


def page(report: JsonObject, prose: str = "", command: str = "") -> str:
    """The result of `running.reproduce` as HTML."""
    numbers = count(1)
    conclusion, details = split_prose(prose)
    items = report["items"]
    return document(
        f"{report['paper']}: {report['title']}",
        [
            _opening(report, conclusion),
            _navigation(report, bool(details)),
            _claims(report),
            _methods(report, command),
            *(_section(item, report, numbers) for item in items),
            f"<section id=notes>{rendered(details)}</section>" if details else "",
        ],
        script(),
    )


def split_prose(text: str) -> tuple[str, str]:
    """(conclusion, details): the conclusion is the text before the first heading."""
    if text.startswith("## "):
        return "", text
    conclusion, heading, details = text.partition("\n## ")
    return conclusion, (heading + details).lstrip("\n")


# ---- the first screen


def _opening(report: JsonObject, conclusion: str) -> str:
    """Title, summary, scoreboard and one figure: what a reader sees first."""
    quick = f"<p class=quick>{escape(quick_text(report))}</p>" if report["quick"] else ""
    version = escape(report["code"]["coterie"])
    return (
        f"<header><h1>{escape(report['title'])}</h1>"
        f"<p class=about>{escape(report['reference'])} Reproduced with Coterie {version}.</p>"
        f"{quick}<div class=opening><div><div id=summary>{rendered(conclusion)}</div>"
        f"{_scoreboard(report)}</div>{_overview(report)}</div></header>"
    )


def quick_text(report: JsonObject) -> str:
    """What a quick look is, and which data it lacks."""
    return f"{QUICK} {report.get('missing', '')}".rstrip()


def _scoreboard(report: JsonObject) -> str:
    lines = "".join(
        f"<div class=score><b>{score.title}</b> {scoreboard.score_badges(score)}</div>"
        for score in scoreboard.scores(report["items"])
    )
    return f"<div class=scoreboard id=scoreboard>{lines}</div>"


def _overview(report: JsonObject) -> str:
    shown = pictures.overview(report)
    if shown is None:
        return ""
    caption = escape(shown.caption)
    return f"<figure id=overview>{shown.svg}<figcaption>{caption}</figcaption></figure>"


def _navigation(report: JsonObject, has_notes: bool) -> str:
    links = "".join(_link(item) for item in report["items"])
    notes = "<a href=#notes>Discussion</a>" if has_notes else ""
    return f"<nav><a href=#claims>Claims</a><a href=#methods>Methods</a>{links}{notes}</nav>"


def _link(item: JsonObject) -> str:
    return f"<a href=#{item['key']}>{escape(tables.short_title(item))}</a>"


# ---- claims


def _claims(report: JsonObject) -> str:
    parts = [f"<section id=claims><h2>Claims</h2><p class=about>{LEGEND}</p>"]
    for item in report["items"]:
        if item["claims"]:
            parts.append(f"<h3>{_link(item)}</h3>")
            parts += [_claim(claim) for claim in item["claims"]]
    return "".join(parts) + "</section>"


def _claim(claim: JsonObject) -> str:
    """One row: verdict, claim, and a plot of its effects; the evidence is folded."""
    ours = "<span class=ours>ours</span> " if claim["ours"] else ""
    where = (
        "" if claim["where"] == "ours" else f" <span class=where>({escape(claim['where'])})</span>"
    )
    holds = scoreboard.where_it_holds(claim)
    plots = "".join(pictures.forests(claim))
    shown = pictures.fits_a_row(claim)
    below = f"<div class=plots>{plots}</div>" if plots and not shown else ""
    return (
        f"<div class=claim><div>{scoreboard.badge(claim['verdict'])}</div>"
        f"<div>{ours}{escape(sentence(claim['said']))}{where}"
        f"{f'<br><b>{escape(holds)}</b>' if holds else ''}"
        f"{folded('Evidence', f'{below}<ul>{_evidence(claim)}</ul>')}</div>"
        f"<div class=plots>{plots if shown else _datasets(claim)}</div></div>"
    )


def sentence(text: str) -> str:
    """The text with a capital letter, unless it starts with a name: fedavg, sFPL, p = 5."""
    first = text.partition(" ")[0]
    if first in ALGORITHMS or not first.islower() or text.startswith(f"{first} = "):
        return text
    return text[:1].upper() + text[1:]


def _datasets(claim: JsonObject) -> str:
    """The verdict on every dataset, for a claim whose effects are not plotted in its row."""
    return "".join(
        scoreboard.badge(found["verdict"], scoreboard.dataset_text(dataset, found))
        for dataset, found in claim["by"].items()
    )


def _evidence(claim: JsonObject) -> str:
    return "".join(
        f"<li>{scoreboard.badge(part['verdict'], dataset)} {escape(part['evidence'])}</li>"
        for dataset, found in claim["by"].items()
        for part in found["parts"]
    )


# ---- methods


def _methods(report: JsonObject, command: str) -> str:
    settings = "".join(
        folded(
            f"Settings: {tables.short_title(item)}, {table['dataset']}",
            list_of(methods.settings_lines(table)),
            "settings",
        )
        for item in report["items"]
        for table in item["tables"]
        if any("settings" in row for row in table["rows"].values())
    )
    return (
        f"<section id=methods><h2>Methods</h2><pre>{escape(command)}</pre>"
        f"{facts_list(methods.facts(report))}{settings}</section>"
    )


# ---- tables and figures


def _section(item: JsonObject, report: JsonObject, numbers: Iterator[int]) -> str:
    about = rendered(item["about"], inline=True)
    parts = [f"<section id={item['key']}><h2>{escape(item['title'])}</h2><p>{about}</p>"]
    dots = "".join(f"<figure>{svg}</figure>" for svg in pictures.dot_plots(item).values())
    parts.append(f"<div class=figures>{dots}</div>" if dots else "")
    drawn = [
        f"<div>{div(figure, next(numbers))}</div>"
        for figure in figures.item_figures(item, report["items"])
        if figure.series
    ]
    parts.append(f"<div class=figures>{''.join(drawn)}</div>" if drawn else "")
    parts += [_table(table) for table in item["tables"]]
    if item["absent"]:
        parts.append(f"<h3>Not reproduced</h3>{list_of(item['absent'])}")
    return "".join(parts) + "</section>"


def _table(table: JsonObject) -> str:
    """Our figures next to the paper's; costs and paired tests are folded."""
    more = ""
    costs = tables.costs(table)
    if costs:
        more += folded("Full ranking and costs", html_table(*costs))
    if table["tests"]:
        more += folded("Paired tests", html_table(*tables.tests(table)))
    parts = tables.narrow(tables.comparison(table), tables.WIDE)
    compared = "".join(html_table(*part) for part in parts)
    return (
        f"<h3>{escape(table['dataset'])}</h3>"
        f"<p class=about>{escape(protocol_text(table))}</p>"
        f"{compared}{more}"
    )


def protocol_text(table: JsonObject) -> str:
    """How the figures of a table were measured."""
    if "seeds" not in table:
        return "Measured once on this machine."
    seeds = "1 seed"
    if table["seeds"] != 1:
        seeds = f"{table['seeds']} seeds, mean ± standard deviation"
    return (
        f"Protocol {table['protocol']}; {seeds}; {table['tested_users']:,} test users. "
        f"Data {table['data']}."
    )


def rendered(text: str, inline: bool = False) -> str:
    """Markdown as HTML. HTML tags in the Markdown are escaped."""
    from markdown_it import MarkdownIt

    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    html = str(reader.renderInline(text) if inline else reader.render(text))
    # Wide tables of the prose scroll on their own, as the generated ones do.
    return html.replace("<table>", "<div class=prose><table>").replace("</table>", "</table></div>")
