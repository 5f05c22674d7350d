"""The report of a paper as one HTML page that needs nothing else; verdicts first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import count
from typing import Any

from coterie.report.interactive import div, script
from coterie.report.page import document, html_table
from coterie.reproduce import figures, tables

STYLE = """
body { max-width: 72rem }
nav { position: sticky; top: 0; background: #fff; padding: .5rem 0; border-bottom: 1px solid #e3e8ee; z-index: 2; overflow-x: auto; white-space: nowrap }
nav a { margin-right: 1rem; color: #2a6f97; text-decoration: none }
.counts { display: flex; flex-wrap: wrap; gap: .6rem; margin: 1rem 0 }
.counts div { border-radius: .5rem; padding: .5rem .9rem; font-weight: 600 }
.counts b { font-size: 1.5rem; display: block; line-height: 1.2 }
.badge { border-radius: 1rem; padding: .05rem .6rem; font-size: .85rem; font-weight: 600; white-space: nowrap; display: inline-block }
.holds { background: #dff2e4; color: #1f6b3a } .part { background: #fdf1d3; color: #7a5a00 }
.not { background: #fbe0dc; color: #9b2c1a } .open { background: #e9ecf1; color: #4a5568 }
.claim { border-bottom: 1px solid #e3e8ee; padding: .5rem 0 } .claim summary { cursor: pointer; list-style: none; display: grid; grid-template-columns: 9.5rem 1fr; gap: .8rem; align-items: start }
.claim summary::-webkit-details-marker { display: none } .claim summary .where { color: #5c677d; font-size: .85rem }
.claim dl { margin: .4rem 0 .2rem 10.3rem; font-size: .92rem } .claim dt { font-weight: 600; float: left; clear: left; margin-right: .5rem } .claim dd { margin: 0 0 .3rem 0 }
#notes td, #notes th { text-align: left; white-space: normal }
.figure { width: 100%; min-height: 380px } .figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: 1rem }
.figures > div { min-width: 0 } .quick { background: #fdf1d3; padding: .7rem 1rem; border-radius: .5rem } td { vertical-align: top }
@media (max-width: 40rem) { .claim summary { grid-template-columns: 1fr } .claim dl { margin-left: 0 } body { margin: 1rem auto } }
@media print { nav { display: none } details { display: block } .figure { break-inside: avoid } }
"""
BADGES = {
    "holds": "holds",
    "holds in part": "part",
    "does not hold": "not",
    "cannot be tested": "open",
}
QUICK = "A quick look: one seed, the smallest data and few rounds. Verdicts and figures here say that everything runs, not what holds."


def page(found: Mapping[str, Any], prose: str = "", command: str = "") -> str:
    """What `running.reproduce` returns, as HTML."""
    numbers = count(1)
    return document(
        f"{found['paper']}: {found['title']}",
        [
            f"<style>{STYLE}</style>{script()}",
            _head(found),
            *(_section(item, numbers) for item in found["items"]),
            f"<section id=notes>{rendered(prose)}</section>" if prose else "",
            _how(found, command),
        ],
    )


def _head(found: Mapping[str, Any]) -> str:
    items = found["items"]
    counts = "".join(
        f"<div class={BADGES[verdict]}><b>{n}</b>{verdict}</div>"
        for verdict, n in tables.verdicts(items).items()
    )
    links = "".join(
        f"<a href=#{item['key']}>{escape(item['title'].split(':')[0])}</a>" for item in items
    )
    quick = f"<p class=quick>{QUICK}</p>" if found["quick"] else ""
    claims = "".join(_claim(claim, item) for item in items for claim in item["claims"])
    return (
        f"<h1>{escape(found['title'])}</h1><p class=about>{escape(found['reference'])} Repeated with Coterie {escape(found['code']['coterie'])}.</p>"
        f"<nav><a href=#verdicts>Verdicts</a>{links}<a href=#how>How</a></nav>{quick}"
        f"<h2 id=verdicts>What is claimed, and what holds</h2><div class=counts>{counts}</div>{claims}"
    )


def _claim(claim: Mapping[str, Any], item: Mapping[str, Any]) -> str:
    """The sentence and its verdict; opened, what was found on every dataset."""
    told = "".join(
        f"<dt>{escape(name)}</dt><dd>{badge(verdict)} {escape(text)}</dd>"
        for name, (verdict, text) in claim["by"].items()
    )
    where = f"{escape(claim['where'])} · <a href=#{item['key']}>{escape(item['title'].split(':')[0])}</a>"
    return (
        f"<details class=claim><summary><span>{badge(claim['verdict'])}</span><span>{escape(claim['said'])} "
        f"<span class=where>{where}</span></span></summary><dl>{told}</dl></details>"
    )


def badge(verdict: str) -> str:
    return f"<span class='badge {BADGES[verdict]}'>{escape(verdict)}</span>"


def _section(item: Mapping[str, Any], numbers: Any) -> str:
    parts = [
        f"<section id={item['key']}><h2>{escape(item['title'])}</h2><p>{rendered(item['about'], inline=True)}</p>"
    ]
    for table in item["tables"]:
        parts.append(
            f"<h3>{escape(table['dataset'])}</h3><p class=about>{escape(about(table))}</p>{html_table(*tables.theirs_beside_ours(table))}"
        )
        if table["tests"]:
            parts.append(
                f"<details><summary>Paired tests</summary>{html_table(*tables.tests(table))}</details>"
            )
        parts += [
            f"<p>Diverged and left out: {escape(name)} ({escape(why)}).</p>"
            for name, why in table["diverged"].items()
        ]
    drawn = "".join(
        f"<div>{div(figure, next(numbers))}</div>"
        for figure in figures.of_item(item)
        if figure.series
    )
    parts.append(f"<div class=figures>{drawn}</div>" if drawn else "")
    if item["absent"]:
        parts.append(
            "<h3>Not repeated</h3><ul>"
            + "".join(f"<li>{escape(text)}</li>" for text in item["absent"])
            + "</ul>"
        )
    return "".join(parts) + "</section>"


def about(table: Mapping[str, Any]) -> str:
    """How a table came to be."""
    if "seeds" not in table:
        return "Measured once on this machine."
    seeds = f"{table['seeds']} {'seed' if table['seeds'] == 1 else 'seeds, mean ± deviation'}"
    return f"{table['protocol']}, {seeds}, {table['tested_users']:,} users tested. Data {table['data']}."


def rendered(text: str, inline: bool = False) -> str:
    """Markdown as HTML; HTML in it is shown as it is written."""
    from markdown_it import MarkdownIt

    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    return str(reader.renderInline(text) if inline else reader.render(text))


def _how(found: Mapping[str, Any], command: str) -> str:
    rows: list[Sequence[str]] = [
        ["code", told(found["code"])],
        *(["machine", text] for text in machines(found)),
    ]
    settings = "".join(
        f"<details><summary>{escape(item['title'])}, {escape(table['dataset'])}</summary><pre>{escape(_settings(table))}</pre></details>"
        for item in found["items"]
        for table in item["tables"]
        if any("settings" in row for row in table["rows"].values())
    )
    return f"<h2 id=how>How</h2><pre>{escape(command)}</pre>{html_table(['', ''], rows)}<h3>Settings</h3>{settings}"


def machines(found: Mapping[str, Any]) -> list[str]:
    """What items were run on, and which where those differ."""
    by_machine: dict[str, list[str]] = {}
    for item in found["items"]:
        by_machine.setdefault(told(item["machine"]), []).append(item["title"].split(":")[0])
    return [
        text if len(by_machine) == 1 else f"{text} ({', '.join(names)})"
        for text, names in by_machine.items()
    ]


def told(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())


def _settings(table: Mapping[str, Any]) -> str:
    lines = [
        f"{label}: " + ", ".join(f"{key}={value}" for key, value in row["settings"].items())
        for label, row in table["rows"].items()
    ]
    return "\n".join(lines)
