"""The report of several runs as one self-contained HTML page: groups of comparable runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import count

from coterie.report.charts import charts, scripts, static_chart
from coterie.report.figure import panels
from coterie.report.groups import RunGroup, grouped, warning
from coterie.report.metric_words import best_of
from coterie.report.overview import overview
from coterie.report.parts import document, html_table, label
from coterie.report.references import Compared
from coterie.report.run_page import run_page
from coterie.report.sections import (
    all_metrics,
    category_bias,
    commands,
    conditions,
    followed,
)
from coterie.report.steps import is_federated
from coterie.report.table import Reported, all_notes, labels, table
from coterie.report.users import over_users, telling_metric

NO_TEST = "Single runs are no test: coterie compare tests differences over users."


def page(runs: Sequence[Reported]) -> str:
    """The report of one or more runs."""
    if len(runs) == 1:
        return run_page(runs[0])
    algorithms = ", ".join(dict.fromkeys(run.result["algorithm"] for run in runs))
    datasets = ", ".join(dict.fromkeys(run.result["dataset"] for run in runs))
    title = f"{algorithms} on {datasets}"
    groups = grouped(runs)
    flag = warning(groups)
    numbers = count(1)
    body = "".join(
        [
            f"<header><h1>{escape(title)}</h1>",
            f"<p class=about>Coterie {escape(str(runs[0].result['version']))}</p>",
            f"<p class=flag><strong>{escape(flag)}</strong></p>" if flag else "",
            "</header>",
            *(_group(group, numbers, bool(flag)) for group in groups),
            f"<h2>Repeat</h2>{commands(runs)}",
        ]
    )
    return document(title, [body], scripts(body))


def _group(group: RunGroup, numbers: Iterator[int], is_flagged: bool) -> str:
    """Comparable runs: the best one and a figure of all, the table, curves and settings."""
    runs = group.runs
    own = label("not comparable with the other groups", "not") if is_flagged else ""
    return "".join(
        [
            f"<section><h2>{escape(group.title)} {own}</h2>",
            f"<div class=opening><div>{_best(runs)}{_notes(runs)}</div>{_dots(runs)}</div>",
            html_table(*table(runs)),
            _figures(runs, numbers),
            all_metrics(runs),
            category_bias(runs),
            f"<h3>Data and evaluation</h3>{conditions(runs)}",
            "</section>",
        ]
    )


def _best(runs: Sequence[Reported]) -> str:
    """The best run by the followed metric; "" if all are equal."""
    metric = followed(runs[0].result)
    values = [run.result["metrics"].get(metric) for run in runs]
    best = [labels(runs)[place] for place in sorted(best_of(metric, values))]
    if not best:
        return ""
    value = next(values[place] for place in best_of(metric, values))
    text = f"Best by {metric}: {', '.join(best)}, {value:.4f}."
    return f"<p><strong>{escape(text)}</strong> {NO_TEST}</p>"


def _notes(runs: Sequence[Reported]) -> str:
    return "".join(f"<p>{escape(note)}</p>" for note in all_notes(runs))


def _dots(runs: Sequence[Reported]) -> str:
    metric = followed(runs[0].result)
    methods = [
        Compared(name, r["algorithm"], is_federated(r), r["metrics"][metric])
        for name, r in zip(labels(runs), (run.result for run in runs), strict=True)
        if metric in r["metrics"]
    ]
    result = runs[0].result
    popular = result.get("popular", {}).get(metric)
    return overview(methods, metric, result["protocol"], "run", popular)


def _figures(runs: Sequence[Reported], numbers: Iterator[int]) -> str:
    """Curves and the spread over users."""
    drawn = charts(panels(runs), numbers, _users(runs))
    return f"<h3>Convergence and users</h3>{drawn}" if drawn else ""


def _users(runs: Sequence[Reported]) -> str:
    """The spread of a headline metric over users; "" if the results do not have it."""
    spreads = [run.result.get("quantiles", {}) for run in runs]
    metric = telling_metric(runs[0].result["headline"], spreads)
    if not metric:
        return ""
    rows = {name: one[metric] for name, one in zip(labels(runs), spreads, strict=True)}
    return static_chart(over_users("users", f"{metric} over users", metric, rows))
