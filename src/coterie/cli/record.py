"""`coterie record`: a replay of a run, recorded for the console."""

from __future__ import annotations

from typing import Annotated

import typer

from coterie.cli.options import QuietOption, RunFolderArgument
from coterie.cli.say import say


def record(
    folder: RunFolderArgument,
    rounds: Annotated[
        int | None,
        typer.Option(
            "--rounds", min=1, help="Record the first rounds only.", show_default="all rounds"
        ),
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Replay a run and record it for the console.

    Records the users' embeddings, clusters and selections by round, what the server received of
    every user, and what attackers infer from it. The console shows them on the pages Clusters and
    User.

    coterie record runs/fedfast-synthetic-1

    Writes recording.npz into the run folder; only its owner can read it.
    """
    from coterie.cli.screen import progress_for
    from coterie.console.recordings.record import record_run
    from coterie.console.recordings.recording import NAME

    recording = record_run(folder, rounds, progress=progress_for(silent=quiet))
    recording.write(folder)
    if not quiet:
        say(f"{folder / NAME}: {recording.n_rounds:,} rounds in {recording.seconds:.1f} s")
