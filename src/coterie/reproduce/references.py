"""What figures are compared with: centralised methods and the chance level."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import NamedTuple

from coterie.algorithms.registry import ALGORITHMS
from coterie.report.references import TRIVIAL
from coterie.reproduce.chance import chance_level
from coterie.types import JsonObject

ACCURACY = ("HR", "NDCG", "P", "R", "F1", "AUC")
"""Metrics of which more is better. A chance level or a best method is drawn for these only."""
MOST = 3
"""Centralised methods that are drawn in one figure, the best ones."""


class ReferenceLevel(NamedTuple):
    """A method's figure as a level to compare with."""

    name: str
    value: float


def is_centralised(label: str) -> bool:
    """Whether a row such as "als, tuned" is of a centralised method."""
    algorithm = label.split(",")[0]
    place = ALGORITHMS.get(algorithm, "")
    return place.startswith("coterie.baselines.") and algorithm not in TRIVIAL


def centralised_levels(table: JsonObject, metric: str) -> list[ReferenceLevel]:
    """The centralised methods of a table, the best one first."""
    levels = [
        ReferenceLevel(label, mean(row["metrics"][metric]))
        for label, row in table["rows"].items()
        if is_centralised(label) and row["metrics"].get(metric)
    ]
    return sorted(levels, key=lambda level: -level.value)


def is_accuracy(metric: str) -> bool:
    return metric.split("@")[0] in ACCURACY


def best_centralised(table: JsonObject, metric: str) -> ReferenceLevel | None:
    """The best centralised method of a table; None if there is none or it is not accuracy."""
    levels = centralised_levels(table, metric) if is_accuracy(metric) else []
    return levels[0] if levels else None


def chance(table: JsonObject, metric: str) -> float | None:
    """The chance level: its closed form, or what random lists were measured to have."""
    if not is_accuracy(metric):
        return None
    random = table["rows"].get("random", {}).get("metrics", {}).get(metric)
    return mean(random) if random else chance_level(table.get("protocol"), metric)


def levels_elsewhere(
    items: Sequence[JsonObject], table: JsonObject, metric: str
) -> list[ReferenceLevel]:
    """The best centralised methods on the same data by the same protocol, from any item."""
    found: dict[str, ReferenceLevel] = {}
    for item in items:
        for other in item["tables"]:
            if same_test(other, table):
                for level in centralised_levels(other, metric):
                    found.setdefault(level.name, level)
    return sorted(found.values(), key=lambda level: -level.value)[:MOST]


def same_test(one: JsonObject, other: JsonObject) -> bool:
    """Whether figures of two tables compare: same data and same protocol."""
    return all(
        one.get(key) is not None and one.get(key) == other.get(key)
        for key in ("dataset", "protocol", "data")
    )
