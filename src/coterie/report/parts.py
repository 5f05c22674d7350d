"""Parts of a page: the document, tables, labels, folded sections, lists and figures."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from html import escape

from coterie.report.conditions import Fact
from coterie.report.style import STYLE

NO_REQUESTS = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
DRAWN_BY_SCRIPTS = "; script-src 'unsafe-inline'; img-src data: blob:"
"""What a browser lets a page do: it loads nothing, and runs scripts only where it comes with some.
"""


def document(title: str, sections: Sequence[str], scripts: str = "") -> str:
    """One self-contained page: it loads no style sheet, script or image."""
    policy = NO_REQUESTS + (DRAWN_BY_SCRIPTS if scripts else "")
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        f'<meta http-equiv=Content-Security-Policy content="{policy}">'
        '<meta name=viewport content="width=device-width">'
        f"<title>{escape(title)}</title>"
        f"<style>{STYLE}</style></head><body>{scripts}{''.join(sections)}</body></html>\n"
    )


def label(text: str, kind: str) -> str:
    """A coloured label; kinds are holds (green), part (yellow), not (red) and open (grey)."""
    return f'<span class="badge {kind}">{escape(text)}</span>'


def folded(title: str, content: str, kind: str = "") -> str:
    """Content that opens on a click; "" without content."""
    if not content:
        return ""
    named = f" class={kind}" if kind else ""
    return f"<details{named}><summary>{escape(title)}</summary>{content}</details>"


def list_of(lines: Sequence[str]) -> str:
    """Lines of text as a list; "" without any."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def facts_list(facts: Sequence[Fact]) -> str:
    """A methods box."""
    entries = "".join(
        f"<dt>{escape(fact.name)}</dt>"
        f"<dd>{''.join(f'<p>{escape(line)}</p>' for line in fact.lines)}</dd>"
        for fact in facts
    )
    return f"<dl class=methods>{entries}</dl>"


def captioned(svg: str, caption: str, name: str = "") -> str:
    """A picture with its caption; "" without a picture."""
    if not svg:
        return ""
    named = f" id={name}" if name else ""
    return f"<figure{named}>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def section(name: str, title: str, content: str) -> str:
    """A section that a link can lead to; "" without content."""
    return f"<section id={name}><h2>{escape(title)}</h2>{content}</section>" if content else ""


def html_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    bold: Collection[tuple[int, int]] = (),
    kind: str = "",
) -> str:
    """A table; `bold` are (row, column) places. A narrow screen shows a row as a block."""
    head = "".join(f"<th scope=col>{escape(cell)}</th>" for cell in header)
    # In a block each cell carries the label of its column.
    body = "".join(
        "<tr>"
        + "".join(
            f'<td data-label="{escape(name)}">{_strong(cell, (number, column) in bold)}</td>'
            for column, (name, cell) in enumerate(zip(header, row, strict=True))
        )
        + "</tr>"
        for number, row in enumerate(rows)
    )
    whole = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    classes = f'"wide {kind}"' if kind else "wide"
    return f"<div class={classes}>{whole}</div>"


def _strong(text: str, is_bold: bool) -> str:
    return f"<strong>{escape(text)}</strong>" if is_bold else escape(text)
