"""`coterie tune`: settings found on the validation part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli.compare import Cells
from coterie.cli.options import Columns, Dataset, Json, Protocol, Quiet, SkipBadRows, parse_columns

if TYPE_CHECKING:
    from coterie.experiments.tuning import TuningResult

SHOWN = 5


def tune(
    algorithm: Annotated[
        str, typer.Argument(help="An algorithm (coterie algorithms).", show_default=False)
    ],
    dataset: Dataset = "synthetic",
    protocol: Protocol = None,
    trials: Annotated[
        int, typer.Option("--trials", min=1, help="How many settings are tried.")
    ] = 30,
    finalists: Annotated[
        int,
        typer.Option(
            "--finalists",
            min=0,
            help="Train so many of the best again with other seeds; 0 takes the best.",
        ),
    ] = 5,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, help="How many other seeds for the finalists.")
    ] = 4,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the draw and of the trials.")] = 0,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            "-s",
            metavar="KEY=VALUE",
            help="Hold a setting still. Of rounds or epochs it is the most a trial may train.",
        ),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            "--write", "-w", help="Write the winner as an experiment file.", show_default="nothing"
        ),
    ] = None,
    cells: Cells = None,
    columns: Columns = None,
    skip_bad_rows: SkipBadRows = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Find settings by random search on the validation part. The test part is dropped before anything is trained.

    coterie tune fedfast --dataset ml-100k --set embedding_size=10 --write fedfast.yaml

    coterie run fedfast.yaml
    """
    from coterie.cli.screen import ScreenProgress
    from coterie.core.progress import SILENT
    from coterie.experiments.config import parse_assignments
    from coterie.experiments.tuning import Search
    from coterie.experiments.tuning import tune as search

    given = {"columns": parse_columns(columns) or None, "skip_bad_rows": skip_bad_rows or None}
    held = {key: value for key, value in given.items() if value is not None} | parse_assignments(
        set_ or []
    )
    _refuse_no_file(write)
    wanted = Search(algorithm, dataset, protocol, trials, finalists, seeds, seed, held)
    found = search(wanted, cells, SILENT if quiet or as_json else ScreenProgress())
    if write is not None:
        _write(write, found)
    _print(found, write, as_json, quiet)


def _refuse_no_file(write: Path | None) -> None:
    """Better now than after an hour."""
    from coterie.errors import ConfigError

    if write is not None and (write.suffix not in (".yaml", ".yml") or write.is_dir()):
        raise ConfigError(
            f"--write {write} is no experiment file; expected a name that ends in .yaml. Rename it."
        )


def _write(path: Path, found: TuningResult) -> None:
    from coterie.experiments.config import as_yaml
    from coterie.experiments.folder import write_text

    about = f"# Found on the validation part: {found.metric} {found.best.value:.4f}, {found.search.trials} trials.\n"
    text = about + as_yaml(found.experiment())
    write_text(path.parent, path.name, text)


def _print(found: TuningResult, write: Path | None, as_json: bool, quiet: bool) -> None:
    if as_json:
        typer.echo(json.dumps(summary(found), allow_nan=False))
        return
    from coterie.cli.screen import show_table

    best = found.ranking[:SHOWN]
    rows = [[found.metric, *(f"{tried.value:.4f}" for tried in best)]]
    rows += [[name, *(str(tried.settings[name]) for tried in best)] for name in found.best.settings]
    header = ["validation", "winner", *(str(place) for place in range(2, len(best) + 1))]
    show_table(header, rows, title=f"{found.search.algorithm} on {found.search.dataset}")
    if quiet:
        return
    if write is not None:
        typer.echo(f"run it: coterie run {write}")


def summary(found: TuningResult) -> dict[str, Any]:
    search = found.search
    return {
        "dataset": search.dataset,
        "algorithm": search.algorithm,
        "trials": search.trials,
        "finalists": search.finalists,
        "metric": found.metric,
        "value": found.best.value,
        "settings": found.best.settings,
        "ranking": [{"value": tried.value, "settings": tried.settings} for tried in found.ranking],
    }
