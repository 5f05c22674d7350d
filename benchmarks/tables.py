"""What the papers' tables have in common: rows of a plan's outcomes, and paired tests between them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from statistics import mean
from typing import Any

import numpy as np

from coterie.evaluate.significance import compare, holm
from coterie.plan import Outcome


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
