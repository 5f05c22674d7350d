"""Centralised runs whose folders stand beside that of a run, for its report."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import NamedTuple

from coterie.errors import RunError
from coterie.experiments import run_folder
from coterie.report.groups import are_comparable
from coterie.report.references import RunBeside
from coterie.report.users import QUANTILES
from coterie.types import JsonObject

MOST_FOLDERS = 1_000
"""Folders that are looked into, in the order of their names: a report must not take seconds."""


class RunsBeside(NamedTuple):
    """The runs beside a run that its report compares it with."""

    runs: list[RunBeside]
    n_unread: int
    """Finished runs beside it that were not looked into, since there are too many."""


def centralised_beside(folder: Path, result: JsonObject) -> RunsBeside:
    """Finished centralised runs in the same parent folder, on the same data and protocol."""
    own = folder.resolve()
    found = []
    folders = _folders(own.parent)
    for path in islice(folders, MOST_FOLDERS):
        other = None if path == own else _read(path)
        if other is not None and not other.get("bytes_down", 0) and are_comparable(result, other):
            found.append(RunBeside(path.name, other))
    return RunsBeside(found, sum(path != own for path in folders))


def _folders(parent: Path) -> Iterator[Path]:
    """The folders of finished runs, in the order of their names."""
    try:
        paths = sorted(parent.iterdir())
    except OSError:
        # A folder that may be entered and not listed has no neighbours to show.
        return
    for path in paths:
        if (path / "result.json").is_file():
            yield path


def _read(folder: Path) -> JsonObject | None:
    """The result with those of its figures that are numbers; None where it cannot be read.

    Anything may stand beside a run: a broken neighbour is no reason to have no report.
    """
    try:
        result = run_folder.read_result(folder)
    except RunError:
        return None
    spreads = result.get("quantiles")
    return (
        result
        | {kind: _numbers(result[kind]) for kind in ("metrics", "full")}
        | {"quantiles": _spreads(spreads) if isinstance(spreads, dict) else {}}
    )


def _numbers(values: JsonObject) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if _is_number(value)}


def _spreads(values: JsonObject) -> dict[str, list[float]]:
    """The quantiles of metrics over users, where they are numbers."""
    return {
        name: [float(value) for value in spread]
        for name, spread in values.items()
        if isinstance(spread, list)
        and len(spread) == len(QUANTILES)
        and all(map(_is_number, spread))
    }


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and isfinite(value)
