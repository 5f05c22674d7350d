"""`coterie tune`: random search for settings on the validation part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli.options import (
    CellsOption,
    ColumnsOption,
    DatasetOption,
    DelimiterOption,
    EncodingOption,
    JsonOption,
    NoHeaderOption,
    ProtocolOption,
    QuietOption,
    SkipBadRowsOption,
    WorkersOption,
    file_settings,
)
from coterie.cli.say import say

if TYPE_CHECKING:
    from coterie.experiments.tuning import TuningResult
    from coterie.types import JsonObject

SHOWN = 5
"""Number of the best settings that are printed."""


def tune(
    algorithm: Annotated[
        str, typer.Argument(help="Algorithm (see coterie algorithms).", show_default=False)
    ],
    dataset: DatasetOption = "synthetic",
    protocol: ProtocolOption = None,
    trials: Annotated[int, typer.Option("--trials", min=1, help="Number of settings to try.")] = 30,
    finalists: Annotated[
        int,
        typer.Option(
            "--finalists",
            min=0,
            help="Retrain this many of the best with other seeds; 0 takes the best trial.",
        ),
    ] = 5,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, help="Number of other seeds for the finalists.")
    ] = 4,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Seed of the search and of the trials.")
    ] = 0,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            "-s",
            metavar="KEY=VALUE",
            help=(
                "Fix a setting. For rounds or epochs, the value is the maximum of a trial. "
                "Repeat for more."
            ),
        ),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            "--write",
            "-w",
            help="Write the best settings as an experiment file.",
            show_default="nothing",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Folder of the report.", show_default="runs/tune-NAME-DATASET-N"
        ),
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
    """Find settings by random search on the validation part. The test part is never used.

    Every trial and every run of a finalist is printed as it ends. The report has all trials and
    their curves.

    coterie tune fedfast --dataset ml-100k --set embedding_size=10 --write fedfast.yaml

    coterie run fedfast.yaml
    """
    from coterie.cli.screen import progress_for
    from coterie.experiments.config import parse_assignments
    from coterie.experiments.run_folder import refuse_occupied
    from coterie.experiments.tuning import Search
    from coterie.experiments.tuning import tune as run_search

    fixed = file_settings(columns, skip_bad_rows, encoding, delimiter, no_header)
    fixed |= parse_assignments(set_ or [])
    _refuse_other_suffix(write)
    refuse_occupied(out)
    search = Search(algorithm, dataset, protocol, trials, finalists, seeds, seed, fixed)
    found = run_search(search, cells, progress_for(silent=quiet or as_json), workers)
    if write is not None:
        _write(write, found)
    folder = _write_report(found, out)
    _print(found, write, folder, as_json, quiet)


def _refuse_other_suffix(write: Path | None) -> None:
    """Fail before the search, which can take hours, and not after it."""
    from coterie.errors import ConfigError

    if write is not None and (write.suffix not in (".yaml", ".yml") or write.is_dir()):
        raise ConfigError(
            f"--write is {write}; expected an experiment file that ends in .yaml. Rename it."
        )


def _write(path: Path, found: TuningResult) -> None:
    from coterie.experiments.config import as_yaml
    from coterie.experiments.run_folder import write_text

    comment = (
        f"# Found on the validation part: {found.metric} {found.best.value:.4f}, "
        f"{found.search.trials} trials.\n"
    )
    write_text(path.parent, path.name, comment + as_yaml(found.experiment()))


def _write_report(found: TuningResult, out: Path | None) -> Path:
    import shlex
    import sys

    from coterie.experiments.run_folder import new_folder, write_text
    from coterie.experiments.tuning_report import page

    search = found.search
    folder = new_folder(out, f"tune-{search.algorithm}-{Path(search.dataset).name.split('.')[0]}")
    write_text(folder, "report.html", page(found, shlex.join(["coterie", *sys.argv[1:]])))
    return folder


def _print(
    found: TuningResult, write: Path | None, folder: Path, as_json: bool, quiet: bool
) -> None:
    report = folder / "report.html"
    if as_json:
        say(json.dumps(summary(found) | {"report": str(report)}, allow_nan=False))
        return
    from coterie.cli.screen import show_table

    best = found.ranking[:SHOWN]
    rows = [[found.metric, *(f"{trial.value:.4f}" for trial in best)]]
    rows += [[name, *(str(trial.settings[name]) for trial in best)] for name in found.best.settings]
    if any(trial.popularity_prior for trial in best):
        rows.append(["popularity_prior", *(f"{trial.popularity_prior:.3g}" for trial in best)])
    header = ["validation", "winner", *(str(rank) for rank in range(2, len(best) + 1))]
    show_table(header, rows, title=f"{found.search.algorithm} on {found.search.dataset}")
    if quiet:
        return
    from coterie.experiments.tuning_report import summary_line

    say(summary_line(found))
    if write is not None:
        say(f"run it: coterie run {write}")
    say(f"report: {report}")


def summary(found: TuningResult) -> JsonObject:
    """The search and its ranking, as `--json` prints them."""
    search = found.search
    return {
        "dataset": search.dataset,
        "algorithm": search.algorithm,
        "trials": search.trials,
        "finalists": search.finalists,
        "metric": found.metric,
        "value": found.best.value,
        "settings": found.best.settings,
        "popularity_prior": found.best.popularity_prior,
        "ranking": [{"value": trial.value, "settings": trial.settings} for trial in found.ranking],
    }
