"""Settings that were tuned for a paper's tables, from `tuned_settings.yaml`."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

from coterie.experiments.config import tuned_settings
from coterie.types import JsonObject


@cache
def _all() -> JsonObject:
    import yaml

    file = resources.files("coterie.reproduce.papers").joinpath("tuned_settings.yaml")
    return dict(yaml.safe_load(file.read_text()))


def paper_settings(paper: str, dataset: str, *path: str) -> dict[Any, Any]:
    """The settings under a path of names.

    A path that the file does not have gives the settings tuned for the dataset (`tuned.yaml`).
    Keys are setting names, or numbers where the file has one value per number.
    """
    node: dict[Any, Any] = _all()[paper].get(dataset, {})
    for name in path:
        if name not in node:
            return tuned_settings(dataset, path[-1])
        node = node[name]
    return dict(node)
