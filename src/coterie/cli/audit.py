"""`coterie audit`: test a run's claim of differential privacy from outside."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from coterie.cli.options import JsonOption, QuietOption, RunFolderArgument
from coterie.cli.say import say


def audit(
    folder: RunFolderArgument,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Leave out the attackers that train models."),
    ] = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Test a run's claim of differential privacy.

    An attacker who knows all users but one tries to tell releases with that user from releases
    without, by 20,000 draws of the run's own noise. Its errors bound epsilon from below. A bound
    above the claim refutes it. Other attackers tell who was in training, and which interactions
    were, from models that are trained with the run's noise and without any.

    coterie run fedease --epsilon 5

    coterie audit runs/fedease-synthetic-1

    Writes audit.md and audit.json into the run folder. The exit code is 2 if the claim is refuted.
    """
    from coterie.attacks import audit_report
    from coterie.cli.screen import progress_for, show_table

    progress = progress_for(silent=quiet or as_json)
    audited = audit_report.audit_run(folder, not quick, progress)
    audit_report.save(audited, folder)
    if as_json:
        say(json.dumps(audited.as_json(), allow_nan=False))
    else:
        rows = audit_report.rows(audited.findings)
        show_table(audit_report.HEADER, rows, left=2, texts=(5,))
        if audited.inferences:
            rows = audit_report.inference_rows(audited.inferences)
            show_table(audit_report.INFERENCE_HEADER, rows, left=2)
        for line in audit_report.summary(audited)[: 1 if quiet else None]:
            say(line)
        if not quiet:
            say(f"report: {folder / 'audit.md'}")
    if audited.refuted:
        raise typer.Exit(2)
