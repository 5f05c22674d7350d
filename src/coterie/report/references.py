"""What methods are compared with: the ranking by popularity, and the best centralised method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from coterie.report.dots import CENTRAL, OURS, POPULAR
from coterie.report.metric_words import best_of
from coterie.types import JsonObject

TRIVIAL = ("random", "popular")
"""Baselines that learn nothing about single users."""


class Compared(NamedTuple):
    """A method with its value of the headline metric."""

    label: str
    algorithm: str
    federated: bool
    value: float
    deviation: float = 0.0
    """Over seeds."""


def popular_level(methods: Sequence[Compared]) -> float | None:
    """The value of the ranking by popularity, if it is compared."""
    return next((one.value for one in methods if one.algorithm == "popular"), None)


def best_centralised(methods: Sequence[Compared], metric: str) -> Compared | None:
    """The best centralised method that learns about single users, if one is compared."""
    central = [one for one in methods if not one.federated and one.algorithm not in TRIVIAL]
    best = best_of(metric, [one.value for one in central])
    return central[min(best, default=0)] if central else None


class RunBeside(NamedTuple):
    """A finished centralised run whose folder stands beside that of a run."""

    folder: str
    """Its name, without its parents."""
    result: JsonObject
    """Its `metrics`, `full` and `quantiles` hold numbers; they are empty where it has none."""


class Baseline(NamedTuple):
    """A method that a run is read against."""

    label: str
    heading: str
    """Its column of a table."""
    about: str
    """What it is, in one line."""
    metrics: dict[str, float]
    """Under the protocol."""
    full: dict[str, float]
    """Under full ranking; empty where it is not known."""
    quantiles: dict[str, list[float]]
    """Of metrics over users; empty where they are not known."""


class Baselines(NamedTuple):
    """What a run is read against; None where it is not known."""

    popular: Baseline | None
    central: Baseline | None

    @property
    def known(self) -> list[Baseline]:
        return [one for one in self if one is not None]


def baselines(result: JsonObject, neighbours: Sequence[RunBeside], metric: str) -> Baselines:
    """The ranking by popularity, and the best centralised run beside the run by a metric."""
    return Baselines(_popular(result, neighbours), _central(result, neighbours, metric))


def _popular(result: JsonObject, neighbours: Sequence[RunBeside]) -> Baseline | None:
    if result["algorithm"] == "popular":
        return None
    beside = [one.result for one in neighbours if one.result["algorithm"] == "popular"]
    # Results of earlier versions have no such figures; a run of `popular` may have them.
    metrics = result.get("popular") or (beside[0]["metrics"] if beside else {})
    if not metrics:
        return None
    full = beside[0]["full"] if beside else {}
    about = "the most popular items, the same for all users"
    return Baseline("popular", "popular", about, metrics, full, {})


def _central(result: JsonObject, neighbours: Sequence[RunBeside], metric: str) -> Baseline | None:
    able = [one for one in neighbours if metric in one.result["metrics"]]
    best = best_centralised(
        [
            Compared(one.folder, one.result["algorithm"], False, one.result["metrics"][metric])
            for one in able
        ],
        metric,
    )
    if best is None:
        return None
    found = next(one for one in able if one.folder == best.label)
    # Two runs of one algorithm are told apart by their folders.
    label = found.folder if best.algorithm == result["algorithm"] else best.algorithm
    return Baseline(
        label,
        f"{label}, centralised",
        f"the best centralised run in the same folder ({found.folder})",
        found.result["metrics"],
        found.result["full"],
        found.result["quantiles"],
    )


class Coloured(NamedTuple):
    """A run or a baseline as pictures show it, with its values."""

    label: str
    values: Mapping[str, float]
    colour: str


def run_and_baselines(
    label: str, values: Mapping[str, float], known: Baselines, kind: Literal["metrics", "full"]
) -> list[Coloured]:
    """The run first, then its baselines, each in the colour it has on the whole page."""
    found = [Coloured(label, values, OURS)]
    for one, colour in ((known.popular, POPULAR), (known.central, CENTRAL)):
        if one is not None:
            found.append(
                Coloured(one.label, one.metrics if kind == "metrics" else one.full, colour)
            )
    return found
