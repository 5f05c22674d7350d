"""A comparison as one self-contained HTML page: the conclusion and one figure first."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import count

from coterie.experiments.cell_cache import CellResult
from coterie.experiments.comparison import Comparison, Difference, Spread
from coterie.experiments.comparison_report import notes, title
from coterie.experiments.comparison_summary import compared, summary
from coterie.experiments.comparison_tables import (
    BETTER,
    WORSE,
    mark,
    method_tables,
    metric_format,
    metric_label,
    paired_tests,
    spread_text,
)
from coterie.experiments.privacy_curve import privacy_curve
from coterie.report import forest as forests
from coterie.report.charts import charts, scripts, static_chart
from coterie.report.conditions import READING, facts
from coterie.report.figure import panels
from coterie.report.overview import overview
from coterie.report.parts import document, facts_list, folded, html_table, list_of, section
from coterie.report.table import metric_rows, settings_lines
from coterie.report.users import over_users, telling_metric
from coterie.version import __version__

ONE_STEP = "<p>Trained in one step: there is no curve.</p>"
USERS = "Each user's mean over seeds, sorted: the share of users with at most this value."
FOREST = (
    "Green: the first of the two methods is significantly better; red: significantly worse; grey: "
    "not significant after Holm's correction. Intervals are not corrected."
)
LINKS = {
    "privacy": "Accuracy and privacy",
    "methods": "Methods",
    "differences": "Differences",
    "convergence": "Convergence",
    "users": "Users",
    "metrics": "All metrics",
    "conditions": "Data and settings",
    "repeat": "Repeat",
}


def page(comparison: Comparison, results: Sequence[CellResult], command: str) -> str:
    """One self-contained page; `command` reproduces it."""
    numbers = count(1)
    names = [result.cell.method.label for result in results]
    contents = {
        "privacy": _privacy(comparison, results),
        "methods": _methods(comparison, results),
        "differences": _differences(comparison),
        "convergence": charts(panels(results, names), numbers) or ONE_STEP,
        "users": _users(comparison),
        "metrics": _all_metrics(comparison),
        "conditions": _conditions(comparison, results, names),
        "repeat": f"<pre>{escape(command)}</pre>",
    }
    links = "".join(f"<a href=#{name}>{LINKS[name]}</a>" for name in contents if contents[name])
    parts = [section(name, LINKS[name], content) for name, content in contents.items()]
    body = "".join([_opening(comparison), f"<nav>{links}</nav>", *parts])
    return document(title(comparison), [body], scripts(body))


def _opening(comparison: Comparison) -> str:
    """Title, conclusion and the figure of the headline metric."""
    about = f"{comparison.protocol}, {comparison.runs}, {comparison.tested_users:,} users tested. "
    about += f"Coterie {__version__}"
    figure = overview(compared(comparison), comparison.followed, comparison.protocol, "mean")
    return (
        f"<header><h1>{escape(title(comparison))}</h1><p class=about>{escape(about)}</p>"
        f"<div class=opening><div id=summary>{list_of(summary(comparison))}</div>{figure}</div>"
        "</header>"
    )


def _methods(comparison: Comparison, results: Sequence[CellResult]) -> str:
    tables = "".join(
        f"<h3>{escape(one.title)}</h3>{html_table(one.header, one.rows, one.bold)}"
        for one in method_tables(comparison)
    )
    remarks = "".join(f"<p class=about>{escape(line)}</p>" for line in notes(comparison, results))
    return tables + remarks


def _privacy(comparison: Comparison, results: Sequence[CellResult]) -> str:
    figure = privacy_curve(comparison, results)
    return static_chart(figure) if figure else ""


def _differences(comparison: Comparison) -> str:
    """A forest plot for every metric, and all tests folded."""
    if not comparison.tests:
        return ""
    metrics = dict.fromkeys(test.metric for test in comparison.tests)
    drawn = "".join(f"<figure>{_forest(comparison, metric)}</figure>" for metric in metrics)
    tests = paired_tests(comparison)
    return (
        f"<p class=about>{escape(FOREST)}</p><div class=forests>{drawn}</div>"
        f"{folded('All tests', html_table(tests.header, tests.rows))}"
    )


def _forest(comparison: Comparison, metric: str) -> str:
    tests = [test for test in comparison.tests if test.metric == metric]
    name = metric_label(metric)
    heading = f"{name}: difference and 95% interval"
    intervals = [
        forests.Interval(
            group=f"{test.method} − {test.other}",
            label="",
            colour=_colour(test),
            value=test.difference,
            low=test.low,
            high=test.high,
        )
        for test in tests
    ]
    return (
        f"<figcaption>{escape(heading)}</figcaption>{forests.forest(intervals, [], 0.0, heading)}"
    )


def _colour(test: Difference) -> str:
    """Green if the method is significantly better than the other one, red if worse."""
    return {"": forests.UNCLEAR, WORSE: forests.BETTER, BETTER: forests.WORSE}[mark(test)]


def _users(comparison: Comparison) -> str:
    spreads = {one.method: one.quantiles for one in comparison.standings}
    metric = telling_metric(comparison.headline, list(spreads.values()))
    if not metric:
        return ""
    rows = {method: spread[metric] for method, spread in spreads.items()}
    return static_chart(over_users("users", f"{metric} over users", metric, rows, USERS))


def _all_metrics(comparison: Comparison) -> str:
    """Metrics as rows; one table if the protocol and full ranking coincide."""
    kinds = {f"By {comparison.protocol}": {s.method: s.metrics for s in comparison.standings}}
    if comparison.sampled:
        kinds["By full ranking"] = {s.method: s.full for s in comparison.standings}
    tables = "".join(
        f"<h3>{escape(kind)}</h3>{_metric_table(measured)}" for kind, measured in kinds.items()
    )
    return folded("Every metric", tables)


def _metric_table(measured: dict[str, dict[str, Spread]]) -> str:
    """A column for every method."""
    names = list(dict.fromkeys(name for values in measured.values() for name in values))
    columns = {
        method: {name: spread_text(value, metric_format(name)) for name, value in values.items()}
        for method, values in measured.items()
    }
    return html_table(*metric_rows(columns, names), kind="metrics")


def _conditions(comparison: Comparison, results: Sequence[CellResult], names: Sequence[str]) -> str:
    reading = folded(READING, list_of(comparison.reading), "settings")
    settings = folded("Settings", list_of(settings_lines(results, names)), "settings")
    return facts_list(facts(results[0].result)) + reading + settings
