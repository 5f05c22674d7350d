"""Shared by the papers' benchmarks: a command line of parts, and statistics over seeds."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from coterie.cli.screen import ScreenProgress
from coterie.core.progress import SILENT
from coterie.experiments.cell_cache import CellResult
from coterie.experiments.plan import Plan
from coterie.experiments.plan_runner import run_plan

OPTIONS = argparse.Namespace(cells=None, workers=1, quiet=True)


def print_parts(
    about: str | None,
    parts: Mapping[str, Callable[[str, int], dict[str, Any]]],
    default_dataset: str = "ml-100k",
) -> None:
    """Parse the command line; print one JSON object for every selected part and dataset.

    A part is a function of (dataset, number of seeds).
    """
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="+", choices=parts)
    parser.add_argument("--datasets", nargs="*", default=[default_dataset])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--cells", type=Path, default=None, help="folder of finished runs")
    parser.add_argument("--workers", type=int, default=1, help="processes that share the runs")
    parser.add_argument("--quiet", action="store_true")
    options = parser.parse_args(namespace=OPTIONS)
    for part in options.parts:
        for dataset in options.datasets:
            print(json.dumps(parts[part](dataset, options.seeds)), flush=True)


def carried_out(plan: Plan) -> list[CellResult]:
    progress = SILENT if OPTIONS.quiet else ScreenProgress()
    return run_plan(plan, OPTIONS.cells, progress, OPTIONS.workers)


def of(outcomes: Sequence[CellResult], label: str) -> list[CellResult]:
    return [outcome for outcome in outcomes if outcome.cell.method.label == label]


def spread(values: Sequence[float]) -> dict[str, float]:
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return {
        "mean": round(mean(values), 4),
        "sd": round(deviation, 4),
        "least": round(min(values), 4),
    }
