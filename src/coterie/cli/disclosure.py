"""`coterie disclosure`: what a curious server learns about the users of a run."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from coterie.cli.options import Json, Quiet
from coterie.cli.runs import Folder


def disclosure(
    folder: Folder,
    rounds: Annotated[
        str | None,
        typer.Option(
            "--rounds",
            metavar="K,K",
            help="After how many rounds from the first.",
            show_default="10,100; fcf 1",
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Measure what a run's server can tell about users (FPL, FCF).

    Plays the run's first rounds again and listens in on the server.

    coterie disclosure runs/pfpl+-synthetic-1 --rounds 10,100

    Leaves disclosure.md and disclosure.json in the run folder. pi is a disclosure rate, not a privacy guarantee.
    """
    from coterie.attacks import report, save
    from coterie.attacks.tables import brief, notes, title
    from coterie.cli.screen import ScreenProgress, show_table
    from coterie.core.progress import SILENT

    wanted = None if rounds is None else _numbers(rounds)
    found = report(folder, wanted, progress=SILENT if quiet or as_json else ScreenProgress())
    save(found, folder)
    if as_json:
        typer.echo(json.dumps(found.as_json(), allow_nan=False))
        return
    show_table(*brief(found), left=2, title=title(found))
    for line in notes(found)[
        : 1 if quiet else None
    ]:  # the first is the warning, which is never left out
        typer.echo(line)
    if not quiet:
        typer.echo(f"report: {folder / 'disclosure.md'}")


def _numbers(text: str) -> list[int]:
    from coterie.errors import ConfigError

    try:
        return [int(part) for part in text.replace(",", " ").split()]
    except ValueError:
        raise ConfigError(
            f"--rounds {text!r} is not whole numbers. Write for example --rounds 10,100"
        ) from None
