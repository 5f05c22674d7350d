"""A comparison as tables, as Markdown and as one HTML page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from coterie.experiments.comparison import FULL, Comparison, Difference, Spread, Standing
from coterie.experiments.plan import Outcome
from coterie.report.page import document, figure, html_table
from coterie.report.table import all_notes, markdown_list, markdown_table, shown
from coterie.version import __version__


class Section(NamedTuple):
    title: str
    header: list[str]
    rows: list[list[str]]
    left: int = 1
    """So many columns are text."""


def sections(found: Comparison) -> list[Section]:
    """What the methods reach, what that costs and, if there is another method, whether the first one differs from it."""
    parts = [_accuracy(found), _cost(found)]
    return [*parts, _differences(found)] if found.tests else parts


def markdown(found: Comparison, outcomes: Sequence[Outcome]) -> str:
    parts = [f"## {s.title}\n\n{markdown_table(s.header, s.rows)}" for s in sections(found)]
    return "\n".join([f"# {title(found)}\n", *parts, markdown_list(notes(found, outcomes))])


def page(found: Comparison, outcomes: Sequence[Outcome], command: str) -> str:
    """One page that needs nothing else; `command` makes it again."""
    methods = [outcome.cell.method.label for outcome in outcomes]
    seeds = f"{len(found.seeds)} {'seed' if len(found.seeds) == 1 else 'seeds'}"
    head = f"{found.protocol}, {seeds}, {found.tested_users:,} users tested. Coterie {__version__}"
    return document(
        title(found),
        [
            f"<h1>{escape(title(found))}</h1><p class=about>{escape(head)}</p>",
            *(f"<h2>{escape(s.title)}</h2>{html_table(s.header, s.rows)}" for s in sections(found)),
            "".join(f"<p>{escape(note)}</p>" for note in notes(found, outcomes)),
            f"<h2>Convergence</h2>{figure(outcomes, methods)}",
            f"<h2>Repeat</h2><pre>{escape(command)}</pre>",
        ],
    )


def title(found: Comparison) -> str:
    return f"{', '.join(s.method for s in found.standings)} on {found.dataset}"


def notes(found: Comparison, outcomes: Sequence[Outcome]) -> list[str]:
    """What a reader must know to judge the figures."""
    lines = all_notes(outcomes)
    if len(found.seeds) > 1:
        lines.append(f"± is the standard deviation over {len(found.seeds)} seeds.")
    if found.tests:
        lines.append(
            f"Differences are {found.standings[0].method} minus the other, of every user's mean over seeds: paired t-test over "
            f"users, 95% bootstrap interval, p corrected by Holm for {len(found.tests)} tests. Ahead: with how many seeds its mean is the higher one."
        )
    return lines


def _accuracy(found: Comparison) -> Section:
    names = found.headline
    header = ["method", *names, *(f"{name} full" for name in names if found.sampled)]
    rows = []
    for s in found.standings:
        kinds = (s.metrics, s.full) if found.sampled else (s.metrics,)
        cells = [
            _spread(of[name], _metric(name)) if name in of else "" for of in kinds for name in names
        ]
        rows.append([s.method, *cells])
    return Section(f"By {found.protocol}", header, rows)


def _cost(found: Comparison) -> Section:
    header = ["method", "rounds", "seconds", "MB up", "MB down", f"area under {found.followed}"]
    if found.target is not None:
        header += [f"rounds to {found.target:g}", f"updates to {found.target:g}"]
    return Section("Cost and speed", header, [_costs(found, s) for s in found.standings])


def _costs(found: Comparison, s: Standing) -> list[str]:
    cells = [
        s.method,
        _spread(s.costs["rounds"], _count),
        _spread(s.costs["seconds"], lambda v: f"{v:.2f}"),
    ]
    cells += [
        _spread(s.costs[name], lambda v: f"{v / 1e6:,.1f}") for name in ("bytes_up", "bytes_down")
    ]
    cells.append("" if s.area is None else _spread(s.area, _metric(found.followed)))
    if found.target is None:
        return cells
    federated = (
        s.costs["bytes_down"].mean > 0
    )  # where nothing travels there are no updates to count
    return [
        *cells,
        _reached(s.rounds_to_target),
        _reached(s.updates_to_target) if federated else "",
    ]


def _reached(steps: Sequence[int | None]) -> str:
    """The mean over the seeds that reached the target, and how many those are."""
    there = [step for step in steps if step is not None]
    if not there:
        return "not reached"
    mean = _count(sum(there) / len(there))
    return mean if len(there) == len(steps) else f"{mean} ({len(there)} of {len(steps)} seeds)"


def _differences(found: Comparison) -> Section:
    header = ["against", "metric", "difference", "95% interval", "p (Holm)", "ahead"]
    rows = [_difference(test, len(found.seeds)) for test in found.tests]
    return Section(f"{found.standings[0].method} against the others", header, rows, left=2)


def _difference(test: Difference, seeds: int) -> list[str]:
    metric = (
        f"{test.metric.removeprefix(FULL)} full" if test.metric.startswith(FULL) else test.metric
    )
    interval = f"{test.low:.4f} to {test.high:.4f}"
    p = "<0.0001" if test.p_holm < 0.0001 else f"{test.p_holm:.4f}"
    return [
        test.other,
        metric,
        f"{test.difference:+.4f}",
        interval,
        p,
        f"{test.seeds_ahead}/{seeds}",
    ]


def _spread(value: Spread, text: Callable[[float], str]) -> str:
    deviation = text(value.deviation or 0.0)
    return text(value.mean) if deviation == text(0.0) else f"{text(value.mean)} ±{deviation}"


def _metric(name: str) -> Callable[[float], str]:
    """As everywhere, but a deviation keeps the decimals of its mean."""
    return lambda value: shown(name, value) if name.startswith(("IC", "Gini")) else f"{value:.4f}"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"
