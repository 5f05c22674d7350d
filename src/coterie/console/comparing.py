"""Compares any selection of finished runs: curves, paired tests, differences of settings.

Runs that differ in the seed alone are one method. Tests are those of `coterie compare`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from coterie.console.commands import compare_options, report_options, shown_command
from coterie.console.folders import FoundFolder
from coterie.console.plain_json import finite
from coterie.core.printable import one_line
from coterie.errors import ConfigError, RunError, UserError
from coterie.experiments import run_folder
from coterie.experiments.cell_cache import CellResult
from coterie.experiments.comparison import Comparison, comparison
from coterie.experiments.comparison_report import notes_on_figures
from coterie.experiments.comparison_summary import summary
from coterie.experiments.config import Experiment
from coterie.experiments.plan import Cell, Method
from coterie.report.figure import panels
from coterie.report.figures import Figure
from coterie.report.metric_words import explained
from coterie.report.users import over_users, telling_metric
from coterie.types import JsonObject

MOST_RUNS = 60
UNLIKE = ("seed", "fold", "repeat", "dataset_name")
"""Settings in which the runs of one method may differ."""
LONGEST_LABEL = 60


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """What a comparison needs of a finished run; its model is not read."""

    folder: FoundFolder
    result: JsonObject
    curve: list[JsonObject]
    config: JsonObject
    """Every setting; of a cell, which has no config.yaml, those in the result."""


def read_run(folder: FoundFolder) -> FinishedRun:
    if not folder.has("result.json"):
        raise RunError(
            f"{folder.name} has no result; expected a finished run. Wait for it, or leave it out."
        )
    result = run_folder.read_result(folder.path)
    config = result.get("settings", {})
    if folder.has("config.yaml"):
        config = run_folder.read_config(folder.path)
    curve = run_folder.read_metrics(folder.path) if folder.has("metrics.jsonl") else []
    return FinishedRun(folder, result, curve, config)


def compare_runs(folders: Sequence[FoundFolder]) -> JsonObject:
    """All that the page of a comparison shows."""
    if not 1 <= len(folders) <= MOST_RUNS:
        raise ConfigError(
            f"{len(folders)} runs are selected; expected 1 to {MOST_RUNS}. Select fewer."
        )
    runs = [read_run(folder) for folder in folders]
    runs.sort(key=lambda run: int(run.result["seed"]))
    labels = method_labels([run.config | _named(run) for run in runs])
    methods: dict[str, list[FinishedRun]] = {}
    for run, label in zip(runs, labels, strict=True):
        methods.setdefault(label, []).append(run)
    configs = {label: of_label[0].config for label, of_label in methods.items()}
    figures = panels(runs, labels)
    tested: JsonObject = {}
    reason = ""
    command = report_options([run.folder.path for run in runs])
    try:
        cells = _cells(methods)
        compared = comparison(cells)
        tested = _tested(compared, cells)
        figures += _users(compared)
        command = _command(cells) or command
    except (UserError, OSError, KeyError) as error:
        reason = one_line(error)
    return finite(
        {
            "methods": [_method(label, of_label) for label, of_label in methods.items()],
            "metrics": _metrics(methods),
            "figures": [_figure(figure) for figure in figures],
            "tested": tested,
            "not_tested": reason,
            "settings": differing_settings(configs),
            "partial_settings": partial_settings(configs),
            "command": shown_command(command),
        }
    )


def method_labels(configs: Sequence[Mapping[str, object]]) -> list[str]:
    """A label for every run: the algorithm, with the settings in which its methods differ."""
    keys = [{k: v for k, v in config.items() if k not in UNLIKE} for config in configs]
    labels = []
    for key in keys:
        same = [other for other in keys if other["algorithm"] == key["algorithm"]]
        differing = [
            name
            for name in dict.fromkeys(name for other in same for name in other)
            if any(other.get(name) != key.get(name) for other in same)
        ]
        # A label has no sign of equality: `--set LABEL.KEY=VALUE` could not be read.
        told = [f"{name} {one_line(key.get(name))}".replace("=", " ") for name in differing]
        label = ", ".join([one_line(key["algorithm"]), *told])
        labels.append(label if len(label) <= LONGEST_LABEL else f"{label[: LONGEST_LABEL - 1]}…")
    return _distinct(labels, keys)


def _distinct(labels: Sequence[str], keys: Sequence[Mapping[str, object]]) -> list[str]:
    """Labels that were cut short get a number where they would stand for different methods."""
    known: dict[str, list[Mapping[str, object]]] = {}
    distinct = []
    for label, key in zip(labels, keys, strict=True):
        of_label = known.setdefault(label, [])
        if key not in of_label:
            of_label.append(key)
        number = of_label.index(key)
        distinct.append(f"{label} ({number + 1})" if number else label)
    return distinct


def differing_settings(configs: Mapping[str, Mapping[str, object]]) -> JsonObject:
    """Setting -> its value for every method, of settings that differ where methods have them."""
    names = dict.fromkeys(name for config in configs.values() for name in config)
    values = {
        name: [config[name] for config in configs.values() if name in config] for name in names
    }
    return {
        name: _row(name, configs)
        for name, known in values.items()
        if name not in UNLIKE and any(value != known[0] for value in known)
    }


def partial_settings(configs: Mapping[str, Mapping[str, object]]) -> JsonObject:
    """Setting -> its value for every method, of settings that not every method has."""
    names = dict.fromkeys(name for config in configs.values() for name in config)
    return {
        name: _row(name, configs)
        for name in names
        if any(name not in config for config in configs.values())
    }


def _row(name: str, configs: Mapping[str, Mapping[str, object]]) -> list[str | None]:
    values = [config.get(name) for config in configs.values()]
    return [None if value is None else one_line(value) for value in values]


def _named(run: FinishedRun) -> JsonObject:
    """A cell's settings are those of the algorithm alone."""
    return {key: run.result[key] for key in ("algorithm", "dataset", "protocol")}


