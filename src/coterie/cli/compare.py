"""`coterie compare`: methods side by side over several seeds."""

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
    SaveOption,
    SecureAggregationOption,
    SkipBadRowsOption,
    WorkersOption,
    file_settings,
)
from coterie.cli.say import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.experiments.cell_cache import CellResult
    from coterie.experiments.comparison import Comparison
    from coterie.experiments.plan import Method, Plan
    from coterie.types import JsonObject


def compare(
    methods: Annotated[
        list[str],
        typer.Argument(
            metavar="METHOD...",
            help=(
                "Algorithms or experiment files. LABEL=NAME labels a method, so that one "
                "algorithm can appear twice. The first method is tested against the others."
            ),
            show_default=False,
        ),
    ],
    dataset: DatasetOption = "synthetic",
    protocol: ProtocolOption = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            min=1,
            help="Number of seeds: 0, 1, and so on.",
            show_default="3; 1 with folds or repeats",
        ),
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option(
            "--folds",
            min=2,
            help="Cross-validate: test every one of this many folds of each user's interactions.",
            show_default="the protocol's",
        ),
    ] = None,
    repeats: Annotated[
        int,
        typer.Option(
            "--repeats",
            min=1,
            help="Repetitions of a random split (--set split=random, or folds).",
        ),
    ] = 1,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            "-s",
            metavar="KEY=VALUE",
            help=(
                "Setting for every method that has it. METHOD.KEY=VALUE is for one method. "
                "Repeat for more."
            ),
        ),
    ] = None,
    secure_aggregation: SecureAggregationOption = None,
    epsilon: Annotated[
        list[float] | None,
        typer.Option(
            "--epsilon",
            help=(
                "Privacy budget of each user for a whole run, for every method that has one. "
                "Repeat for several: the report then has accuracy by epsilon."
            ),
            show_default="no noise",
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(
            "--target",
            help="Report when the tracked metric reached this value.",
            show_default="no target",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Folder of the report.", show_default="runs/compare-DATASET-N"
        ),
    ] = None,
    all_pairs: Annotated[
        bool,
        typer.Option(
            "--all-pairs",
            help=(
                "Test every method against every other one, not only the first; Holm's "
                "correction is over all tests."
            ),
        ),
    ] = False,
    cells: CellsOption = None,
    workers: WorkersOption = 1,
    columns: ColumnsOption = None,
    skip_bad_rows: SkipBadRowsOption = False,
    encoding: EncodingOption = None,
    delimiter: DelimiterOption = None,
    no_header: NoHeaderOption = False,
    save: SaveOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare methods over seeds or folds, paired over users. Finished runs are not repeated.

    coterie compare fedavg fedfast gmf --dataset ml-100k --seeds 5

    coterie compare bpr popular --dataset ml-100k --folds 5

    coterie compare fedfast few=fedfast --set few.clusters=5 --set rounds=200

    coterie compare fcf pfpl+ popular --secure-aggregation secagg

    coterie compare fedease popular ease --epsilon 1 --epsilon 5 --epsilon 20
    """
    from coterie.cli.screen import progress_for
    from coterie.experiments.comparison import check_comparable, comparison
    from coterie.experiments.plan import Plan
    from coterie.experiments.plan import cells as cells_of
    from coterie.experiments.plan_progress import RunLog
    from coterie.experiments.plan_runner import run_plan
    from coterie.experiments.privacy_curve import with_budgets

    common, own = split_settings(set_ or [], [_label(text) for text in methods])
    protected = {} if secure_aggregation is None else {"secure_aggregation": secure_aggregation}
    options = {"target": target, "save": save or None} | protected
    options |= file_settings(columns, skip_bad_rows, encoding, delimiter, no_header)
    if folds is not None and protocol is None:
        # Datasets' protocols are mostly those of leave-one-out; folds hold out many items a user.
        protocol = "kfold-10" if folds == 10 else "kfold-5"
    n_folds = _number_of_folds(folds, protocol, common)
    n_seeds = seeds or (1 if n_folds or repeats > 1 else 3)
    plan = Plan(
        datasets=(dataset,),
        methods=tuple(
            with_budgets([_method(text, own, protected) for text in methods], epsilon or [])
        ),
        settings={key: value for key, value in options.items() if value is not None} | common,
        seeds=tuple(range(n_seeds)),
        protocol=protocol,
        folds=n_folds,
        repeats=repeats,
    )
    planned = cells_of(plan)
    check_comparable(planned)
    _refuse_other_folder(out)
    progress = progress_for(silent=quiet or as_json)
    log = RunLog(len(planned), progress)
    runs = run_plan(plan, cells, progress, workers, finished=log.add)
    outcomes = _without_diverged(runs)
    result = comparison(outcomes, all_pairs, progress)
    folder = _write(result, outcomes, out, plan)
    _print(result, outcomes, folder, as_json)


def _number_of_folds(folds: int | None, protocol: str | None, settings: JsonObject) -> int:
    """The folds to test: those given, else all of the protocol's; 0 if it has none.

    With `--set fold=N` a single fold is tested.
    """
    from coterie.evaluation.protocols import PROTOCOLS

    if folds is not None or {"split", "folds", "fold"} & settings.keys():
        return folds or 0
    return int(PROTOCOLS.get(protocol or "", {}).get("folds", 0))


def _without_diverged(outcomes: list[CellResult]) -> list[CellResult]:
    """Leave out methods that diverged, which have no metrics, unless all of them did."""
    diverged = {o.cell.method.label: o.diverged for o in outcomes if o.diverged}
    converged = [o for o in outcomes if o.cell.method.label not in diverged]
    if not converged:
        return outcomes
    for label, reason in diverged.items():
        say(f"left out, diverged: {label} ({reason})", err=True)
    return converged


def split_settings(
    pairs: list[str], labels: Sequence[str]
) -> tuple[JsonObject, dict[str, JsonObject]]:
    """(settings for all, settings by method); `fedfast.clusters=40` is for fedfast alone."""
    from coterie.errors import UnknownName
    from coterie.experiments.config import parse_assignments

    common: JsonObject = {}
    own: dict[str, JsonObject] = {label: {} for label in labels}
    for key, value in parse_assignments(pairs).items():
        label, dot, setting = key.rpartition(".")
        if dot and label not in own:
            raise UnknownName("method", label, own, f" in --set {key}")
        (own[label] if dot else common)[setting] = value
    return common, own


def _is_file(name: str) -> bool:
    return name.endswith((".yaml", ".yml"))


def _label(text: str) -> str:
    """The label of a method: the one given, else the name of its algorithm or file."""
    label, equals, name = text.rpartition("=")
    if equals:
        return label
    return Path(name).stem if _is_file(name) else name


def _method(text: str, own: dict[str, JsonObject], protected: JsonObject) -> Method:
    """A method from an algorithm's name or an experiment file.

    Of a file only the algorithm and the algorithm's settings count: data, protocol and seeds are
    the comparison's. `--secure-aggregation` takes the place of a file's setting, as in
    `coterie run`: a method must not look protected and run in the clear.
    """
    from coterie.algorithms.registry import algorithm
    from coterie.experiments.config import Experiment, read_file
    from coterie.experiments.plan import Method

    label = _label(text)
    name = text.rpartition("=")[2]
    if not _is_file(name):
        return Method(label, name, own[label])
    values = read_file(name)
    known = algorithm(Experiment.of(values).choice.algorithm).settings.model_fields
    settings = {key: value for key, value in (values | protected).items() if key in known}
    return Method(label, values["algorithm"], settings | own[label])


def _refuse_other_folder(out: Path | None) -> None:
    """A comparison may overwrite an earlier comparison, but no other folder."""
    from coterie.experiments.run_folder import refuse_occupied

    if out is None or not (out / "comparison.json").exists():
        refuse_occupied(out)


def _write(
    result: Comparison, outcomes: Sequence[CellResult], out: Path | None, plan: Plan
) -> Path:
    import shlex
    import sys

    from coterie.experiments.comparison_page import page
    from coterie.experiments.comparison_report import markdown
    from coterie.experiments.run_folder import new_folder, write_text

    name = f"compare-{Path(plan.datasets[0]).name.split('.')[0]}"
    folder = new_folder(None, name) if out is None else out
    command = shlex.join(["coterie", *sys.argv[1:]])
    text = json.dumps(result.to_json(), indent=2, allow_nan=False) + "\n"
    write_text(folder, "report.md", markdown(result, outcomes))
    write_text(folder, "report.html", page(result, outcomes, command))
    write_text(folder, "comparison.json", text)
    return folder


def _print(result: Comparison, outcomes: Sequence[CellResult], folder: Path, as_json: bool) -> None:
    if as_json:
        paths = {"runs": [str(outcome.folder) for outcome in outcomes], "report": str(folder)}
        say(json.dumps(result.to_json() | paths, allow_nan=False))
        return
    from coterie.cli.screen import out, show_table, table_columns
    from coterie.experiments.comparison_report import notes
    from coterie.experiments.comparison_summary import summary
    from coterie.experiments.comparison_tables import sections
    from coterie.report.conditions import protocol_line

    say(protocol_line(outcomes[0].result))
    for section in sections(result, table_columns()):
        show_table(section.header, section.rows, section.left, section.title, section.bold)
    for line in [*summary(result), *notes(result, outcomes, out.is_terminal)]:
        say(line)
    say(f"report: {folder / 'report.html'}")
