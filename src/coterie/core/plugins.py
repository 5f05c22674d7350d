"""Plug-ins: algorithms, datasets, models and metrics of other packages, by Python entry points.

A package that is installed with Coterie names what it adds in its `pyproject.toml`:

    [project.entry-points."coterie.algorithms"]
    mine = "my_package.mine:ALGORITHM"

Its names then work everywhere: on the command line, in experiments, on nodes, in reports. Nothing
of a plug-in is imported before its name is used.

Python programs need no package: `provided` adds values for the duration of a block.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from coterie.errors import PluginError

ALGORITHMS = "coterie.algorithms"
DATASETS = "coterie.datasets"
MODELS = "coterie.models"
METRICS = "coterie.metrics"

Value = TypeVar("Value")

_PROVIDED: ContextVar[Mapping[tuple[str, str], object] | None] = ContextVar(
    "provided", default=None
)
"""Values that the running call was given as objects, by group and name."""


@contextmanager
def provided(group: str, values: Mapping[str, object]) -> Iterator[None]:
    """Add values to a group for the duration of a block, as an installed package would."""
    added = {(group, name): value for name, value in values.items()}
    token = _PROVIDED.set({**_provided(), **added})
    try:
        yield
    finally:
        _PROVIDED.reset(token)


def _provided() -> Mapping[tuple[str, str], object]:
    return _PROVIDED.get() or {}


def is_provided(group: str, name: str) -> bool:
    """Whether a name stands for an object of the running call, which other processes lack."""
    return (group, name) in _provided()


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
    given = [name for of_group, name in _provided() if of_group == group]
    for name in given:
        if name in built_in:
            raise PluginError(
                f"an object was passed for {group} with the name {name!r}, which is a name of "
                "Coterie's own; expected another name. Rename it."
            )
    return sorted({*added, *given})


def load(group: str, name: str, expected: type[Value]) -> Value:
    """The value that a plug-in's name stands for."""
    value = load_object(group, name)
    if not isinstance(value, expected):
        wanted = f"a value of type {expected.__name__}"
        raise _wrong_kind(group, name, f"a {type(value).__name__}", wanted)
    return value


def load_class(group: str, name: str, parent: type[Value]) -> type[Value]:
    """The class that a plug-in's name stands for."""
    value = load_object(group, name)
    if not (isinstance(value, type) and issubclass(value, parent)):
        wanted = f"a subclass of {parent.__name__}"
        raise _wrong_kind(group, name, f"a {type(value).__name__}", wanted)
    return value


def _wrong_kind(group: str, name: str, found: str, wanted: str) -> PluginError:
    if is_provided(group, name):
        return PluginError(f"{name!r} was passed as {found}; expected {wanted}. Pass one.")
    entry = plugins(group)[name]
    return PluginError(
        f"{name!r} of {_package(entry)} names {entry.value!r}, {found}; expected {wanted}. "
        "Point the entry point at one."
    )


def load_object(group: str, name: str) -> object:
    """What a name stands for, of any type."""
    if is_provided(group, name):
        return _provided()[group, name]
    return _load(plugins(group)[name])


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
