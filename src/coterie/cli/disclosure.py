"""`coterie disclosure`: what an honest-but-curious server learns about the users of a run."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from coterie.cli.options import JsonOption, QuietOption, RunFolderArgument
from coterie.cli.say import say


def disclosure(
    folder: RunFolderArgument,
    rounds: Annotated[
        str | None,
        typer.Option(
            "--rounds",
            metavar="K,K",
            help="Measure after these numbers of rounds.",
            show_default="10,100; fedals 1,10; fcf, fedease, fedslim 1",
        ),
    ] = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure what a server can infer about users.

    Replays the run's first rounds and attacks the updates that the server receives or, under
    secure aggregation, their sums. For runs of FPL (sfpl, sfpl+, pfpl, pfpl+), fcf, fedals,
    fedease and fedslim.

    coterie disclosure runs/pfpl+-synthetic-1 --rounds 10,100

    Writes disclosure.md and disclosure.json into the run folder. pi is a disclosure rate, not a
    privacy guarantee.
    """
    from coterie.attacks import report, save
    from coterie.attacks.tables import brief, notes, title
    from coterie.cli.screen import progress_for, show_table

    after = None if rounds is None else _parse_rounds(rounds)
    found = report(folder, after, progress=progress_for(silent=quiet or as_json))
    save(found, folder)
    if as_json:
        say(json.dumps(found.as_json(), allow_nan=False))
        return
    show_table(*brief(found), left=2, title=title(found))
    lines = notes(found)
    # The first note is the warning about pi; --quiet must not hide it.
    for line in lines[:1] if quiet else lines:
        say(line)
    if not quiet:
        say(f"report: {folder / 'disclosure.md'}")


def _parse_rounds(text: str) -> list[int]:
    from coterie.errors import ConfigError

    try:
        return [int(part) for part in text.replace(",", " ").split()]
    except ValueError:
        raise ConfigError(
            f"--rounds is {text!r}; expected whole numbers. Write for example --rounds 10,100"
        ) from None
