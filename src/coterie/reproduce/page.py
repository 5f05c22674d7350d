"""The report of a paper as one self-contained HTML page: summary, scoreboard, claims, methods."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import count

from coterie.algorithms.registry import ALGORITHMS
from coterie.report.interactive import div, script
from coterie.report.page import document, html_table
from coterie.reproduce import figures, methods, pictures, scoreboard, tables
from coterie.types import JsonObject

STYLE = """
body { max-width: 74rem; margin: 1.4rem auto }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .2rem }
h2 { font-size: 1.25rem; margin-top: 2rem; border-top: 2px solid #1d2733; padding-top: .5rem }
h3 { font-size: 1rem; margin: 1.6rem 0 .3rem }
.opening { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 2rem }
.opening p, .opening ul { margin: .5rem 0 } .opening ul { padding-left: 1.1rem }
.opening li { margin-bottom: .35rem }
figure { margin: 0 } figure svg, .plots svg { max-width: 100%; height: auto; display: block }
figcaption { color: #5c677d; font-size: .85rem; margin-top: .3rem }
.scoreboard { border-top: 1px solid #e3e8ee; padding-top: .5rem; margin-top: .6rem }
.score { margin-bottom: .5rem } .score b { margin-right: .3rem }
nav {
  position: sticky; top: 0; background: #fff; padding: .5rem 0; margin-top: 1.2rem; z-index: 2;
  border-bottom: 1px solid #e3e8ee; display: flex; flex-wrap: wrap; gap: .2rem 1rem;
  font-size: .9rem }
a { color: #2a6f97; text-decoration: none }
.badge {
  border-radius: 1rem; padding: .05rem .6rem; font-size: .85rem; font-weight: 600;
  white-space: nowrap; display: inline-block }
.holds { background: #dff2e4; color: #1f6b3a } .part { background: #fdf1d3; color: #7a5a00 }
.not { background: #fbe0dc; color: #9b2c1a } .open { background: #e9ecf1; color: #4a5568 }
.ours { border: 1px solid #c3ccd6; border-radius: .3rem; padding: 0 .3rem; font-size: .78rem }
.claim {
  border-bottom: 1px solid #e3e8ee; padding: .55rem 0; display: grid; column-gap: 1.2rem;
  grid-template-columns: 10rem minmax(0, 1fr) minmax(0, 27.5rem); align-items: start }
.claim .where { color: #5c677d; font-size: .85rem }
.claim details { margin-top: .2rem; font-size: .9rem }
.claim ul { margin: .3rem 0; padding-left: 1.1rem }
.claim .plots .badge { margin: 0 .25rem .25rem 0; font-weight: 400 }
summary { cursor: pointer; color: #2a6f97 }
dl.methods { display: grid; grid-template-columns: 10rem minmax(0, 1fr); gap: .3rem 1.2rem }
dl.methods dt { font-weight: 600 } dl.methods dd { margin: 0 } dl.methods p { margin: 0 0 .2rem }
.methods, .settings { font-size: .92rem } .settings li { overflow-wrap: anywhere }
#notes td, #notes th { text-align: left; white-space: normal }
.figure { width: 100%; min-height: 380px }
.figures {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: 1rem }
.figures > * { min-width: 0 }
.quick { background: #fdf1d3; padding: .7rem 1rem; border-radius: .5rem }
.wide th, .wide td { white-space: normal } th, td { vertical-align: top }
code, pre { overflow-wrap: anywhere } pre { white-space: pre-wrap }
@media (max-width: 60rem) {
  .claim { grid-template-columns: 8.5rem minmax(0, 1fr) }
  .claim .plots { grid-column: 1 / -1; margin-top: .4rem } }
@media (max-width: 48rem) {
  body { font-size: 14px; line-height: 1.4; margin: .8rem auto; padding: 0 .9rem }
  h1 { font-size: 1.15rem }
  .opening { grid-template-columns: minmax(0, 1fr); gap: .6rem }
  .opening p, .opening ul { margin: .35rem 0 } .opening li { margin-bottom: .2rem }
  .claim, dl.methods { grid-template-columns: minmax(0, 1fr) }
  nav { position: static }
  .wide { overflow: visible } .wide thead { display: none }
  .wide table, .wide tbody { display: block }
  .wide tr {
    display: flex; flex-wrap: wrap; gap: 0 1rem; padding: .3rem 0;
    border-bottom: 1px solid #e3e8ee }
  .wide td { border: 0; padding: 0; text-align: left; white-space: normal }
  .wide td:first-child { flex-basis: 100%; font-weight: 600 }
  .wide td:empty { display: none }
  .wide td:not(:first-child)::before { content: attr(data-label) " "; color: #5c677d } }
@media print {
  nav { display: none } details::details-content { content-visibility: visible; display: block }
  .claim, figure, .figure { break-inside: avoid } body { max-width: none } }
"""
QUICK = (
    "A quick look: one seed, the smallest data and few rounds. "
    "It shows that everything runs. Its verdicts and figures are not results."
)
LEGEND = (
    "Each line is one comparison: our value and its interval (95 % over users for a difference, "
    "the range over seeds for a ratio), coloured by verdict. Solid: no effect. Dashed: where the "
    "claim begins to hold."
)


def page(report: JsonObject, prose: str = "", command: str = "") -> str:
    """The result of `running.reproduce` as HTML."""
    numbers = count(1)
    conclusion, details = split_prose(prose)
    items = report["items"]
    return document(
        f"{report['paper']}: {report['title']}",
        [
            f"<style>{STYLE}</style>{script()}",
            _opening(report, conclusion),
            _navigation(report, bool(details)),
            _claims(report),
            _methods(report, command),
            *(_section(item, report, numbers) for item in items),
            f"<section id=notes>{rendered(details)}</section>" if details else "",
        ],
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
    folded = f"<div class=plots>{plots}</div>" if plots and not shown else ""
    return (
        f"<div class=claim><div>{scoreboard.badge(claim['verdict'])}</div>"
        f"<div>{ours}{escape(sentence(claim['said']))}{where}"
        f"{f'<br><b>{escape(holds)}</b>' if holds else ''}"
        f"<details><summary>Evidence</summary>{folded}<ul>{_evidence(claim)}</ul></details></div>"
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
    entries = "".join(
        f"<dt>{fact.name}</dt><dd>{''.join(f'<p>{escape(line)}</p>' for line in fact.lines)}</dd>"
        for fact in methods.facts(report)
    )
    settings = "".join(
        f"<details class=settings><summary>Settings: {escape(tables.short_title(item))}, "
        f"{escape(table['dataset'])}</summary><ul>"
        f"{''.join(f'<li>{escape(line)}</li>' for line in methods.settings_lines(table))}"
        "</ul></details>"
        for item in report["items"]
        for table in item["tables"]
        if any("settings" in row for row in table["rows"].values())
    )
    return (
        f"<section id=methods><h2>Methods</h2><pre>{escape(command)}</pre>"
        f"<dl class=methods>{entries}</dl>{settings}</section>"
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
        reasons = "".join(f"<li>{escape(text)}</li>" for text in item["absent"])
        parts.append(f"<h3>Not reproduced</h3><ul>{reasons}</ul>")
    return "".join(parts) + "</section>"


def _table(table: JsonObject) -> str:
    """Our figures next to the paper's; costs and paired tests are folded."""
    folded = ""
    costs = tables.costs(table)
    if costs:
        folded += (
            f"<details><summary>Full ranking and costs</summary>{html_table(*costs)}</details>"
        )
    if table["tests"]:
        tests = html_table(*tables.tests(table))
        folded += f"<details><summary>Paired tests</summary>{tests}</details>"
    return (
        f"<h3>{escape(table['dataset'])}</h3>"
        f"<p class=about>{escape(protocol_text(table))}</p>"
        f"{html_table(*tables.comparison(table))}{folded}"
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
