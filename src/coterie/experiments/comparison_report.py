"""A comparison as tables, as Markdown and as one HTML page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from coterie.evaluation.direction import lower_is_better
from coterie.experiments.cell_cache import CellResult
from coterie.experiments.comparison import FULL, Comparison, Difference, Spread, Standing
from coterie.report.page import document, figure, html_table
from coterie.report.table import BELOW, all_notes, markdown_list, markdown_table, shown
from coterie.version import __version__


class Section(NamedTuple):
    title: str
    header: list[str]
    rows: list[list[str]]
    left: int = 1
    """Number of leading text columns, which are aligned left."""


def sections(comparison: Comparison) -> list[Section]:
    """Accuracy, cost and, with several methods, the differences from the first one."""
    parts = [_accuracy(comparison), _cost(comparison)]
    return [*parts, _differences(comparison)] if comparison.tests else parts


def markdown(comparison: Comparison, results: Sequence[CellResult]) -> str:
    parts = [f"## {s.title}\n\n{markdown_table(s.header, s.rows)}" for s in sections(comparison)]
    remarks = markdown_list(notes(comparison, results))
    return "\n".join([f"# {title(comparison)}\n", *parts, remarks])


def page(comparison: Comparison, results: Sequence[CellResult], command: str) -> str:
    """One self-contained page; `command` reproduces it."""
    methods = [result.cell.method.label for result in results]
    n_seeds = len(comparison.seeds)
    seeds = "1 seed" if n_seeds == 1 else f"{n_seeds} seeds"
    about = f"{comparison.protocol}, {seeds}, {comparison.tested_users:,} users tested. "
    about += f"Coterie {__version__}"
    tables = [
        f"<h2>{escape(section.title)}</h2>{html_table(section.header, section.rows)}"
        for section in sections(comparison)
    ]
    return document(
        title(comparison),
        [
            f"<h1>{escape(title(comparison))}</h1><p class=about>{escape(about)}</p>",
            *tables,
            "".join(f"<p>{escape(note)}</p>" for note in notes(comparison, results)),
            f"<h2>Convergence</h2>{figure(results, methods)}",
            f"<h2>Repeat</h2><pre>{escape(command)}</pre>",
        ],
    )


def title(comparison: Comparison) -> str:
    return f"{', '.join(s.method for s in comparison.standings)} on {comparison.dataset}"


def notes(comparison: Comparison, results: Sequence[CellResult]) -> list[str]:
    """What a reader must know to interpret the figures."""
    lines = all_notes(results, with_costs=False)
    if any(s.below_popular for s in comparison.standings):
        lines.append(
            f"{BELOW.strip()}: recommending the most popular items to everybody scores more."
        )
    if len(comparison.seeds) > 1:
        lines.append(f"± is the standard deviation over {len(comparison.seeds)} seeds.")
    if comparison.tests:
        first = comparison.standings[0].method
        lines.append(
            f"Differences are {first} minus the other method, per user and averaged over seeds: "
            "paired t-test over users, 95% bootstrap interval, p-values with Holm's correction "
            f"for {len(comparison.tests)} tests. Ahead: seeds with which the mean of {first} "
            "is better."
        )
        errors = dict.fromkeys(t.metric for t in comparison.tests if lower_is_better(t.metric))
        if errors:
            lines.append(
                f"{' and '.join(errors)}: lower is better, so a negative difference is in favour "
                f"of {first}. Tested are the errors of single users: a difference of RMSE is that "
                "of the users' own RMSE, which with one held-out rating per user is their MAE."
            )
    return lines


def _accuracy(comparison: Comparison) -> Section:
    names = comparison.headline
    # Errors of ratings rank nothing, so they have no second figure.
    ranked = [name for name in names if any(name in s.full for s in comparison.standings)]
    ranked = ranked if comparison.sampled else []
    header = ["method", *names, *(f"{name} full" for name in ranked)]
    rows = []
    for s in comparison.standings:
        cells = [
            _if_measured(s.metrics, name) + (BELOW if name in s.below_popular else "")
            for name in names
        ]
        cells += [_if_measured(s.full, name) for name in ranked]
        rows.append([s.method, *cells])
    return Section(f"By {comparison.protocol}", header, rows)


def _if_measured(metrics: dict[str, Spread], name: str) -> str:
    return _spread(metrics[name], _metric(name)) if name in metrics else ""


def _cost(comparison: Comparison) -> Section:
    header = [
        "method",
        "rounds",
        "seconds",
        "MB up",
        "MB down",
        f"area under {comparison.followed}",
    ]
    if comparison.target is not None:
        header += [f"rounds to {comparison.target:g}", f"updates to {comparison.target:g}"]
    return Section("Cost and speed", header, [_costs(comparison, s) for s in comparison.standings])


def _costs(comparison: Comparison, s: Standing) -> list[str]:
    cells = [
        s.method,
        _spread(s.costs["rounds"], _count),
        _spread(s.costs["seconds"], lambda v: f"{v:.2f}"),
    ]
    cells += [
        _spread(s.costs[name], lambda v: f"{v / 1e6:,.1f}") for name in ("bytes_up", "bytes_down")
    ]
    cells.append("" if s.area is None else _spread(s.area, _metric(comparison.followed)))
    if comparison.target is None:
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


def _differences(comparison: Comparison) -> Section:
    header = ["against", "metric", "difference", "95% interval", "p (Holm)", "ahead"]
    rows = [_difference(test, len(comparison.seeds)) for test in comparison.tests]
    return Section(f"{comparison.standings[0].method} against the others", header, rows, left=2)


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
