"""The conclusion of a run's page: its figures, and those of the baselines beside them."""

from __future__ import annotations

from html import escape

from coterie.report.bars import Bar, BarGroup, bar_plot
from coterie.report.metric_words import explained, is_error
from coterie.report.parts import captioned, list_of
from coterie.report.references import Baseline, Baselines, run_and_baselines
from coterie.report.sizes import size_text
from coterie.report.steps import is_federated
from coterie.report.table import shown, worse_than_popular
from coterie.types import JsonObject

MOST = 3
"""Metrics that have a card and a picture."""
NO_TEST = "One run is no test: coterie compare tests differences over users and seeds."


def cards(result: JsonObject) -> str:
    """The first headline metrics in large figures, each with what it means."""
    drawn = "".join(
        f"<dl class=headline><dt>{escape(name)}</dt>"
        f"<dd class=value>{escape(shown(name, result['metrics'][name]))}</dd>"
        f"<dd class=meaning>{escape(explained(name))}</dd></dl>"
        for name in shown_metrics(result)
    )
    return f"<div class=headlines>{drawn}</div>" if drawn else ""


def shown_metrics(result: JsonObject) -> list[str]:
    """The first headline metrics that were measured under the protocol."""
    return [name for name in result["headline"] if name in result["metrics"]][:MOST]


def conclusion(result: JsonObject, known: Baselines, metric: str) -> str:
    """What the figures say, in a few sentences."""
    return list_of(
        [
            *_against_popular(result, known, metric),
            *_against_centralised(result, known, metric),
            *_costs(result),
            NO_TEST,
        ]
    )


def _against_popular(result: JsonObject, known: Baselines, metric: str) -> list[str]:
    if result["algorithm"] == "popular":
        return []
    if known.popular is None:
        return [
            "Popular, the same list for all users, is missing: the version that made the run did "
            "not compute it. Run coterie run popular on the same data."
        ]
    if result.get("below_popular"):
        return [worse_than_popular(result)]
    return _difference(result, known.popular, metric)


def _against_centralised(result: JsonObject, known: Baselines, metric: str) -> list[str]:
    if known.central is not None:
        return _difference(result, known.central, metric)
    if not is_federated(result):
        return []
    return [
        "A centralised run to compare with is missing: none in the same folder has the same data "
        f"and protocol. Run coterie run als --dataset {result['dataset']}, then coterie report."
    ]


def _difference(result: JsonObject, other: Baseline, metric: str) -> list[str]:
    """How much better or worse the run is than a baseline."""
    if metric not in other.metrics or metric not in result["metrics"]:
        return []
    own = result["metrics"][metric]
    theirs = other.metrics[metric]
    change = theirs - own if is_error(metric) else own - theirs
    word = "better" if change >= 0 else "worse"
    ratio = f": {own / theirs:.0%} of it" if theirs else ""
    return [
        f"{metric} is {shown(metric, abs(change))} {word} than that of {other.label} "
        f"({shown(metric, theirs)}){ratio}."
    ]


def _costs(result: JsonObject) -> list[str]:
    """What a client paid, on average."""
    users = result["users"]
    if not is_federated(result) or not users:
        return []
    return [
        f"A client sent {size_text(result['bytes_up'] / users)} and received "
        f"{size_text(result['bytes_down'] / users)} on average, over the whole run."
    ]


def pictures(result: JsonObject, known: Baselines) -> str:
    """The run and its baselines as bars, for each of the first headline metrics."""
    groups = [_bars(result, known, name) for name in shown_metrics(result)]
    if not groups:
        return ""
    drawn = bar_plot(groups, "The run and its baselines")
    return captioned(drawn, _caption(result, known), "overview")


def _bars(result: JsonObject, known: Baselines, metric: str) -> BarGroup:
    values = run_and_baselines(result["algorithm"], result["metrics"], known, "metrics")
    bars = [
        Bar(one.label, one.values[metric], shown(metric, one.values[metric]), one.colour)
        for one in values
        if metric in one.values
    ]
    return BarGroup(f"{metric}, lower is better" if is_error(metric) else metric, bars)


def _caption(result: JsonObject, known: Baselines) -> str:
    about = " ".join(f"{one.label}: {one.about}." for one in known.known)
    return f"By {result['protocol']}. {about}".strip()
