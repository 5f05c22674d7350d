"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Dataset = Annotated[
    str, typer.Option("--dataset", "-d", help="A dataset (coterie data list) or a path.")
]
Protocol = Annotated[
    str | None,
    typer.Option(
        "--protocol",
        "-p",
        help="loo-50, loo-99, loo-100, holdout, holdout-10 or full.",
        show_default="the dataset's",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress; only the result.")]
Json = Annotated[
    bool, typer.Option("--json", help="One JSON object on standard output and nothing else there.")
]
Columns = Annotated[
    str | None,
    typer.Option(
        "--columns", help="For files: role=NAME pairs, such as user_id=userId,item_id=movieId."
    ),
]
SkipBadRows = Annotated[
    bool, typer.Option("--skip-bad-rows", help="For files: drop bad rows and count them.")
]


def parse_columns(text: str | None) -> dict[str, str]:
    """`role=NAME,role=NAME` to a mapping."""
    from coterie.errors import ConfigError

    pairs = [pair.partition("=") for pair in text.split(",")] if text else []
    for role, equals, name in pairs:
        if not (role.strip() and equals and name.strip()):
            raise ConfigError(
                f"--columns {text!r} is not role=NAME pairs. Write for example --columns user_id=userId,item_id=movieId"
            )
    return {role.strip(): name.strip() for role, _, name in pairs}
