"""Settings that were found for a paper's tables, and how.

`searches.yaml` has the results of searches with equal trials for every method, which
`benchmarks/paper_search.py` writes. `tuned_settings.yaml` has those of earlier searches.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

from coterie.experiments.config import tuned_settings
from coterie.reproduce.items import SettingsSearch
from coterie.types import JsonObject

LITERAL = ("fedavg", "fedavg, constant")
"""Methods that average over the whole cohort, as Eq. 1 of FedFast's paper does literally."""
WHOLE_COHORT: JsonObject = {"average": "all"}
"""The setting of the literal reading, which is not FedAvg's default."""
AS_FIRST_PUBLISHED: dict[str, JsonObject] = {
    "als": {"reg_exponent": 0.0},
    "ease": {"length_exponent": 0.0, "reg_exponent": 0.0, "popularity_exponent": 0.0},
}
"""ALS and EASE of the papers' tables were searched in the forms that were first published. The
defaults of datasets have exponents as well."""
LAST_ROUND = "The best round is the last one: more rounds might be better."
"""The note on a method whose search ended at its limit."""


@cache
def _read(name: str) -> JsonObject:
    import yaml

    file = resources.files("coterie.reproduce.papers").joinpath(name)
    return dict(yaml.safe_load(file.read_text()))


def paper_settings(paper: str, dataset: str, *path: str) -> dict[Any, Any]:
    """The settings under a path of names in `tuned_settings.yaml`.

    A path that the file does not have gives the settings tuned for the dataset (`tuned.yaml`).
    Keys are setting names, or numbers where the file has one value per number.
    """
    node: dict[Any, Any] = _read("tuned_settings.yaml")[paper].get(dataset, {})
    for name in path:
        if name not in node:
            return tuned_settings(dataset, path[-1])
        node = node[name]
    return AS_FIRST_PUBLISHED.get(path[-1], {}) | node


def was_searched(paper: str, dataset: str, method: str) -> bool:
    """Whether `searches.yaml` has settings of a method."""
    return method in _read("searches.yaml").get(paper, {}).get(dataset, {})


def found_settings(paper: str, dataset: str, method: str) -> JsonObject:
    """The settings found for a method, from `searches.yaml`."""
    found: JsonObject = _read("searches.yaml")[paper][dataset][method]["settings"]
    return found | WHOLE_COHORT if method in LITERAL else AS_FIRST_PUBLISHED.get(method, {}) | found


def found_search(
    paper: str, dataset: str, method: str, most_rounds: int | None = None
) -> SettingsSearch:
    """How the settings of a method were found, from `searches.yaml`.

    `most_rounds` is the limit of the search; a method that used all of them has a note.
    """
    found = _read("searches.yaml")[paper][dataset][method]
    at_limit = most_rounds is not None and found["settings"].get("rounds", 0) >= most_rounds
    return SettingsSearch(
        trials=found["trials"], space=found["space"], note=LAST_ROUND if at_limit else ""
    )
