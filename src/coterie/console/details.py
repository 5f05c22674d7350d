"""One run in full: its result, settings, curve, and the command that repeats it."""

from __future__ import annotations

from dataclasses import asdict

from coterie.console.commands import run_options, shown_command
from coterie.console.folders import FoundFolder
from coterie.console.plain_json import finite
from coterie.console.summaries import RunSummary
from coterie.core.printable import one_line
from coterie.deployment.traffic import STATUS, read_status
from coterie.errors import CoterieError
from coterie.experiments import run_folder
from coterie.experiments.config import Experiment
from coterie.report.metric_words import explained
from coterie.types import JsonObject

SHOWN = (
    "metrics",
    "full",
    "headline",
    "popular",
    "below_popular",
    "tested_users",
    "users",
    "items",
    "training_interactions",
    "parameters",
    "seconds",
    "rounds",
    "best_round",
    "bytes_up",
    "bytes_down",
    "updates",
    "dropped",
    "refused",
    "privacy",
    "server_receives",
    "in_the_clear",
    "quantiles",
    "version",
)
"""What the page shows of a result."""
DATA = "--dataset=FILE"


def details(folder: FoundFolder, summary: RunSummary) -> JsonObject:
    """All that the page of a run shows, apart from its rounds while it trains."""
    result = run_folder.read_result(folder.path) if folder.has("result.json") else {}
    config: JsonObject = {}
    if folder.has("config.yaml"):
        config = run_folder.read_config(folder.path)
    metrics = result.get("metrics", {})
    return finite(
        {
            "summary": asdict(summary),
            "result": {key: result[key] for key in SHOWN if key in result},
            "words": {name: explained(name) for name in metrics},
            "settings": {key: _text(value) for key, value in config.items()},
            "curve": run_folder.read_metrics(folder.path) if folder.has("metrics.jsonl") else [],
            "federation": read_status(folder.path) if folder.has(STATUS) else {},
            "command": _command(folder, config),
            "resume": _resume(folder, summary),
        }
    )


def _command(folder: FoundFolder, config: JsonObject) -> str:
    """The shortest command line; where this version cannot read the settings, the file itself."""
    if not config:
        return ""
    try:
        options = run_options(Experiment.of(config))
        if folder.kind == "federation":
            # The data of a federation is on its nodes; a simulation needs a file with all of it.
            options = [DATA if option.startswith("--dataset=") else option for option in options]
        return shown_command(["run", *options])
    except CoterieError:
        return shown_command(["run", str(folder.path / "config.yaml")])


def _resume(folder: FoundFolder, summary: RunSummary) -> str:
    """How to resume a federation: the console has neither its config nor its keys."""
    if folder.kind != "federation" or summary.state != "stopped":
        return ""
    options = ["serve", "--config", "FILE", "--keys", "FOLDER", "--out", str(folder.path)]
    return shown_command(options)


def _text(value: object) -> str:
    return "" if value is None else one_line(value)
