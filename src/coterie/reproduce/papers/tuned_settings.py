"""Settings that were found for a paper's tables, from `found.yaml`, which says how."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

from coterie.experiments.config import tuned_settings


@cache
def _all() -> dict[str, Any]:
    import yaml

    return dict(
        yaml.safe_load(
            resources.files("coterie.reproduce.papers").joinpath("found.yaml").read_text()
        )
    )


def found(paper: str, dataset: str, *path: str) -> dict[Any, Any]:
    """What stands under a path of names; without it, the settings tuned for the dataset (`tuned.yaml`)."""
    here: Any = _all()[paper].get(dataset, {})
    for name in path:
        if name not in here:
            return tuned_settings(dataset, path[-1])
        here = here[name]
    return dict(here)
