"""The report of a paper as one self-contained HTML page, verdicts first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import count

from coterie.report.interactive import div, script
from coterie.report.page import document, html_table
from coterie.reproduce import figures, tables
from coterie.types import JsonObject

STYLE = """
body { max-width: 72rem }
nav {
  position: sticky; top: 0; background: #fff; padding: .5rem 0; border-bottom: 1px solid #e3e8ee;
  z-index: 2; overflow-x: auto; white-space: nowrap }
nav a { margin-right: 1rem; color: #2a6f97; text-decoration: none }
.counts { display: flex; flex-wrap: wrap; gap: .6rem; margin: 1rem 0 }
.counts div { border-radius: .5rem; padding: .5rem .9rem; font-weight: 600 }
.counts b { font-size: 1.5rem; display: block; line-height: 1.2 }
.badge {
  border-radius: 1rem; padding: .05rem .6rem; font-size: .85rem; font-weight: 600;
  white-space: nowrap; display: inline-block }
.holds { background: #dff2e4; color: #1f6b3a } .part { background: #fdf1d3; color: #7a5a00 }
.not { background: #fbe0dc; color: #9b2c1a } .open { background: #e9ecf1; color: #4a5568 }
.claim { border-bottom: 1px solid #e3e8ee; padding: .5rem 0 }
.claim summary {
  cursor: pointer; list-style: none; display: grid; grid-template-columns: 9.5rem 1fr; gap: .8rem;
  align-items: start }
.claim summary::-webkit-details-marker { display: none }
.claim summary .where { color: #5c677d; font-size: .85rem }
.claim dl { margin: .4rem 0 .2rem 10.3rem; font-size: .92rem }
.claim dt { font-weight: 600; float: left; clear: left; margin-right: .5rem }
.claim dd { margin: 0 0 .3rem 0 }
#notes td, #notes th { text-align: left; white-space: normal }
.figure { width: 100%; min-height: 380px }
.figures {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: 1rem }
.figures > div { min-width: 0 }
.quick { background: #fdf1d3; padding: .7rem 1rem; border-radius: .5rem }
td { vertical-align: top }
@media (max-width: 40rem) {
  .claim summary { grid-template-columns: 1fr }
  .claim dl { margin-left: 0 }
  body { margin: 1rem auto }
}
@media print {
  nav { display: none } details { display: block } .figure { break-inside: avoid } }
"""
BADGES = {
    "holds": "holds",
    "holds in part": "part",
    "does not hold": "not",
    "cannot be tested": "open",
}
QUICK = (
    "A quick look: one seed, the smallest data and few rounds. "
    "It shows that everything runs. Its verdicts and figures are not results."
)


def page(report: JsonObject, prose: str = "", command: str = "") -> str:
    """The result of `running.reproduce` as HTML."""
    numbers = count(1)
    conclusion, details = split_prose(prose)
    return document(
        f"{report['paper']}: {report['title']}",
        [
            f"<style>{STYLE}</style>{script()}",
            _head(report, conclusion),
            *(_section(item, numbers) for item in report["items"]),
            f"<section id=notes>{rendered(details)}</section>" if details else "",
            _provenance(report, command),
        ],
    )


def split_prose(text: str) -> tuple[str, str]:
    """(conclusion, details): the conclusion is the text before the first heading."""
    if text.startswith("## "):
        return "", text
    conclusion, heading, details = text.partition("\n## ")
    return conclusion, (heading + details).lstrip("\n")


def _head(report: JsonObject, conclusion: str) -> str:
    items = report["items"]
    counts = "".join(
        f"<div class={BADGES[verdict]}><b>{n}</b>{verdict}</div>"
        for verdict, n in tables.verdicts(items).items()
    )
    links = "".join(_link(item) for item in items)
    quick = f"<p class=quick>{QUICK}</p>" if report["quick"] else ""
    claims = "".join(_claim(claim, item) for item in items for claim in item["claims"])
    version = escape(report["code"]["coterie"])
    return (
        f"<h1>{escape(report['title'])}</h1>"
        f"<p class=about>{escape(report['reference'])} Reproduced with Coterie {version}.</p>"
        f"<nav><a href=#verdicts>Verdicts</a>{links}<a href=#provenance>Provenance</a></nav>"
        f"{quick}<h2 id=verdicts>Verdicts</h2><div class=counts>{counts}</div>"
        f"{rendered(conclusion)}{claims}"
    )


def _link(item: JsonObject) -> str:
    return f"<a href=#{item['key']}>{escape(tables.short_title(item))}</a>"


def _claim(claim: JsonObject, item: JsonObject) -> str:
    """The claim and its verdict; opened, the evidence for every dataset."""
    evidence = "".join(
        f"<dt>{escape(dataset)}</dt><dd>{badge(part['verdict'])} {escape(part['evidence'])}</dd>"
        for dataset, found in claim["by"].items()
        for part in found["parts"]
    )
    return (
        f"<details class=claim><summary><span>{badge(claim['verdict'])}</span>"
        f"<span>{escape(claim['said'])} "
        f"<span class=where>{escape(claim['where'])} · {_link(item)}</span></span></summary>"
        f"<dl>{evidence}</dl></details>"
    )


def badge(verdict: str) -> str:
    """A verdict as a coloured label."""
    return f"<span class='badge {BADGES[verdict]}'>{escape(verdict)}</span>"


def _section(item: JsonObject, numbers: Iterator[int]) -> str:
    about = rendered(item["about"], inline=True)
    parts = [f"<section id={item['key']}><h2>{escape(item['title'])}</h2><p>{about}</p>"]
    for table in item["tables"]:
        parts.append(
            f"<h3>{escape(table['dataset'])}</h3>"
            f"<p class=about>{escape(protocol_text(table))}</p>"
            f"{html_table(*tables.comparison(table))}"
        )
        if table["tests"]:
            tests = html_table(*tables.tests(table))
            parts.append(f"<details><summary>Paired tests</summary>{tests}</details>")
        parts += [
            f"<p>Diverged and left out: {escape(name)} ({escape(why)}).</p>"
            for name, why in table["diverged"].items()
        ]
    drawn = "".join(
        f"<div>{div(figure, next(numbers))}</div>"
        for figure in figures.item_figures(item)
        if figure.series
    )
    parts.append(f"<div class=figures>{drawn}</div>" if drawn else "")
    if item["absent"]:
        reasons = "".join(f"<li>{escape(text)}</li>" for text in item["absent"])
        parts.append(f"<h3>Not reproduced</h3><ul>{reasons}</ul>")
    return "".join(parts) + "</section>"


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
    return str(reader.renderInline(text) if inline else reader.render(text))


def _provenance(report: JsonObject, command: str) -> str:
    rows: list[Sequence[str]] = [
        ["code", key_values(report["code"])],
        *(["machine", text] for text in machines(report)),
    ]
    settings = "".join(
        f"<details><summary>{escape(item['title'])}, {escape(table['dataset'])}</summary>"
        f"<pre>{escape(_settings(table))}</pre></details>"
        for item in report["items"]
        for table in item["tables"]
        if any("settings" in row for row in table["rows"].values())
    )
    return (
        f"<h2 id=provenance>Provenance</h2><pre>{escape(command)}</pre>"
        f"{html_table(['', ''], rows)}<h3>Settings</h3>{settings}"
    )


def machines(report: JsonObject) -> list[str]:
    """The machines of the runs; with the items of each where there are several."""
    by_machine: dict[str, list[str]] = {}
    for item in report["items"]:
        by_machine.setdefault(key_values(item["machine"]), []).append(tables.short_title(item))
    if len(by_machine) == 1:
        return list(by_machine)
    return [f"{machine} ({', '.join(names)})" for machine, names in by_machine.items()]


def key_values(values: JsonObject) -> str:
    """A flat JSON object as text."""
    return ", ".join(f"{key} {value}" for key, value in values.items())


def _settings(table: JsonObject) -> str:
    lines = [
        f"{label}: " + ", ".join(f"{key}={value}" for key, value in row["settings"].items())
        for label, row in table["rows"].items()
    ]
    return "\n".join(lines)
