"""The report of runs as one self-contained HTML page: groups of comparable runs, figures first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import count

from coterie.report.charts import charts, scripts, static_chart
from coterie.report.conditions import READING, facts, reading_lines
from coterie.report.figure import panels
from coterie.report.groups import RunGroup, grouped, warning
from coterie.report.metric_words import best_of
from coterie.report.overview import overview
from coterie.report.parts import (
    document,
    facts_list,
    folded,
    html_table,
    label,
    list_of,
)
from coterie.report.references import Compared
from coterie.report.samples import SampleList, samples_section
from coterie.report.steps import is_federated, step_name, steps_text
from coterie.report.table import (
    Reported,
    all_notes,
    labels,
    metric_columns,
    metric_rows,
    popular_column,
    settings_lines,
    table,
)
from coterie.report.users import over_users, telling_metric
from coterie.types import JsonObject

NO_TEST = "Single runs are no test: coterie compare tests differences over users."


def page(runs: Sequence[Reported], samples: Sequence[SampleList] = ()) -> str:
    """The report of one or more runs; `samples` are recommendations of a single run."""
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
            samples_section(samples),
            f"<h2>Repeat</h2>{_commands(runs)}",
        ]
    )
    return document(title, [scripts(body), body])


def _group(group: RunGroup, numbers: Iterator[int], is_flagged: bool) -> str:
    """Comparable runs: figures, conditions and settings."""
    runs = group.runs
    own = label("not comparable with the other groups", "not") if is_flagged else ""
    alone = len(runs) == 1
    return "".join(
        [
            f"<section><h2>{escape(group.title)} {own}</h2>",
            _one(runs[0], numbers) if alone else _several(runs),
            _figures(runs, numbers),
            folded("All metrics", _all_metrics(runs)),
            _bias(runs),
            "<h3>Data and evaluation</h3>",
            facts_list(facts(runs[0].result)),
            folded(READING, list_of(reading_lines(runs[0].result)), "settings"),
            folded("Settings", list_of(settings_lines(runs)), "settings"),
            "</section>",
        ]
    )


# ---- the first screen


def _one(run: Reported, numbers: Iterator[int]) -> str:
    """The headline metrics of a run; next to them a curve or, without one, the users."""
    r = run.result
    under_protocol, *full = metric_columns(run).items()
    columns = dict([under_protocol]) | popular_column(run) | dict(full)
    headline = html_table(*metric_rows(columns, r["headline"]), kind="metrics")
    figure = charts(panels([run])[:1], numbers) or _users([run])
    return (
        f"<div class=opening><div>{_badges(r)}{headline}{_notes([run])}</div>"
        f"<div id=overview>{figure}</div></div>"
    )


def _badges(result: JsonObject) -> str:
    """What the run is, at a glance."""
    kind = "federated" if is_federated(result) else "centralised"
    steps = steps_text(f"{result['rounds']:,}", step_name(result))
    texts = [kind, f"seed {result['seed']}", f"{steps} in {result['seconds']:,.2f} s"]
    badges = [label(text, "open") for text in texts]
    if result.get("below_popular"):
        badges.append(label(f"{', '.join(result['below_popular'])} below popular", "not"))
    if result["as_published"]:
        badges.append(label("leaky on purpose", "not"))
    return f"<p class=badges>{''.join(badges)}</p>"


def _several(runs: Sequence[Reported]) -> str:
    """The best run and a figure of all; then the table."""
    return (
        f"<div class=opening><div>{_best(runs)}{_notes(runs)}</div>{_dots(runs)}</div>"
        f"{html_table(*table(runs))}"
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


def followed(result: JsonObject) -> str:
    """The metric of the first figure: the one that training follows."""
    metric = result.get("convergence", {}).get("metric")
    return str(metric) if metric in result["metrics"] else str(result["headline"][0])


# ---- curves, users, metrics


def _figures(runs: Sequence[Reported], numbers: Iterator[int]) -> str:
    """Curves and the spread over users, without the figure of a single run's first screen."""
    figures = panels(runs)
    alone = len(runs) == 1
    users = "" if alone and not figures else _users(runs)
    drawn = charts(figures[1:] if alone else figures, numbers, users)
    return f"<h3>Convergence and users</h3>{drawn}" if drawn else ""


def _users(runs: Sequence[Reported]) -> str:
    """The spread of a headline metric over users; "" if the results do not have it."""
    spreads = [run.result.get("quantiles", {}) for run in runs]
    metric = telling_metric(runs[0].result["headline"], spreads)
    if not metric:
        return ""
    rows = {name: one[metric] for name, one in zip(labels(runs), spreads, strict=True)}
    return static_chart(over_users("users", f"{metric} over users", metric, rows))


def _all_metrics(runs: Sequence[Reported]) -> str:
    columns: dict[str, dict[str, str]] = {}
    for name, run in zip(labels(runs), runs, strict=True):
        columns |= metric_columns(run, name if len(runs) > 1 else "")
    kinds = [run.result[kind] for kind in ("full", "metrics") for run in runs]
    names = list(dict.fromkeys(name for values in kinds for name in values))
    return html_table(*metric_rows(columns, names), kind="metrics")


def _bias(runs: Sequence[Reported]) -> str:
    """Bias by category of training data and of recommendations; "" if no run measured it."""
    biases = [(run.result.get("bias") or {}).get("categories", {}) for run in runs]
    if not any(biases):
        return ""
    names = {name for bias in biases for name in bias}
    columns = ("source", "recommended", "disparity")
    header = ["category", *(f"{name} {column}" for name in labels(runs) for column in columns)]
    rows = [
        [name, *(_number(bias.get(name, {}).get(column)) for bias in biases for column in columns)]
        for name in sorted(names)
    ]
    caption = (
        "Share of training records (source) and of recommendations over share of items: "
        "above 1 is over-represented. Disparity 0: recommendations have the bias of training."
    )
    return f"<h3>Bias by category</h3>{html_table(header, rows)}<p class=about>{caption}</p>"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _commands(runs: Sequence[Reported]) -> str:
    folders = [run.result["run"] for run in runs if run.result["run"]]
    if not folders:
        return "<p>The run was not saved to a folder.</p>"
    commands = "\n".join(f"coterie run {folder}/config.yaml" for folder in folders)
    return f"<pre>{escape(commands)}</pre>"
