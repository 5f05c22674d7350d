"""The source files that a run of an algorithm can depend on: a change elsewhere keeps its figures.

Files are followed by what their text names: imports anywhere in a file, full module names in
strings, and names of kernel families in strings. So a run of one algorithm does not depend on the
file of another one, and adding an algorithm keeps the finished runs of all others.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

PACKAGE = "coterie"
RUNNER = "coterie.experiments.plan_runner"
"""The module that runs cells."""
TABLES = ("__init__.py", "algorithms/registry.py", "models/kinds.py")
"""Files that only name modules, of which others import one. They are not followed: whatever a run
uses of them is imported by other files, too."""
DISPLAY_PACKAGES = ("cli", "attacks", "console", "report", "reproduce")
"""Packages that show figures but cannot change them: editing them keeps finished cells valid."""
IMPORT = re.compile(rf"^\s*from ({PACKAGE}[\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
PLAIN_IMPORT = re.compile(rf"^\s*import ({PACKAGE}[\w.]*)", re.MULTILINE)
STRING = re.compile(r"\"([\w.]+)(?::\w+)?\"")


def all_sources(package: Path) -> list[Path]:
    """The files that some run can depend on, in order."""
    return sorted(_modules(package).values())


def relevant_sources(package: Path, module: str) -> list[Path]:
    """The files that a run of the algorithm in `module` can depend on, in order."""
    modules = _modules(package)
    found: set[str] = set()
    waiting = [RUNNER, module]
    while waiting:
        name = waiting.pop()
        if name in found or name not in modules:
            continue
        found.add(name)
        waiting += _named(package, name)
    paths = sorted(modules[name] for name in found)
    return [path for path in paths if path.relative_to(package).as_posix() not in TABLES]


@cache
def _modules(package: Path) -> dict[str, Path]:
    """The file of every module that can change a figure."""
    found = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package).with_suffix("").parts
        if parts[0] not in DISPLAY_PACKAGES:
            name = ".".join((PACKAGE, *parts)).removesuffix(".__init__")
            found[name] = path
    return found


@cache
def _named(package: Path, module: str) -> list[str]:
    """The modules that a file names, and the package that it is in."""
    path = _modules(package)[module]
    if path.relative_to(package).as_posix() in TABLES:
        return []
    text = path.read_text()
    named = [module.rpartition(".")[0], *PLAIN_IMPORT.findall(text)]
    for base, names in IMPORT.findall(text):
        named += [base, *(f"{base}.{name}" for name in re.findall(r"\w+", names))]
    for name in STRING.findall(text):
        named += [name, f"{PACKAGE}.kernels.{name}", f"{PACKAGE}.kernels.fallback.{name}"]
    return named