def _method(label: str, runs: Sequence[FinishedRun]) -> JsonObject:
    return {
        "label": label,
        "algorithm": runs[0].result["algorithm"],
        "seeds": [run.result["seed"] for run in runs],
        "runs": [{"id": run.folder.id, "name": run.folder.name} for run in runs],
    }


def _metrics(methods: Mapping[str, Sequence[FinishedRun]]) -> list[JsonObject]:
    """Every metric with the values of every method's runs."""
    runs = [run for of_method in methods.values() for run in of_method]
    names = dict.fromkeys(name for run in runs for name in run.result["metrics"])
    headline = [name for run in runs for name in run.result["headline"]]
    return [
        {
            "name": name,
            "about": explained(name),
            "headline": name in headline,
            "values": [
                [run.result["metrics"].get(name) for run in of_method]
                for of_method in methods.values()
            ],
        }
        for name in names
    ]


def _cells(methods: Mapping[str, Sequence[FinishedRun]]) -> list[CellResult]:
    """The runs as cells of a plan, with the seeds that all methods have."""
    shared = set.intersection(
        *({run.result["seed"] for run in of_method} for of_method in methods.values())
    )
    if not shared:
        seeds = "; ".join(
            f"{label}: {', '.join(str(run.result['seed']) for run in of_method)}"
            for label, of_method in methods.items()
        )
        raise ConfigError(
            f"the methods have no seed in common ({seeds}); expected one: a seed decides what is "
            "held out. Run them with the same seeds."
        )
    cells = []
    for label, of_method in methods.items():
        by_seed = {run.result["seed"]: run for run in of_method}
        for seed in sorted(shared):
            run = by_seed[seed]
            if not (run.folder.has("users.csv") and run.folder.has("config.yaml")):
                raise RunError(
                    f"{run.folder.name} has no users.csv or config.yaml; expected both for paired "
                    f"tests. Run it again: {shown_command(['run', 'config.yaml'])}"
                )
            experiment = Experiment.of(run_folder.read_settings(run.folder.path))
            cell = Cell(Method(label, experiment.choice.algorithm), experiment, "test")
            cells.append(CellResult(cell, run.folder.path, run.result, run.curve))
    return cells


def _tested(compared: Comparison, cells: Sequence[CellResult]) -> JsonObject:
    return {
        "summary": summary(compared),
        "notes": notes_on_figures(compared, cells),
        "tests": [asdict(test) for test in compared.tests],
        "first": compared.standings[0].method,
        "users": compared.tested_users,
        "unit": compared.runs,
    }


def _users(compared: Comparison) -> list[Figure]:
    """The distribution over users, if it says more than the mean."""
    spreads = {one.method: one.quantiles for one in compared.standings}
    metric = telling_metric(compared.headline, list(spreads.values()))
    if not metric:
        return []
    rows = {method: spread[metric] for method, spread in spreads.items()}
    return [over_users("users", f"{metric} over users", metric, rows)]


def _command(cells: Sequence[CellResult]) -> list[str] | None:
    methods = {cell.cell.method.label: cell.cell.experiment for cell in cells}
    seeds = sorted({int(cell.result["seed"]) for cell in cells})
    return compare_options(methods, seeds) if len(methods) > 1 else None


def _figure(figure: Figure) -> JsonObject:
    return asdict(figure) | {
        "axes": figure.axes,
        "colours": [figure.colour(number) for number in range(len(figure.series))],
    }
