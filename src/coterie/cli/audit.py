"""`coterie audit`: test a run's claim of differential privacy from outside."""

from __future__ import annotations

import json

import typer

from coterie.cli.options import JsonOption, QuietOption, RunFolderArgument


def audit(
    folder: RunFolderArgument, quiet: QuietOption = False, as_json: JsonOption = False
) -> None:
    """Test a run's claim of differential privacy.

    An attacker who knows all users but one tries to tell releases with that user from releases
    without, by 20,000 draws of the run's own noise. Its errors bound epsilon from below. A bound
    above the claim refutes it.

    coterie run fedease --epsilon 5

    coterie audit runs/fedease-synthetic-1

    Writes audit.md and audit.json into the run folder. The exit code is 2 if the claim is refuted.
    """
    from coterie.attacks import audit_report
    from coterie.cli.screen import progress_for, show_table

    findings = audit_report.audit_run(folder, progress_for(silent=quiet or as_json))
    audit_report.save(findings, folder)
    if as_json:
        typer.echo(json.dumps(audit_report.as_json(findings), allow_nan=False))
    else:
        show_table(audit_report.HEADER, audit_report.rows(findings), left=2, texts=(5,))
        for line in audit_report.summary(findings)[: 1 if quiet else None]:
            typer.echo(line)
        if not quiet:
            typer.echo(f"report: {folder / 'audit.md'}")
    if any(found.refutes for found in findings):
        raise typer.Exit(2)
