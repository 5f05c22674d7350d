"""The report of one run as a self-contained HTML page without scripts: the conclusion first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape

from coterie.report.charts import static_chart
from coterie.report.coverage import coverage_section
from coterie.report.dots import CENTRAL, OURS
from coterie.report.figure import panels
from coterie.report.figures import Figure, Series
from coterie.report.lines import line_plot
from coterie.report.parts import document, folded, html_table, label, list_of, section
from coterie.report.references import Baselines, RunBeside, baselines, run_and_baselines
from coterie.report.run_costs import costs_section
from coterie.report.run_protection import budget_section, defence_section, server_section
from coterie.report.run_summary import cards, conclusion, pictures
from coterie.report.samples import SampleList, samples_section
from coterie.report.sections import (
    all_metrics,
    category_bias,
    commands,
    conditions,
    followed,
)
from coterie.report.steps import is_federated, step_name, steps_text
from coterie.report.table import (
    Reported,
    evaluation_notes,
    metric_columns,
    metric_rows,
    shown,
    training_notes,
)
from coterie.report.users import QUANTILES, over_users, telling_metric
from coterie.types import JsonObject

LINKS = {
    "accuracy": "Accuracy",
    "convergence": "Convergence",
    "costs": "Costs of a client",
    "users": "Users",
    "coverage": "Popularity and coverage",
    "server": "What the server saw",
    "defence": "Defence",
    "budget": "Privacy budget",
    "samples": "Samples",
    "conditions": "Data and settings",
    "repeat": "Repeat",
}
FIRST_AXES = ("updates", "megabytes")
"""The axes of the curve that are shown unfolded: what training costs in messages and in bytes."""
ONE_STEP = "<p>Trained in one step: there is no curve.</p>"
UPDATES = "An update is one message from a client; megabytes are sent and received together."
DASHED = "Dashed: the final figures of the baselines."


def run_page(
    run: Reported,
    samples: Sequence[SampleList] = (),
    neighbours: Sequence[RunBeside] = (),
    n_unread: int = 0,
) -> str:
    """The page; `neighbours` are centralised runs on the same data and protocol.

    `n_unread`: runs in the same folder that were not looked into, and may be better baselines.
    """
    result = run.result
    known = baselines(result, neighbours, followed(result))
    contents = {
        "accuracy": _accuracy(run, known, n_unread),
        "convergence": _convergence(run, known),
        "costs": costs_section(result),
        "users": _users(result, known),
        "coverage": coverage_section(result, known) + category_bias([run]),
        "server": server_section(result),
        "defence": defence_section(result),
        "budget": budget_section(result),
        "samples": samples_section(samples),
        "conditions": conditions([run]),
        "repeat": commands([run]),
    }
    links = "".join(f"<a href=#{name}>{LINKS[name]}</a>" for name in contents if contents[name])
    parts = [section(name, LINKS[name], content) for name, content in contents.items()]
    title = f"{result['algorithm']} on {result['dataset']}"
    body = [_opening(title, run, known), f"<nav>{links}</nav>", "<main>", *parts, "</main>"]
    return document(title, body)


# ---- the first screen


def _opening(title: str, run: Reported, known: Baselines) -> str:
    """Title, the headline figures with what they mean, and the baselines beside them."""
    result = run.result
    about = f"{result['protocol']}, {result['tested_users']:,} users tested. "
    about += f"Coterie {result['version']}"
    metric = followed(result)
    return (
        f"<header><h1>{escape(title)}</h1><p class=about>{escape(about)}</p>{_badges(result)}"
        f"<div class=opening><div id=summary>{cards(result)}{conclusion(result, known, metric)}"
        f"</div><div>{pictures(result, known)}</div></div></header>"
    )


def _badges(result: JsonObject) -> str:
    """What the run is, at a glance."""
    kind = "federated" if is_federated(result) else "centralised"
    steps = steps_text(f"{result['rounds']:,}", step_name(result))
    texts = [kind, f"seed {result['seed']}", f"{steps} in {result['seconds']:,.2f} s"]
    badges = [label(text, "open") for text in texts]
    badges += _protection(result)
    if result.get("below_popular"):
        badges.append(label(f"{', '.join(result['below_popular'])} below popular", "not"))
    if result["as_published"]:
        badges.append(label("leaky on purpose", "not"))
    if result.get("privacy", {}).get("stopped"):
        badges.append(label("privacy budget spent", "part"))
    return f"<p class=badges>{''.join(badges)}</p>"


def _protection(result: JsonObject) -> list[str]:
    """How updates travelled, and the privacy budget, where the result has them."""
    badges = []
    if "in_the_clear" in result:
        exposed = result["in_the_clear"] or result.get("in_sums")
        badges.append(label("secure aggregation", "part" if exposed else "holds"))
    elif "server_receives" in result:
        badges.append(label("updates in the clear", "part"))
    privacy = result.get("privacy")
    if privacy:
        # Whoever knows the seed can remove such noise.
        seeded = privacy["noise_source"] == "seeded"
        text = f"epsilon {privacy['epsilon']:g}"
        badges.append(
            label(f"{text}, simulated" if seeded else text, "part" if seeded else "holds")
        )
    return badges


def _accuracy(run: Reported, known: Baselines, n_unread: int) -> str:
    """The headline metrics next to those of the baselines; all metrics folded."""
    result = run.result
    under_protocol, *full = metric_columns(run).items()
    columns = dict([under_protocol])
    for one in known.known:
        columns[one.heading] = {name: shown(name, value) for name, value in one.metrics.items()}
    table = html_table(*metric_rows(columns | dict(full), result["headline"]), kind="metrics")
    notes = [*evaluation_notes(result), *training_notes(result), *_unread_note(n_unread)]
    return table + list_of(notes) + all_metrics([run])


def _unread_note(n_unread: int) -> list[str]:
    if not n_unread:
        return []
    return [
        f"Runs in the same folder that were not read, since there are many: {n_unread:,}. A better "
        "centralised run may be among them; to compare with one, name both: coterie report RUN RUN."
    ]


# ---- curves and users


def _convergence(run: Reported, known: Baselines) -> str:
    """The followed metric by updates and by bytes; other axes, metrics and values folded."""
    figures = [_with_levels(figure, run, known) for figure in panels([run])]
    if not figures:
        return ONE_STEP if run.curve else ""
    metric = followed(run.result)
    first = next((figure for figure in figures if figure.key == metric), figures[0])
    opened = [axis for axis in first.axes if axis in FIRST_AXES] or first.axes[:2]
    shown_first = _over(first, opened)
    closed = [axis for axis in first.axes if axis not in opened]
    rest = _over(first, closed) if closed else ""
    rest += "".join(static_chart(other) for other in figures if other is not first)
    caption = f"{first.caption} {UPDATES}" if "updates" in opened else first.caption
    return (
        f"<div class=figures>{shown_first}<p class=about>{escape(caption)}</p></div>"
        f"{folded('Other axes and metrics', _grid(rest))}"
        f"{folded('The curve as a table', _curve_table(run))}"
    )


def _grid(drawn: str) -> str:
    return f"<div class=figures>{drawn}</div>" if drawn else ""


def _over(figure: Figure, axes: Sequence[str]) -> str:
    return "".join(f"<figure>{line_plot(figure, axis)}</figure>" for axis in axes)


def _with_levels(figure: Figure, run: Reported, known: Baselines) -> Figure:
    """The figure with the levels of the baselines, if they were measured on the same part."""
    if run.result.get("convergence", {}).get("part") != "test":
        return figure
    _, *others = run_and_baselines("", {}, known, "metrics")
    levels = [
        Series(one.label, [one.values[figure.key]], {}, level=True, colour=one.colour)
        for one in others
        if figure.key in one.values
    ]
    if not levels:
        return figure
    return replace(figure, series=[*figure.series, *levels], caption=f"{figure.caption} {DASHED}")


def _curve_table(run: Reported) -> str:
    """Every measurement, for readers who see no pictures."""
    names = [name for name in run.result["headline"] if all(name in line for line in run.curve)]
    columns = [
        name
        for name in ("updates", "bytes_up", "bytes_down", "seconds")
        if all(name in line for line in run.curve)
    ]
    header = [step_name(run.result), *names, *columns]
    rows = [
        [
            f"{line['round']:,}",
            *(shown(name, line[name]) for name in names),
            *(f"{line[name]:,.6g}" if name == "seconds" else f"{line[name]:,}" for name in columns),
        ]
        for line in run.curve
    ]
    return html_table(header, rows)


def _users(result: JsonObject, known: Baselines) -> str:
    """How a headline metric is spread over users, as a figure and in words."""
    drawn = _users_figure(result, known)
    lines = _spread_lines(result)
    words = f"<div>{list_of(lines)}</div>" if lines else ""
    return f"<div class=figures>{drawn}{words}</div>" if drawn or words else ""


def _users_figure(result: JsonObject, known: Baselines) -> str:
    """The users of the run, and those of the best centralised run beside it."""
    spreads = result.get("quantiles", {})
    metric = telling_metric(result["headline"], [spreads])
    if not metric:
        return ""
    rows = {result["algorithm"]: spreads[metric]}
    if known.central is not None and metric in known.central.quantiles:
        rows[known.central.label] = known.central.quantiles[metric]
    figure = over_users("users", f"{metric} over users", metric, rows)
    series = [
        replace(one, colour=colour)
        for one, colour in zip(figure.series, (OURS, CENTRAL), strict=False)
    ]
    return static_chart(replace(figure, series=series))


def _spread_lines(result: JsonObject) -> list[str]:
    """Quartiles of every headline metric; hits on one item are 0 or 1 and have none to tell."""
    places = {share: QUANTILES.index(share) for share in (25, 50, 75)}
    return [
        f"{name}: a quarter of the users have at most {shown(name, values[places[25]])}, half at "
        f"most {shown(name, values[places[50]])}, three quarters at most "
        f"{shown(name, values[places[75]])}."
        for name, values in result.get("quantiles", {}).items()
        if len(values) == len(QUANTILES) and len(set(values)) > 2
    ]
