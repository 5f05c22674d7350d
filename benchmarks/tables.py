"""What the papers' tables have in common: a command line of parts, rows of a plan's outcomes, and paired tests between them."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from coterie.cli.screen import ScreenWatch
from coterie.evaluate.significance import compare, holm
from coterie.plan import Outcome, Plan, carry_out
from coterie.progress import SILENT

OPTIONS = argparse.Namespace(cells=None, quiet=True)


def print_parts(
    about: str | None, parts: Mapping[str, Callable[[str, int], dict[str, Any]]], usual: str = "ml-100k"
) -> None:
    """The command line of a paper's tables: (dataset, seeds) -> one JSON object for every part asked for."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=parts)
    parser.add_argument("--datasets", nargs="*", default=[usual])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--cells", type=Path, default=None, help="where finished runs are kept")
    parser.add_argument("--quiet", action="store_true")
    options = parser.parse_args(namespace=OPTIONS)
    for part in options.parts:
        for dataset in options.datasets:
            print(json.dumps(parts[part](dataset, options.seeds)), flush=True)


def carried_out(plan: Plan) -> list[Outcome]:
    return carry_out(plan, OPTIONS.cells, SILENT if OPTIONS.quiet else ScreenWatch())


def of(outcomes: Sequence[Outcome], label: str) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.cell.method.label == label]


def spread(values: Sequence[float]) -> dict[str, float]:
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return {"mean": round(mean(values), 4), "sd": round(deviation, 4), "least": round(min(values), 4)}


def summary(outcomes: Sequence[Outcome], metrics: Sequence[str]) -> dict[str, Any]:
    """A row of a table; the first metric is the one that best rounds go by."""
    results, followed = [outcome.result for outcome in outcomes], metrics[0]
    row: dict[str, Any] = {m: spread([r["metrics"][m] for r in results]) for m in metrics}
    row |= {f"{m} full": spread([r["full"][m] for r in results]) for m in metrics}
    row |= {key: results[0][key] for key in ("rounds", "parameters")}
    row |= {key: spread([r[key] for r in results]) for key in ("seconds", "bytes_up", "bytes_down")}
    if "updates" in results[0]:
        row |= {"selections": results[0]["selections"], "updates": spread([r["updates"] for r in results])}
        best = [max(outcome.curve, key=lambda line: line[followed]) for outcome in outcomes]
        row |= {"area": spread([r["convergence"]["area"] for r in results])}
        row |= {f"best {followed}": spread([b[followed] for b in best]), "best round": [b["round"] for b in best]}
        row |= {"rounds to 95 % of the best": [near_best(outcome, followed) for outcome in outcomes]}
        row["curve"] = [[line["round"], *(round(line[m], 4) for m in metrics)] for line in outcomes[0].curve]
    return row


def near_best(outcome: Outcome, metric: str) -> int:
    """The first measured round with 95 % of the best there is."""
    best = max(line[metric] for line in outcome.curve)
    return int(next(line["round"] for line in outcome.curve if line[metric] >= 0.95 * best))


def tests(outcomes: Sequence[Outcome], first: str, others: Sequence[str], metrics: Sequence[str]) -> dict[str, Any]:
    """Paired over users, their metric averaged over seeds; p corrected by Holm."""
    found = {
        other: {
            metric: compare(mean_by_user(outcomes, first, metric), mean_by_user(outcomes, other, metric))
            for metric in metrics
        }
        for other in others
    }
    adjusted = iter(holm([c.p_value for by_metric in found.values() for c in by_metric.values()]))
    return {
        other: {
            metric: {
                "difference": round(c.difference, 4),
                "interval": [round(c.low, 4), round(c.high, 4)],
                "p": next(adjusted),
            }
            for metric, c in by_metric.items()
        }
        for other, by_metric in found.items()
    }


def mean_by_user(outcomes: Sequence[Outcome], label: str, metric: str) -> np.ndarray:
    frames = [outcome.users()[metric] for outcome in of(outcomes, label)]
    whole: np.ndarray = (sum(frames[1:], frames[0]) / len(frames)).sort_index().to_numpy()
    return whole
