"""Commands about runs: run, resume, evaluate, report."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli.options import (
    ColumnsOption,
    DelimiterOption,
    EncodingOption,
    JsonOption,
    NoHeaderOption,
    ProtocolOption,
    QuietOption,
    RunFolderArgument,
    SaveOption,
    SecureAggregationOption,
    SkipBadRowsOption,
    file_settings,
)
from coterie.cli.say import say

if TYPE_CHECKING:
    from coterie.experiments.finished_run import Run


def run(
    target: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE.yaml",
            help="Algorithm (see coterie algorithms) or experiment file.",
            show_default=False,
        ),
    ],
    dataset: Annotated[
        str | None,
        typer.Option(
            "--dataset",
            "-d",
            help="Dataset name (see coterie data list) or path.",
            show_default="synthetic",
        ),
    ] = None,
    protocol: ProtocolOption = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", help="Random seed. The same seed gives the same result.", show_default="0"
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            "--rounds",
            help="Rounds of a federated algorithm. FPL counts epochs: use --set epochs=N.",
            show_default="the algorithm's",
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            help="Hardware that trains, of algorithms that can use a GPU: cpu or cuda.",
            show_default="cpu",
        ),
    ] = None,
    secure_aggregation: SecureAggregationOption = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            "--epsilon",
            help="Privacy budget of each user for the whole run: user-level differential privacy.",
            show_default="no noise",
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            help="Engine that runs the nodes of a federated algorithm: local or ray.",
            show_default="local",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            "-s",
            metavar="KEY=VALUE",
            help="Any setting (see coterie algorithms NAME). Repeat for more.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Run folder.", show_default="runs/NAME-DATASET-N"),
    ] = None,
    columns: ColumnsOption = None,
    skip_bad_rows: SkipBadRowsOption = False,
    encoding: EncodingOption = None,
    delimiter: DelimiterOption = None,
    no_header: NoHeaderOption = False,
    save: SaveOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train an algorithm, evaluate it and write a run folder.

    coterie run fedfast --rounds 100

    coterie run bpr --dataset ml-100k --set embedding_size=32

    coterie run experiment.yaml --seed 3
    """
    from coterie.cli.screen import progress_for
    from coterie.experiments import experiment as experiments
    from coterie.experiments.config import Experiment, changed, parse_assignments, read_file
    from coterie.experiments.derived_defaults import origin_of_settings
    from coterie.experiments.run_folder import earlier_run, new_folder, refuse_occupied

    is_file = target.endswith((".yaml", ".yml"))
    values = read_file(target) if is_file else {"algorithm": target}
    options = {
        "dataset": dataset,
        "protocol": protocol,
        "seed": seed,
        "rounds": rounds,
        "device": device,
        "secure_aggregation": secure_aggregation,
        "epsilon": epsilon,
        "engine": engine,
        "save": save or None,
    }
    given = {key: value for key, value in options.items() if value is not None}
    of_file = file_settings(columns, skip_bad_rows, encoding, delimiter, no_header)
    changes = given | of_file | parse_assignments(set_ or [])
    experiment = Experiment.of(changed(values, changes))
    choice = experiment.choice
    progress = progress_for(silent=quiet or as_json)
    refuse_occupied(out)
    if origin := origin_of_settings(experiment, target, values if is_file else ()):
        progress.log(origin)
    name = f"{choice.algorithm}-{Path(choice.dataset).name.split('.')[0]}"
    if out is None:
        earlier = earlier_run(name, experiments.with_absolute_paths(experiment.flat()))
        if earlier:
            progress.log(earlier)
    finished = experiments.run(
        experiment, make_folder=partial(new_folder, out, name), progress=progress
    )
    _print(finished, as_json, quiet)
    _exit_if_stopped(finished)


def resume(
    folder: RunFolderArgument, quiet: QuietOption = False, as_json: JsonOption = False
) -> None:
    """Resume an interrupted run.

    The result is the same as without the interruption.
    """
    from coterie.cli.screen import progress_for
    from coterie.experiments import experiment as experiments

    finished = experiments.resume(folder, progress_for(silent=quiet or as_json))
    _print(finished, as_json, quiet)
    _exit_if_stopped(finished)


