"""`coterie attack`: what poisoned updates of a few users do to a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.options import JsonOption, QuietOption, RunFolderArgument
from coterie.cli.say import say


def attack(
    folder: RunFolderArgument,
    name: Annotated[
        str,
        typer.Option(
            "--attack",
            "-a",
            help="Name of the attack: docs/poisoning.md lists them.",
        ),
    ] = "noise",
    share: Annotated[
        float, typer.Option("--share", help="Share of the users who attack, at least one user.")
    ] = 0.01,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="ITEM",
            help="Id of the item that is promoted.",
            show_default="one of the items with the fewest interactions",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", help="Seed of the attackers, the target and their draws.")
    ] = 0,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Setting of the attack, such as amplitude=4, or of the run. Repeat for more.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="New folder of attack.html and attack.json.",
            show_default="the run folder, where those of an earlier attack are replaced",
        ),
    ] = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Replay a run with attackers among its users.

    Trains the run's configuration twice: with all users honest, and with a share of them sending
    poisoned updates. Shows the accuracy that honest users lose, how many of them get the
    promoted item recommended, and who is hurt.

    coterie run fedfast --dataset ml-100k

    coterie attack runs/fedfast-ml-100k-1 --attack pieck --share 0.01

    coterie attack runs/fedfast-ml-100k-1 --attack pieck --set robust=bounded --out defended
    """
    from coterie.attacks.poisoning import report
    from coterie.attacks.poisoning.replay import attack_run
    from coterie.cli.screen import progress_for, show_table
    from coterie.experiments.config import parse_assignments
    from coterie.experiments.run_folder import new_folder, refuse_occupied

    refuse_occupied(out)
    outcome = attack_run(
        folder,
        name,
        share=share,
        target=target,
        seed=seed,
        settings=parse_assignments(set_ or []),
        progress=progress_for(silent=quiet or as_json),
    )
    place = folder if out is None else new_folder(out, "attack")
    report.save(outcome, place)
    if as_json:
        say(json.dumps(outcome.as_json(), allow_nan=False))
        return
    show_table(report.HEADER, report.rows(outcome), title=report.title(outcome))
    if quiet:
        return
    for line in report.notes(outcome):
        say(line)
    say(f"report: {place / 'attack.html'}")
