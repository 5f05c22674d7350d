"""A comparison as tables, as Markdown and as one HTML page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from coterie.experiments.cell_cache import CellResult
from coterie.experiments.comparison import FULL, Comparison, Difference, Spread, Standing
from coterie.report.page import document, figure, html_table
from coterie.report.table import all_notes, markdown_list, markdown_table, shown
from coterie.version import __version__


class Section(NamedTuple):
    title: str
    header: list[str]
    rows: list[list[str]]
    left: int = 1
    """Number of leading text columns, which are aligned left."""


def sections(found: Comparison) -> list[Section]:
    """Accuracy, cost and, with several methods, the differences from the first one."""
    parts = [_accuracy(found), _cost(found)]
    return [*parts, _differences(found)] if found.tests else parts


def markdown(found: Comparison, results: Sequence[CellResult]) -> str:
    parts = [f"## {s.title}\n\n{markdown_table(s.header, s.rows)}" for s in sections(found)]
    return "\n".join([f"# {title(found)}\n", *parts, markdown_list(notes(found, results))])


def page(found: Comparison, results: Sequence[CellResult], command: str) -> str:
    """One self-contained page; `command` reproduces it."""
    methods = [result.cell.method.label for result in results]
    seeds = f"{len(found.seeds)} {'seed' if len(found.seeds) == 1 else 'seeds'}"
    head = f"{found.protocol}, {seeds}, {found.tested_users:,} users tested. Coterie {__version__}"
    return document(
        title(found),
        [
            f"<h1>{escape(title(found))}</h1><p class=about>{escape(head)}</p>",
            *(f"<h2>{escape(s.title)}</h2>{html_table(s.header, s.rows)}" for s in sections(found)),
            "".join(f"<p>{escape(note)}</p>" for note in notes(found, results)),
            f"<h2>Convergence</h2>{figure(results, methods)}",
            f"<h2>Repeat</h2><pre>{escape(command)}</pre>",
        ],
    )


def title(found: Comparison) -> str:
    return f"{', '.join(s.method for s in found.standings)} on {found.dataset}"


def notes(found: Comparison, results: Sequence[CellResult]) -> list[str]:
    """What a reader must know to interpret the figures."""
    lines = all_notes(results)
    if len(found.seeds) > 1:
        lines.append(f"± is the standard deviation over {len(found.seeds)} seeds.")
    if found.tests:
        lines.append(
            f"Differences are {found.standings[0].method} minus the other method, per user and "
            "averaged over seeds: paired t-test over users, 95% bootstrap interval, "
            f"p-values with Holm's correction for {len(found.tests)} tests. "
            f"Ahead: seeds with which the mean of {found.standings[0].method} is higher."
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
    # A centralised method sends nothing, so it has no updates to count.
    federated = s.costs["bytes_down"].mean > 0
    updates = _reached(s.updates_to_target) if federated else ""
    return [*cells, _reached(s.rounds_to_target), updates]


def _reached(steps: Sequence[int | None]) -> str:
    """The mean over the seeds that reached the target, with their number if some did not."""
    reached = [step for step in steps if step is not None]
    if not reached:
        return "not reached"
    mean = _count(sum(reached) / len(reached))
    if len(reached) == len(steps):
        return mean
    return f"{mean} ({len(reached)} of {len(steps)} seeds)"


def _differences(found: Comparison) -> Section:
    header = ["against", "metric", "difference", "95% interval", "p (Holm)", "ahead"]
    rows = [_difference(test, len(found.seeds)) for test in found.tests]
    return Section(f"{found.standings[0].method} against the others", header, rows, left=2)


def _difference(test: Difference, seeds: int) -> list[str]:
    metric = test.metric
    if metric.startswith(FULL):
        metric = f"{metric.removeprefix(FULL)} full"
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
    """The usual format of a metric, but a deviation has as many decimals as its mean."""
    return lambda value: shown(name, value) if name.startswith(("IC", "Gini")) else f"{value:.4f}"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"
