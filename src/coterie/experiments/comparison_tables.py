"""A comparison as tables: one line a method, with the best values and significant differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from coterie.evaluation.direction import is_better
from coterie.experiments.comparison import FULL, Comparison, Difference, Spread, Standing
from coterie.report.metric_words import best_of
from coterie.report.sizes import size_text
from coterie.report.steps import steps_text
from coterie.report.table import shown, table_width

COLUMNS = 100
"""A table is at most so wide, in letters, if it can be split."""
LEVEL = 0.05
BETTER = "▲"
WORSE = "▼"
BELOW = "†"
"""The mark of a mean that recommending the most popular items exceeds."""


class Section(NamedTuple):
    """A table under its title; `bold` are the (row, column) places of the best values."""

    title: str
    header: list[str]
    rows: list[list[str]]
    left: int = 1
    """Number of leading text columns, which are aligned left."""
    bold: frozenset[tuple[int, int]] = frozenset()


class ColumnGroup(NamedTuple):
    """Columns of the table of methods that belong together; one row per method."""

    title: str
    header: list[str]
    rows: list[list[str]]
    bold: frozenset[tuple[int, int]] = frozenset()


def sections(comparison: Comparison, columns: int = COLUMNS) -> list[Section]:
    """The tables of methods and, with several methods, the tests."""
    methods = method_tables(comparison, columns)
    return [*methods, paired_tests(comparison)] if comparison.tests else methods


def method_tables(comparison: Comparison, columns: int = COLUMNS) -> list[Section]:
    """Accuracy and cost with one line a method, in one table where it fits."""
    blocks = [
        _accuracy(comparison),
        _full_ranking(comparison),
        _cost(comparison),
        _target(comparison),
    ]
    return packed(
        [standing.method for standing in comparison.standings],
        [block for block in blocks if block.header],
        columns,
    )


def packed(methods: Sequence[str], blocks: Sequence[ColumnGroup], columns: int) -> list[Section]:
    """The blocks side by side; a block that does not fit begins another table."""
    tables: list[Section] = []
    for block in blocks:
        wider = _beside(tables[-1], block) if tables else None
        if wider is not None and table_width(wider.header, wider.rows) <= columns:
            tables[-1] = wider
        else:
            tables.append(_beside(Section("", ["method"], [[m] for m in methods]), block))
    return tables


def _beside(section: Section, block: ColumnGroup) -> Section:
    first = len(section.header)
    title = block.title
    if section.title:
        title = f"{section.title}; {title[:1].lower()}{title[1:]}"
    return section._replace(
        title=title,
        header=[*section.header, *block.header],
        rows=[[*row, *more] for row, more in zip(section.rows, block.rows, strict=True)],
        bold=section.bold | {(row, first + column) for row, column in block.bold},
    )


def is_significant(test: Difference) -> bool:
    return test.p_holm < LEVEL


def mark(test: Difference) -> str:
    """How the other method stands to the tested one: better, worse, or "" if not significant."""
    if not is_significant(test):
        return ""
    return WORSE if is_better(test.metric, test.difference, 0.0) else BETTER


def marks(comparison: Comparison) -> dict[tuple[str, str], str]:
    """(method, metric) -> the mark of the method against the first one."""
    first = comparison.standings[0].method
    return {
        (test.other, test.metric): mark(test) for test in comparison.tests if test.method == first
    }


def _accuracy(comparison: Comparison) -> ColumnGroup:
    measured = [standing.metrics for standing in comparison.standings]
    return _metrics(comparison, measured, f"By {comparison.protocol}", "", "")


def _full_ranking(comparison: Comparison) -> ColumnGroup:
    """Empty if the protocol ranks all items: its figures would be repeated."""
    if not comparison.sampled:
        return ColumnGroup("", [], [])
    measured = [standing.full for standing in comparison.standings]
    return _metrics(comparison, measured, "By full ranking", FULL, " full")


def _metrics(
    comparison: Comparison,
    measured: Sequence[dict[str, Spread]],
    title: str,
    prefix: str,
    ending: str,
) -> ColumnGroup:
    """The headline metrics that any method has: some are measured by full ranking only."""
    names = [name for name in comparison.headline if any(name in of for of in measured)]
    found = marks(comparison)
    rows = []
    for standing, of_method in zip(comparison.standings, measured, strict=True):
        cells = []
        for name in names:
            text = spread_text(of_method[name], metric_format(name)) if name in of_method else ""
            below = BELOW if not prefix and name in standing.below_popular else ""
            sign = found.get((standing.method, prefix + name), "")
            cells.append(f"{text} {below}{sign}".rstrip())
        rows.append(cells)
    bold = frozenset(
        (row, column)
        for column, name in enumerate(names)
        for row in best_of(name, [of[name].mean if name in of else None for of in measured])
    )
    return ColumnGroup(title, [f"{name}{ending}" for name in names], rows, bold)


def _cost(comparison: Comparison) -> ColumnGroup:
    header = ["trained", "seconds", "sent up", "sent down", f"area under {comparison.followed}"]
    rows = [_costs(comparison, standing) for standing in comparison.standings]
    return ColumnGroup("Cost and speed", header, rows)


def _costs(comparison: Comparison, s: Standing) -> list[str]:
    cells = [
        steps_text(spread_text(s.costs["rounds"], _count), s.steps),
        spread_text(s.costs["seconds"], lambda v: f"{v:,.2f}"),
    ]
    sent = [s.costs[name] for name in ("bytes_up", "bytes_down")]
    cells += [size_text(size.mean, size.deviation) for size in sent]
    area = "" if s.area is None else spread_text(s.area, metric_format(comparison.followed))
    return [*cells, area]


def _target(comparison: Comparison) -> ColumnGroup:
    """What it took to reach the target; empty without one."""
    if comparison.target is None:
        return ColumnGroup("", [], [])
    rows = [
        # A centralised method sends nothing, so it has no updates to count.
        [
            _reached(s.rounds_to_target, s.steps, comparison.unit),
            _reached(s.updates_to_target, "", comparison.unit) if s.federated else "",
        ]
        for s in comparison.standings
    ]
    target = f"{comparison.target:g}"
    title = f"{comparison.followed} of {target}"
    return ColumnGroup(title, [f"trained to {target}", f"updates to {target}"], rows)


def _reached(steps: Sequence[int | None], unit: str, runs: str) -> str:
    """The mean over the runs that reached the target, with their number if some did not."""
    reached = [step for step in steps if step is not None]
    if not reached:
        return "not reached"
    mean = _count(sum(reached) / len(reached))
    text = steps_text(mean, unit) if unit else mean
    if len(reached) == len(steps):
        return text
    return f"{text} ({len(reached)} of {len(steps)} {runs})"


def paired_tests(comparison: Comparison) -> Section:
    """Every test with its interval and p-value."""
    header = ["against", "metric", "difference", "95% interval", "p (Holm)", "ahead"]
    rows = [_difference(test, comparison.n_runs) for test in comparison.tests]
    if not comparison.all_pairs:
        title = f"{comparison.standings[0].method} against the others"
        return Section(title, header, rows, left=2)
    named = [[test.method, *row] for test, row in zip(comparison.tests, rows, strict=True)]
    return Section("All pairs", ["method", *header], named, left=3)


def _difference(test: Difference, runs: int) -> list[str]:
    return [
        test.other,
        metric_label(test.metric),
        f"{test.difference:+.4f}",
        f"{test.low:.4f} to {test.high:.4f}",
        "<0.0001" if test.p_holm < 0.0001 else f"{test.p_holm:.4f}",
        f"{test.seeds_ahead}/{runs}",
    ]


def metric_label(metric: str) -> str:
    """The metric's name; one of full ranking says so."""
    return f"{metric.removeprefix(FULL)} full" if metric.startswith(FULL) else metric


def spread_text(value: Spread, text: Callable[[float], str]) -> str:
    """The mean, with the deviation if it is not zero as shown."""
    deviation = text(value.deviation or 0.0)
    return text(value.mean) if deviation == text(0.0) else f"{text(value.mean)} ±{deviation}"


def metric_format(name: str) -> Callable[[float], str]:
    """The usual format of a metric, but a deviation has as many decimals as its mean."""
    return lambda value: shown(name, value) if name.startswith(("IC", "Gini")) else f"{value:.4f}"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"
