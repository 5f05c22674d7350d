"""Plug-ins: algorithms, datasets and models that other packages add by Python entry points.

A package that is installed with Coterie names what it adds in its `pyproject.toml`:

    [project.entry-points."coterie.algorithms"]
    mine = "my_package.mine:ALGORITHM"

Its names then work everywhere: on the command line, in experiments, on nodes, in reports. Nothing
of a plug-in is imported before its name is used.
"""

from __future__ import annotations

from collections.abc import Container
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from coterie.errors import PluginError

ALGORITHMS = "coterie.algorithms"
DATASETS = "coterie.datasets"
MODELS = "coterie.models"

Value = TypeVar("Value")


@cache
def plugins(group: str) -> dict[str, EntryPoint]:
    """The plug-ins of a group by name. Two packages that claim one name are an error."""
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=group):
        other = found.get(entry.name)
        if other is not None and other.value != entry.value:
            raise PluginError(
                f"the name {entry.name!r} in {group} is claimed by {_package(other)} and by "
                f"{_package(entry)}; expected one owner. Uninstall one of them."
            )
        found[entry.name] = entry
    return found


def names(group: str, built_in: Container[str]) -> list[str]:
    """The names that plug-ins add to the built-in ones."""
    added = plugins(group)
    for name, entry in added.items():
        if name in built_in:
            raise PluginError(
                f"{_package(entry)} adds {name!r} to {group}, which is a name of Coterie's own; "
                "expected another name. Rename it there, or uninstall the package."
            )
    return sorted(added)


def load(group: str, name: str, expected: type[Value]) -> Value:
    """The value that a plug-in's name stands for."""
    entry = plugins(group)[name]
    value = _load(entry)
    if not isinstance(value, expected):
        raise PluginError(
            f"{name!r} of {_package(entry)} names {entry.value!r}, a {type(value).__name__}; "
            f"expected a value of type {expected.__name__}. Point the entry point at one."
        )
    return value


def load_class(group: str, name: str, parent: type[Value]) -> type[Value]:
    """The class that a plug-in's name stands for."""
    entry = plugins(group)[name]
    value = _load(entry)
    if not (isinstance(value, type) and issubclass(value, parent)):
        raise PluginError(
            f"{name!r} of {_package(entry)} names {entry.value!r}; "
            f"expected a subclass of {parent.__name__}. Point the entry point at one."
        )
    return value


def sources(group: str, name: str) -> list[Path]:
    """The source files of the package behind a name; none for a name of Coterie's own."""
    entry = plugins(group).get(name)
    spec = find_spec(entry.module.partition(".")[0]) if entry else None
    if spec is None:
        return []
    folders = spec.submodule_search_locations
    if folders is None:
        return [Path(spec.origin)] if spec.origin else []
    return sorted(path for folder in folders for path in Path(folder).rglob("*.py"))


def _load(entry: EntryPoint) -> object:
    try:
        return entry.load()
    except Exception as error:
        raise PluginError(
            f"{entry.name!r} of {_package(entry)} cannot be loaded from {entry.value!r} "
            f"({type(error).__name__}: {error}); expected importable code. "
            "Fix the package, or uninstall it."
        ) from error


def _package(entry: EntryPoint) -> str:
    return f"the package {entry.dist.name!r}" if entry.dist else f"{entry.value!r}"
