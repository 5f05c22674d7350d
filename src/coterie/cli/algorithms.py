"""Commands about the program itself: algorithms, doctor."""

from __future__ import annotations

from typing import Annotated

import typer

PACKAGES = {
    "core": "numpy scipy numba pandas pydantic yaml typer rich",
    "report": "matplotlib plotly",
    "parquet": "pyarrow",
    "neural": "torch",
    "federation": "flwr cryptography",
    "cluster": "ray",
    "web": "fastapi uvicorn",
    "tune": "optuna",
    "privacy": "dp_accounting",
}


def show(
    name: Annotated[
        str | None, typer.Argument(help="An algorithm, to see its settings.", show_default=False)
    ] = None,
) -> None:
    """The algorithms by name, or one algorithm's settings."""
    from coterie.algorithms.registry import ALGORITHMS, algorithm
    from coterie.cli.screen import show_table

    if name is None:
        rows = [
            [n, a.summary, "federated" if a.federated else "centralised", a.paper]
            for n, a in ((n, algorithm(n)) for n in ALGORITHMS)
        ]
        show_table(["name", "what", "kind", "paper"], rows, left=4)
        typer.echo("settings of one: coterie algorithms NAME")
        return
    from coterie.data.filters import Filters
    from coterie.data.synthetic import Synthetic
    from coterie.evaluation.protocols import Protocol
    from coterie.experiments.config import Course, tuned_for

    chosen = algorithm(name)
    typer.echo(f"{name}: {chosen.summary}" + (f" ({chosen.paper})" if chosen.paper else ""))
    if found := tuned_for(name):
        typer.echo(
            f"tuned for {', '.join(found)}: there its own defaults are others, and a run's config.yaml shows them"
        )
    for title, group in (
        ("its own", chosen.settings),
        ("of every run", Course),
        ("of the data", Filters),
        ("of the protocol", Protocol),
        ("of --dataset synthetic", Synthetic),
    ):
        rows = [[key, default, text] for key, default, text in group.rows()]
        if rows:
            show_table(
                ["setting", "default", "what it does"], rows, left=3, title=f"Settings {title}"
            )


def doctor() -> None:
    """What this installation has: versions, extras, folders, data."""
    import os
    import platform
    import sys
    from importlib import metadata, util

    from coterie.cli.screen import show_table
    from coterie.core.paths import cache_folder, data_folder
    from coterie.data.datasets import DATASETS
    from coterie.data.fetch import is_local
    from coterie.version import __version__

    def version(package: str) -> str:
        names = {"yaml": "PyYAML", "dp_accounting": "dp-accounting"}
        return (
            f"{package} {metadata.version(names.get(package, package))}"
            if util.find_spec(package)
            else f"no {package}"
        )

    rows = [
        ["coterie", __version__],
        [
            "python",
            f"{sys.version.split()[0]} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        ],
        *(
            [extra, ", ".join(version(p) for p in packages.split())]
            for extra, packages in PACKAGES.items()
        ),
        ["data folder", _folder_state(data_folder())],
        [
            "datasets here",
            ", ".join(
                d.name
                for d in DATASETS.values()
                if d.name == "synthetic" or is_local(d.name, d.signature)
            ),
        ],
        ["cache folder", _folder_state(cache_folder())],
    ]
    show_table(["", ""], rows, left=2)
    missing = [
        extra
        for extra, packages in PACKAGES.items()
        if not all(util.find_spec(p) for p in packages.split())
    ]
    typer.echo(
        f"missing extras: {', '.join(missing)}; add them with: pip install 'coterie[{','.join(missing)}]'"
        if missing
        else "everything is installed"
    )


def _folder_state(folder: object) -> str:
    import os
    from pathlib import Path

    path = Path(str(folder))
    parent = next(p for p in (path, *path.parents) if p.exists())
    state = "" if path.exists() else ", not made yet"
    return f"{path}{state}{'' if os.access(parent, os.W_OK) else ', NOT WRITABLE: set COTERIE_DATA or XDG_CACHE_HOME'}"