def evaluate(
    folder: RunFolderArgument,
    protocol: Annotated[
        str | None,
        typer.Option(
            "--protocol",
            "-p",
            help="Another protocol with the same split.",
            show_default="the run's",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", help="Seed of the sampled candidates.", show_default="the run's"),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            "-s",
            metavar="KEY=VALUE",
            help="Protocol setting, such as cutoffs=5,10. Repeat for more.",
        ),
    ] = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Re-evaluate a run's model with another protocol.

    Cut-offs and sampled candidates can change too. The run folder is not changed.
    """
    from coterie.cli.screen import progress_for
    from coterie.experiments.config import parse_assignments
    from coterie.experiments.reevaluation import reevaluate

    options = {"protocol": protocol, "seed": seed}
    changes = parse_assignments(set_ or [])
    changes |= {key: value for key, value in options.items() if value is not None}
    evaluated = reevaluate(folder, changes, progress_for(silent=quiet or as_json))
    _print(evaluated, as_json, quiet=True)


def report(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="One or more run folders.", show_default=False),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="HTML file to write.",
            show_default="report.html; for one run, in its folder",
        ),
    ] = None,
) -> None:
    """Show runs side by side, as a table and an HTML page.

    Runs with other data, filters, splits or protocols have their own table and are flagged. Prints
    Markdown. The page also has figures, all metrics and settings.
    """
    from coterie.experiments.finished_run import Run
    from coterie.experiments.run_folder import write_text
    from coterie.experiments.run_report import run_report
    from coterie.report.markdown import markdown
    from coterie.report.page import page

    unfinished = [
        folder for folder in folders if folder.is_dir() and not (folder / "result.json").exists()
    ]
    # `coterie report runs/*` may include interrupted runs; the finished ones still have a report.
    if 0 < len(unfinished) < len(folders):
        say(f"left out, not finished: {', '.join(map(str, unfinished))}", err=True)
        folders = [folder for folder in folders if folder not in unfinished]
    runs = [Run.load(folder) for folder in folders]
    target = out or (folders[0] / "report.html" if len(folders) == 1 else Path("report.html"))
    if target.is_dir():
        target = target / "report.html"
    html = run_report(runs[0], folders[0]) if len(runs) == 1 else page(runs)
    write_text(target.parent, target.name, html)
    say(markdown(runs))
    say(f"page: {target}")


def _exit_if_stopped(finished: Run) -> None:
    """A run that its privacy budget ended has a result, and an exit code of its own."""
    from coterie.errors import BudgetSpent

    stopped = finished.result.get("privacy", {}).get("stopped")
    if stopped:
        raise BudgetSpent(stopped)


def _print(finished: Run, as_json: bool, quiet: bool) -> None:
    result = finished.result
    if as_json:
        say(json.dumps(result, allow_nan=False))
        return
    _print_metrics(finished)
    if quiet:
        return
    from coterie.report.steps import step_name, steps_text
    from coterie.report.table import notes, times_of_evaluation

    for line in notes(finished):
        say(line)
    rounds = result["rounds"]
    name = step_name(result)
    line = f"trained {steps_text(f'{rounds:,}', name)} in {result['seconds']:,.2f} s"
    if result["best_round"] != rounds:
        line += f"; the best {name.removesuffix('s')} on validation is {result['best_round']:,}"
    say(line)
    say(times_of_evaluation(result))
    say(f"run:    {result['run']}")
    say(f"report: {Path(result['run']) / 'report.html'}")


def _print_metrics(finished: Run) -> None:
    """Print the headline metrics; a sampled protocol has full ranking in a second column."""
    from coterie.cli.screen import show_table
    from coterie.report.table import marked, shown

    result = finished.result
    header = ["metric", result["protocol"]]
    measured = result["metrics"]
    rows = [
        [name, marked(result, name) if name in measured else "-"] for name in result["headline"]
    ]
    if result["metrics"] != result["full"]:
        header.append("full ranking")
        full = result["full"]
        for row in rows:
            row.append(shown(row[0], full[row[0]]) if row[0] in full else "-")
    title = f"{result['algorithm']} on {result['dataset']}, seed {result['seed']}"
    show_table(header, rows, title=title)
