"""What a federated run cost its clients: messages, bytes and how often each was selected."""

from __future__ import annotations

from html import escape

from coterie.report.charts import static_chart
from coterie.report.parts import html_table
from coterie.report.sizes import size_text
from coterie.report.steps import step_name
from coterie.report.users import over_users
from coterie.types import JsonObject

SELECTED = "selections of a client"
CAPTION = "Clients sorted by how often they were selected: the share with at most this number."


def costs_section(result: JsonObject) -> str:
    """Costs of the whole run, of a client and of a message; "" for a centralised run."""
    if "updates" not in result:
        return ""
    tables = f"<div><h3>Bytes</h3>{_bytes(result)}<h3>Messages</h3>{_messages(result)}</div>"
    return f"<div class=figures>{tables}{_selections(result)}</div>"


def _bytes(result: JsonObject) -> str:
    header = ["", "whole run", "mean of a client", "a message"]
    rows = [
        ["clients sent", *_sizes(result["bytes_up"], result["users"], result["updates"])],
        ["clients received", *_sizes(result["bytes_down"], result["users"], result["asked"])],
    ]
    return html_table(header, rows)


def _sizes(total: int, clients: int, messages: int) -> list[str]:
    """A total, the mean of a client and the mean of a message."""
    return [size_text(total), *(size_text(total / n) if n else "" for n in (clients, messages))]


def _messages(result: JsonObject) -> str:
    """Selections by how they ended, and how many a client had."""
    asked = result["asked"]
    rows = [
        ["clients selected", asked],
        ["updates accepted", result["updates"]],
        ["dropped out", result["dropped"]],
        *([f"refused: {why}", count] for why, count in sorted(result["refused"].items())),
    ]
    table = [[str(name), f"{count:,}", _share(count, asked)] for name, count in rows]
    chosen = result["selections"]
    spread = (
        f"A client was selected {chosen['mean']:,.1f} times on average, between "
        f"{chosen['least']:,} and {chosen['most']:,} times; {chosen['users']:,} of "
        f"{result['users']:,} were selected at all. Training took {_seconds(result)}."
    )
    whole = html_table(["", "number", "share"], table)
    return f"{whole}<p>{escape(spread)}</p>"


def _share(count: int, asked: int) -> str:
    return f"{count / asked:.1%}" if asked else ""


def _seconds(result: JsonObject) -> str:
    text = f"{result['seconds']:,.2f} s"
    if not result["rounds"]:
        return text
    each = result["seconds"] / result["rounds"]
    shown = f"{each:,.2f} s" if each >= 1 else f"{1000 * each:,.1f} ms"
    return f"{text}, {shown} a {step_name(result).removesuffix('s')}"


def _selections(result: JsonObject) -> str:
    """How often clients were selected, if that differs; earlier results do not have it."""
    quantiles = result["selections"].get("quantiles", [])
    if len(set(quantiles)) < 2:
        return ""
    rows = {result["algorithm"]: quantiles}
    return static_chart(
        over_users("selections", "How often clients were selected", SELECTED, rows, CAPTION)
    )
