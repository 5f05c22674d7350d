"""`coterie choose`: the federated algorithm for your data, by what may leave a client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli.compare import split_settings
from coterie.cli.options import (
    ColumnsOption,
    DatasetOption,
    DelimiterOption,
    EncodingOption,
    JsonOption,
    NoHeaderOption,
    ProtocolOption,
    QuietOption,
    SkipBadRowsOption,
    file_settings,
)
from coterie.cli.say import say

if TYPE_CHECKING:
    from coterie.experiments.choice import AlgorithmChoice


def choose(
    may_leave: Annotated[
        str,
        typer.Option(
            "--may-leave",
            metavar="sums|updates|disclosed",
            help=(
                "What may leave a client: only sums over clients (secure aggregation), every "
                "client's update, or updates of the items that users disclose."
            ),
            show_default=False,
        ),
    ],
    dataset: DatasetOption = "synthetic",
    disclosure: Annotated[
        str | None,
        typer.Option(
            "--disclosure",
            help="Rate that users disclose at: a number, or a distribution as in --set disclosure.",
            show_default="0.1 with --may-leave disclosed",
        ),
    ] = None,
    minutes: Annotated[
        float,
        typer.Option("--minutes", help="Time for training; shared by all algorithms."),
    ] = 4.0,
    protocol: ProtocolOption = None,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Seed of the split and of training.")
    ] = 0,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            "-s",
            metavar="KEY=VALUE",
            help=(
                "Setting of the data or its split, such as core=5. ALGORITHM.KEY=VALUE is for one "
                "algorithm. Repeat for more."
            ),
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Folder of the report.", show_default="runs/choose-DATASET-N"
        ),
    ] = None,
    columns: ColumnsOption = None,
    skip_bad_rows: SkipBadRowsOption = False,
    encoding: EncodingOption = None,
    delimiter: DelimiterOption = None,
    no_header: NoHeaderOption = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare the algorithms you may use, and recommend one.

    What may leave a client decides which federated algorithms are trained on your data. Accuracy
    is measured on the validation part. The test part is never used.

    coterie choose --dataset ratings.csv --may-leave sums

    coterie choose --dataset ml-100k --may-leave disclosed --disclosure 0.5
    """
    from coterie.cli.screen import progress_for
    from coterie.experiments.choice import ChoiceRequest, federated_algorithms
    from coterie.experiments.choice import choose as compare_allowed
    from coterie.experiments.run_folder import refuse_occupied

    common, own = split_settings(set_ or [], federated_algorithms())
    request = ChoiceRequest(
        dataset=dataset,
        may_leave=may_leave,
        disclosure=_rate(disclosure),
        minutes=minutes,
        protocol=protocol,
        seed=seed,
        settings=file_settings(columns, skip_bad_rows, encoding, delimiter, no_header) | common,
        own=own,
    )
    refuse_occupied(out)
    choice = compare_allowed(request, None, progress_for(silent=quiet or as_json))
    folder = _write(choice, out)
    _print(choice, folder, as_json)


def _rate(text: str | None) -> float | str | None:
    """A number as a number; a distribution as it is."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _write(choice: AlgorithmChoice, out: Path | None) -> Path:
    """Write the report once everything is measured: an interrupted choice leaves no folder."""
    import shlex
    import sys

    from coterie.experiments.choice_report import page
    from coterie.experiments.run_folder import new_folder, write_text

    html = page(choice, shlex.join(["coterie", *sys.argv[1:]]))
    text = json.dumps(choice.to_json(), indent=2, allow_nan=False) + "\n"
    folder = new_folder(out, f"choose-{Path(choice.request.dataset).name.split('.')[0]}")
    write_text(folder, "choice.json", text)
    write_text(folder, "report.html", html)
    return folder


def _print(choice: AlgorithmChoice, folder: Path, as_json: bool) -> None:
    report = folder / "report.html"
    if as_json:
        say(json.dumps(choice.to_json() | {"report": str(report)}, allow_nan=False))
        return
    from coterie.cli.screen import show_table
    from coterie.experiments.choice_report import (
        learned,
        next_steps,
        notes,
        recommendation,
        table,
        title,
    )

    drawn = table(choice)
    show_table(drawn.header, drawn.rows, 1, title(choice), drawn.bold)
    say("What the server learns")
    for line in learned(choice):
        say(f"  {line}")
    say(recommendation(choice))
    for line in notes(choice):
        say(f"  {line}")
    for line in next_steps(choice):
        say(line)
    say(f"report: {report}")
