"""`coterie leaderboard`: every algorithm on one footing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli.options import (
    CellsOption,
    ColumnsOption,
    DelimiterOption,
    EncodingOption,
    JsonOption,
    NoHeaderOption,
    QuietOption,
    SkipBadRowsOption,
    WorkersOption,
    file_settings,
)
from coterie.cli.say import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.core.progress import Progress
    from coterie.experiments.leaderboard import Leaderboard, LeaderboardRequest

PROTOCOL = "loo-99"
TRIALS = 10
SEEDS = 3
QUICK_TRIALS = 2
QUICK_SEEDS = 1
QUICK_DATASETS = ("ml-100k",)


def leaderboard(
    datasets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DATASET]...",
            help="Dataset names (see coterie data list) or paths.",
            show_default="ml-100k ml-1m foursquare-italy yelp pinterest tripadvisor",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="NAME",
            help="Algorithm to compare. Repeat for more.",
            show_default="all",
        ),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            "--without",
            metavar="NAME",
            help="Algorithm to leave out. Repeat for more.",
            show_default="none",
        ),
    ] = None,
    gpu: Annotated[
        list[str] | None,
        typer.Option(
            "--gpu",
            metavar="NAME",
            help="Algorithm to train on a GPU. Repeat for more.",
            show_default="none",
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Two trials, one seed and at most 60 rounds or 15 epochs; ml-100k by default.",
        ),
    ] = False,
    trials: Annotated[
        int | None,
        typer.Option(
            "--trials",
            min=1,
            help="Settings to try for each algorithm.",
            show_default="10; 2 with --quick",
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            min=1,
            help="Number of seeds of the final runs.",
            show_default="3; 1 with --quick",
        ),
    ] = None,
    protocol: Annotated[
        str,
        typer.Option("--protocol", "-p", help="Evaluation protocol, the same for all datasets."),
    ] = PROTOCOL,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            "-s",
            metavar="KEY=VALUE",
            help="Setting of the data or its evaluation, such as core=5. Repeat for more.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder of the report.", show_default="leaderboard"),
    ] = None,
    cells: CellsOption = None,
    workers: WorkersOption = 1,
    columns: ColumnsOption = None,
    skip_bad_rows: SkipBadRowsOption = False,
    encoding: EncodingOption = None,
    delimiter: DelimiterOption = None,
    no_header: NoHeaderOption = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare all algorithms with equally many trials each. Finished runs are not repeated.

    Settings are searched on the validation part, and the best ones are measured on the test part.
    The report has accuracy with paired tests against the best, and the bytes, messages and exposure
    of a client. It is written anew after every dataset, next to earlier ones in the same folder.

    coterie leaderboard --quick --workers 2

    coterie leaderboard ml-100k --only fedals --only fedfast --only ease --trials 20
    """
    from coterie.cli.screen import progress_for
    from coterie.experiments.config import parse_assignments
    from coterie.experiments.leaderboard import DATASETS, LeaderboardRequest

    settings = file_settings(columns, skip_bad_rows, encoding, delimiter, no_header)
    settings |= parse_assignments(set_ or [])
    usual = QUICK_DATASETS if quick else DATASETS
    requests = [
        LeaderboardRequest(
            dataset=dataset,
            algorithms=tuple(only or ()),
            without=tuple(without or ()),
            gpu=tuple(gpu or ()),
            protocol=protocol,
            trials=trials or (QUICK_TRIALS if quick else TRIALS),
            seeds=seeds or (QUICK_SEEDS if quick else SEEDS),
            quick=quick,
            settings=settings,
        )
        for dataset in datasets or usual
    ]
    folder = out or Path("leaderboard")
    _refuse_other_folder(folder)
    progress = progress_for(silent=quiet or as_json)
    boards = [_measured(request, folder, cells, progress, workers) for request in requests]
    _print(boards, folder, as_json)


def _refuse_other_folder(folder: Path) -> None:
    """A leaderboard may be added to an earlier one, but to no other folder."""
    from coterie.experiments.leaderboard_folder import is_leaderboard
    from coterie.experiments.run_folder import refuse_occupied

    if not is_leaderboard(folder):
        refuse_occupied(folder)


def _measured(
    request: LeaderboardRequest,
    folder: Path,
    cells: Path | None,
    progress: Progress,
    workers: int,
) -> Leaderboard:
    """The leaderboard of one dataset, which is in the report before the next one begins."""
    import shlex
    import sys

    from coterie.experiments.leaderboard import leaderboard as measure
    from coterie.experiments.leaderboard_folder import add

    board = measure(request, cells, progress, workers)
    add(folder, board, shlex.join(["coterie", *sys.argv[1:]]))
    return board


def _print(boards: Sequence[Leaderboard], folder: Path, as_json: bool) -> None:
    if as_json:
        say(json.dumps([board.to_json() for board in boards], allow_nan=False))
        return
    from coterie.cli.screen import show_table
    from coterie.experiments.leaderboard_tables import (
        accuracy_table,
        conditions,
        cost_table,
        findings,
    )

    for board in boards:
        say(f"{board.dataset}, {board.protocol}: {conditions(board)}")
        for table in (accuracy_table(board), cost_table(board)):
            show_table(table.header, table.rows, table.left, table.title, table.bold)
        for one in board.left_out:
            say(f"left out: {one.algorithm}: {one.reason}")
        for line in findings(board):
            say(line)
    say(f"report: {folder / 'report.html'}")
