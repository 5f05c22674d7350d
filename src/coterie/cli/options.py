"""Options and arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from coterie.types import JsonObject

DatasetOption = Annotated[
    str,
    typer.Option("--dataset", "-d", help="Dataset name (see coterie data list) or path."),
]
ProtocolOption = Annotated[
    str | None,
    typer.Option(
        "--protocol",
        "-p",
        help=(
            "Evaluation protocol: loo-50, loo-99, loo-100, holdout, holdout-10, full, kfold-5 or "
            "kfold-10."
        ),
        show_default="the dataset's",
    ),
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Show only the result, without progress.")
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON, without progress.")
]
CertificateOption = Annotated[
    Path | None,
    typer.Option(
        "--certificate",
        metavar="FILE",
        help="Certificate of this server as PEM: use TLS.",
        show_default=False,
    ),
]
CertificateKeyOption = Annotated[
    Path | None,
    typer.Option("--key", metavar="FILE", help="Private key of --certificate.", show_default=False),
]
InvitationOption = Annotated[
    Path | None,
    typer.Option(
        "--invitation",
        help="The file of `coterie federation invite`: server, authority and what is trained.",
        show_default=False,
    ),
]
ColumnsOption = Annotated[
    str | None,
    typer.Option(
        "--columns",
        help=(
            "Column names of a file, as role=NAME pairs: user_id=userId,item_id=movieId. "
            "timestamp=- uses no column."
        ),
    ),
]
SkipBadRowsOption = Annotated[
    bool,
    typer.Option("--skip-bad-rows", help="Skip invalid rows of a file and count them."),
]
EncodingOption = Annotated[
    str | None,
    typer.Option(
        "--encoding",
        help="Encoding of a csv, tsv or txt file, such as latin-1.",
        show_default="utf-8",
    ),
]
DelimiterOption = Annotated[
    str | None,
    typer.Option(
        "--delimiter",
        help="What separates the cells of a csv, tsv or txt file, such as ';' or tab.",
        show_default="as in the header",
    ),
]
NoHeaderOption = Annotated[
    bool,
    typer.Option(
        "--no-header",
        help="A csv, tsv or txt file without header: name columns by number, user_id=1,item_id=2.",
    ),
]
CellsOption = Annotated[
    Path | None,
    typer.Option(
        "--cells",
        help="Folder of finished runs; they are read, not run again.",
        show_default="the cache folder",
    ),
]
WorkersOption = Annotated[
    int,
    typer.Option(
        "--workers", help="Number of processes that share the runs. Results are the same.", min=1
    ),
]
SaveOption = Annotated[
    list[str] | None,
    typer.Option(
        "--save",
        metavar="WHAT",
        help=(
            "Save users' data in the run folder: recommendations (the best items of every user) "
            "or split (training and test interactions). Repeat for both."
        ),
    ),
]
SecureAggregationOption = Annotated[
    str | None,
    typer.Option(
        "--secure-aggregation",
        help="Protocol that hides each user's update from the servers: secagg, ring or none.",
        show_default="none",
    ),
]
RunFolderArgument = Annotated[
    Path,
    typer.Argument(help="Run folder, as printed by `coterie run`.", show_default=False),
]


def file_settings(
    columns: str | None,
    skip_bad_rows: bool,
    encoding: str | None,
    delimiter: str | None,
    no_header: bool,
) -> JsonObject:
    """The settings of a run that say how its file is read, as far as they are given."""
    settings = {
        "columns": parse_columns(columns) or None,
        "skip_bad_rows": skip_bad_rows or None,
        "encoding": encoding,
        "delimiter": delimiter,
        "header": False if no_header else None,
    }
    return {key: value for key, value in settings.items() if value is not None}


def parse_columns(text: str | None) -> dict[str, str]:
    """Parse `role=NAME,role=NAME` into a mapping from role to column name."""
    from coterie.errors import ConfigError

    pairs = [pair.partition("=") for pair in text.split(",")] if text else []
    for role, equals, name in pairs:
        if not (role.strip() and equals and name.strip()):
            raise ConfigError(
                f"--columns is {text!r}; expected role=NAME pairs. "
                "Write for example --columns user_id=userId,item_id=movieId"
            )
    return {role.strip(): name.strip() for role, _, name in pairs}
