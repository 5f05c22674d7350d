"""Commands about the installation: algorithms and doctor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from coterie.cli.say import say

if TYPE_CHECKING:
    from pathlib import Path


class Extra(NamedTuple):
    """An optional dependency group of pyproject.toml: the modules it installs and their use."""

    modules: tuple[str, ...]
    purpose: str


CORE = ("numpy", "scipy", "numba", "pandas", "pydantic", "yaml", "typer", "rich")
EXTRAS = {
    "report": Extra(("matplotlib", "plotly"), "figures in reports, coterie reproduce"),
    "parquet": Extra(("pyarrow",), "reading .parquet files"),
    "neural": Extra(("torch",), "two-tower models, multivae, lightgcn, --device cuda"),
    "secagg": Extra(("cryptography",), "--secure-aggregation secagg"),
    "privacy": Extra(("dp_accounting", "cryptography"), "--epsilon"),
    "node": Extra(("google.protobuf", "cryptography"), "coterie join and federation"),
    "federation": Extra(("flwr", "uvicorn", "prometheus_client"), "coterie serve"),
    "web": Extra(("fastapi", "uvicorn"), "coterie api and console"),
    "cluster": Extra(("ray",), "--engine ray"),
}
DISTRIBUTIONS = {
    "yaml": "PyYAML",
    "google.protobuf": "protobuf",
    "dp_accounting": "dp-accounting",
    "prometheus_client": "prometheus-client",
}
"""Names on the package index, for modules that are imported under another name."""


def show(
    name: Annotated[
        str | None,
        typer.Argument(help="Algorithm whose settings are shown.", show_default=False),
    ] = None,
) -> None:
    """List the algorithms, or show one algorithm's settings."""
    if name is None:
        _list_algorithms()
    else:
        _show_settings(name)


def _list_algorithms() -> None:
    from coterie.algorithms.registry import algorithm, names
    from coterie.cli.screen import show_table

    rows = []
    for name in names():
        chosen = algorithm(name)
        kind = "federated" if chosen.federated else "centralised"
        rows.append([name, chosen.summary, kind, chosen.paper])
    show_table(["name", "what", "kind", "paper"], rows, left=4)
    say("For one algorithm's settings, run: coterie algorithms NAME")


def _show_settings(name: str) -> None:
    from coterie.algorithms.registry import algorithm
    from coterie.cli.screen import show_table
    from coterie.data.filters import Filters
    from coterie.data.synthetic import Synthetic
    from coterie.evaluation.protocols import Protocol
    from coterie.experiments.config import Course, tuned_for

    chosen = algorithm(name)
    say(f"{name}: {chosen.summary}" + (f" ({chosen.paper})" if chosen.paper else ""))
    if datasets := tuned_for(name):
        say(
            f"Tuned defaults exist for {', '.join(datasets)} and replace those below; "
            "config.yaml of a run shows the values used."
        )
    for title, group in (
        ("Settings of the algorithm", chosen.settings),
        ("Settings of every run", Course),
        ("Settings of the data", Filters),
        ("Settings of the protocol", Protocol),
        ("Settings of --dataset synthetic", Synthetic),
    ):
        rows = [[key, default, text] for key, default, text in group.rows()]
        if rows:
            show_table(["setting", "default", "what it does"], rows, left=3, title=title)


def doctor() -> None:
    """Show installed versions, extras, folders and datasets."""
    import os
    import platform
    import sys

    from coterie.cli.screen import show_table
    from coterie.core.paths import cache_folder, data_folder
    from coterie.data import datasets
    from coterie.data.fetch import is_local
    from coterie.version import __version__

    python = sys.version.split()[0]
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    available = [
        name
        for name in datasets.names()
        if name == "synthetic" or is_local(name, datasets.dataset(name).signature)
    ]
    rows = [
        ["coterie", __version__],
        ["python", f"{python} on {machine}"],
        ["core", _versions(CORE)],
        ["data folder", _folder_state(data_folder())],
        ["datasets available", ", ".join(available)],
        ["cache folder", _folder_state(cache_folder())],
    ]
    show_table(["", ""], rows, left=2)
    extras = [[name, _versions(extra.modules), extra.purpose] for name, extra in EXTRAS.items()]
    show_table(["extra", "packages", "needed for"], extras, left=3)
    missing = [
        name
        for name, extra in EXTRAS.items()
        if not all(_is_installed(module) for module in extra.modules)
    ]
    if missing:
        names = ", ".join(missing)
        say(f"missing extras: {names}. Run: pip install 'coterie[{','.join(missing)}]'")
    else:
        say("All extras are installed.")


def _is_installed(module: str) -> bool:
    from importlib import util

    return util.find_spec(module) is not None


def _versions(modules: tuple[str, ...]) -> str:
    from importlib import metadata

    texts = []
    for module in modules:
        if _is_installed(module):
            version = metadata.version(DISTRIBUTIONS.get(module, module))
            texts.append(f"{module} {version}")
        else:
            texts.append(f"no {module}")
    return ", ".join(texts)


def _folder_state(folder: Path) -> str:
    import os

    existing = next(path for path in (folder, *folder.parents) if path.exists())
    text = str(folder)
    if not folder.exists():
        text += ", not created yet"
    if not os.access(existing, os.W_OK):
        text += ", NOT WRITABLE: set COTERIE_DATA or XDG_CACHE_HOME"
    return text
