"""Leaderboards as one self-contained page, and as Markdown for the docs."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from coterie.experiments.comparison_tables import Section
from coterie.experiments.leaderboard import Leaderboard
from coterie.experiments.leaderboard_tables import (
    accuracy_panel,
    accuracy_table,
    all_findings,
    bytes_figure,
    conditions,
    cost_table,
    exposure_panel,
    exposure_table,
    trials_table,
)
from coterie.report.charts import static_chart
from coterie.report.dots import dot_plot
from coterie.report.parts import captioned, document, folded, html_table, list_of, section
from coterie.report.sorting import SCRIPT, SORTABLE
from coterie.report.table import markdown_list, markdown_table
from coterie.version import __version__

TITLE = "Leaderboard"
RULES = (
    "Every algorithm has the same data, the same candidates and as many random trials on the "
    "validation part. Its best settings are trained with every seed and measured on the test part. "
    "Behind the best: the best algorithm minus this one, per user, with a 95% bootstrap interval; "
    "p by a paired t-test over users with Holm's correction. Popularity is left out of all scores. "
    "Negatives exclude training positives only."
)


def page(boards: Sequence[Leaderboard], command: str) -> str:
    """One page with a section for every dataset; `command` makes it."""
    links = "".join(f"<a href=#{_name(board)}>{escape(board.dataset)}</a>" for board in boards)
    opening = (
        f"<header><h1>{TITLE}</h1><p class=about>{escape(RULES)} Coterie {__version__}</p>"
        f"<div id=summary>{list_of(all_findings(boards))}</div></header><nav>{links}</nav>"
    )
    parts = [section(_name(board), board.dataset, _board(board)) for board in boards]
    repeat = section("repeat", "Repeat", f"<pre>{escape(command)}</pre>")
    return document(TITLE, [opening, *parts, repeat], SCRIPT)


def _name(board: Leaderboard) -> str:
    """A name that a link can have."""
    return "".join(letter if letter.isalnum() else "-" for letter in board.dataset)


def _board(board: Leaderboard) -> str:
    accuracy = dot_plot([accuracy_panel(board)], board.metric, f"{board.metric}", "mean")
    exposure = dot_plot([exposure_panel(board)], board.metric, "Accuracy by exposure", "best")
    left_out = [f"{one.algorithm}: {one.reason}" for one in board.left_out]
    return "".join(
        [
            f"<p class=about>{escape(conditions(board))}</p>",
            "<div class=figures>",
            captioned(accuracy, "Lines: one standard deviation over seeds to either side."),
            f"<div>{static_chart(bytes_figure(board))}",
            captioned(exposure, "The best algorithm of each level."),
            "</div></div>",
            _sortable(accuracy_table(board)),
            _sortable(cost_table(board)),
            folded("What a server receives of every client", _texts(exposure_table(board))),
            folded("Trials and settings", _texts(trials_table(board))),
            folded("Left out", list_of(left_out)),
        ]
    )


def _sortable(table: Section) -> str:
    drawn = html_table(table.header, table.rows, table.bold, SORTABLE)
    return f"<h3>{escape(table.title)}</h3>{drawn}" if table.rows else ""


def _texts(table: Section) -> str:
    return html_table(table.header, table.rows, kind="texts") if table.rows else ""


def markdown(boards: Sequence[Leaderboard], command: str) -> str:
    """The same for the docs, without trials and their settings."""
    parts = [f"{RULES}\n", markdown_list(all_findings(boards))]
    for board in boards:
        parts.append(f"## {board.dataset}\n\n{conditions(board)}\n")
        parts += [
            f"### {table.title} ({board.dataset})\n\n{markdown_table(table.header, table.rows)}"
            for table in (accuracy_table(board), cost_table(board))
            if table.rows
        ]
        if board.left_out:
            reasons = [f"{one.algorithm}: {one.reason}" for one in board.left_out]
            parts.append(f"Left out:\n\n{markdown_list(reasons)}")
    parts.append(f"Made by:\n\n```\n{command}\n```\n")
    return "\n".join(parts)
