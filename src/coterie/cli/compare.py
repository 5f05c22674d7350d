"""`coterie compare`: methods side by side over several seeds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli.options import Columns, Dataset, Json, Protocol, Quiet, SkipBadRows, parse_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.experiments.cell_cache import CellResult
    from coterie.experiments.comparison import Comparison
    from coterie.experiments.plan import Method, Plan

Cells = Annotated[
    Path | None,
    typer.Option(
        "--cells",
        help="Where finished runs are kept and found again.",
        show_default="the cache folder",
    ),
]


def compare(
    methods: Annotated[
        list[str],
        typer.Argument(
            metavar="METHOD...",
            help="Algorithms or experiment files; LABEL=NAME tells two of one algorithm apart. The first is tested against the others.",
            show_default=False,
        ),
    ],
    dataset: Dataset = "synthetic",
    protocol: Protocol = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many seeds: 0, 1, ...")] = 3,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            "-s",
            metavar="KEY=VALUE",
            help="A setting for every method that has it; METHOD.KEY=VALUE for one of them. Repeat for more.",
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(
            "--target",
            help="Say when this value of the followed metric was reached.",
            show_default="no target",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="The folder of the report.", show_default="runs/compare-DATASET-N"
        ),
    ] = None,
    cells: Cells = None,
    columns: Columns = None,
    skip_bad_rows: SkipBadRows = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Compare methods over several seeds, paired over users. Runs that are finished are not run again.

    coterie compare fedavg fedfast gmf --dataset ml-100k --seeds 5

    coterie compare fedfast few=fedfast --set few.clusters=5 --set rounds=200
    """
    from coterie.cli.screen import ScreenProgress
    from coterie.core.progress import SILENT
    from coterie.experiments.comparison import check_comparable, comparison
    from coterie.experiments.plan import Plan
    from coterie.experiments.plan import cells as cells_of
    from coterie.experiments.plan_runner import run_plan

    common, own = split_settings(set_ or [], [_label(text) for text in methods])
    given = {
        "target": target,
        "columns": parse_columns(columns) or None,
        "skip_bad_rows": skip_bad_rows or None,
    }
    settings = {key: value for key, value in given.items() if value is not None} | common
    plan = Plan(
        (dataset,),
        tuple(_method(text, own) for text in methods),
        settings,
        tuple(range(seeds)),
        protocol,
    )
    check_comparable(cells_of(plan))
    _refuse_other_folder(out)
    outcomes = run_plan(plan, cells, SILENT if quiet or as_json else ScreenProgress())
    outcomes = _without_diverged(outcomes)
    found = comparison(outcomes)
    place = _write(found, outcomes, out, plan)
    _print(found, outcomes, place, as_json, quiet)


def _without_diverged(outcomes: list[CellResult]) -> list[CellResult]:
    """A method that diverged has no figures: it is named and left out, unless none is left."""
    diverged = {o.cell.method.label: o.diverged for o in outcomes if o.diverged}
    kept = [o for o in outcomes if o.cell.method.label not in diverged]
    for label, why in diverged.items() if kept else ():
        typer.echo(f"left out, diverged: {label} ({why})", err=True)
    return kept or outcomes


def split_settings(
    pairs: list[str], labels: Sequence[str]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """(settings for all, settings by method); `fedfast.clusters=40` is for fedfast alone."""
    from coterie.errors import UnknownName
    from coterie.experiments.config import parse_assignments

    common: dict[str, Any] = {}
    own: dict[str, dict[str, Any]] = {label: {} for label in labels}
    for key, value in parse_assignments(pairs).items():
        label, dot, setting = key.rpartition(".")
        if dot and label not in own:
            raise UnknownName("method", label, own, f" in --set {key}")
        (own[label] if dot else common)[setting] = value
    return common, own


def _label(text: str) -> str:
    """What a method is called: its label, else its algorithm's or file's name."""
    label, named, name = text.rpartition("=")
    return label if named else Path(name).stem if name.endswith((".yaml", ".yml")) else name


def _method(text: str, own: dict[str, dict[str, Any]]) -> Method:
    """An algorithm by name, or of an experiment file the algorithm and the settings that are its own."""
    from coterie.algorithms.registry import algorithm
    from coterie.experiments.config import Experiment, read_file
    from coterie.experiments.plan import Method

    label = _label(text)
    name = text.rpartition("=")[2]
    if not name.endswith((".yaml", ".yml")):
        return Method(label, name, own[label])
    values = read_file(name)
    settings = algorithm(Experiment.of(values).choice.algorithm).settings.model_fields
    mine = {key: value for key, value in values.items() if key in settings}
    return Method(label, values["algorithm"], mine | own[label])


def _refuse_other_folder(out: Path | None) -> None:
    """A comparison may be written over an earlier one, and over nothing else."""
    from coterie.experiments.folder import refuse_occupied

    if out is None or not (out / "comparison.json").exists():
        refuse_occupied(out)


def _write(found: Comparison, outcomes: Sequence[Any], out: Path | None, plan: Plan) -> Path:
    import shlex
    import sys

    from coterie.experiments.comparison_report import markdown, page
    from coterie.experiments.folder import new_folder, write_text

    name = f"compare-{Path(plan.datasets[0]).name.split('.')[0]}"
    place = new_folder(None, name) if out is None else out
    command = shlex.join(["coterie", *sys.argv[1:]])
    write_text(place, "report.md", markdown(found, outcomes))
    write_text(place, "report.html", page(found, outcomes, command))
    write_text(
        place, "comparison.json", json.dumps(found.to_json(), indent=2, allow_nan=False) + "\n"
    )
    return place


def _print(
    found: Comparison, outcomes: Sequence[Any], place: Path, as_json: bool, quiet: bool
) -> None:
    if as_json:
        runs = [str(outcome.folder) for outcome in outcomes]
        typer.echo(
            json.dumps(found.to_json() | {"runs": runs, "report": str(place)}, allow_nan=False)
        )
        return
    from coterie.cli.screen import show_table
    from coterie.experiments.comparison_report import notes, sections

    for section in sections(found):
        show_table(section.header, section.rows, section.left, section.title)
    if not quiet:
        for line in notes(found, outcomes):
            typer.echo(line)
        typer.echo(f"report: {place / 'report.html'}")
