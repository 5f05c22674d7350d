"""The findings of an item on one dataset, as plain JSON data: all that reports and verdicts read.

    {"dataset", "protocol", "seeds", "tested_users", "data", "metrics", "spread of", "rows",
     "tests", "diverged"}

A row has `series` and `x` (its place in a figure), `metrics` and `full` (one value per seed),
`costs`, `curve`, `users` (quantiles of a metric over users) and `settings`. A row of a
measurement has `series`, `x` and `metrics` only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from coterie.evaluation.significance import compare, holm
from coterie.experiments.cell_cache import CellResult
from coterie.report.users import quantiles
from coterie.reproduce.items import Item, MeasuredRows, Measurement, MethodPair, Trial
from coterie.types import JsonObject

if TYPE_CHECKING:
    import pandas as pd

ROUNDS_TO_BEST = "rounds to best "
"""The prefix of a metric that is the round in which another one is best: "rounds to best HR@10"."""
COSTS = ("rounds", "seconds", "bytes_up", "bytes_down", "updates", "parameters")
CURVE_POINTS = 120
"""Most points of a stored curve: enough for a figure, and the file stays small."""


def trial_findings(item: Item, trial: Trial, outcomes: Sequence[CellResult]) -> JsonObject:
    """The findings of a trial's finished runs; diverged runs are listed and left out."""
    finished = [outcome for outcome in outcomes if not outcome.diverged]
    by_method = {
        method.label: [o for o in finished if o.cell.method.label == method.label]
        for method in trial.methods
    }
    first = finished[0].result if finished else {}
    return {
        "dataset": trial.dataset,
        "protocol": first.get("protocol", trial.protocol),
        "seeds": trial.seeds,
        "tested_users": first.get("tested_users"),
        "data": first.get("data"),
        "metrics": list(item.metrics),
        "spread of": spread_metric(item.metrics),
        "rows": {label: method_row(item, runs) for label, runs in by_method.items() if runs},
        "tests": paired_tests(item, by_method, pairs_of(item, trial)),
        "diverged": {o.cell.name: o.diverged for o in outcomes if o.diverged},
    }


def measurement_findings(
    item: Item, measurement: Measurement, measured: MeasuredRows
) -> JsonObject:
    """The findings of a measurement: one value per row and column."""
    rows = {
        label: {"series": label, "x": None, "metrics": {k: [v] for k, v in values.items()}}
        for label, values in measured.items()
    }
    return {
        "dataset": measurement.dataset,
        "metrics": list(item.metrics),
        "rows": rows,
        "tests": [],
        "diverged": {},
    }


def method_row(item: Item, runs: Sequence[CellResult]) -> JsonObject:
    """The row of one method, over its seeds."""
    results = [run.result for run in runs]
    method = runs[0].cell.method
    settings = results[0]["settings"]
    ranked = [m for m in item.metrics if m in results[0]["full"]]
    row: JsonObject = {
        "series": method.algorithm if item.by else method.label,
        "x": settings.get(item.by) if item.by else None,
        "metrics": {m: values for m in item.metrics if (values := _over_seeds(runs, m))},
        "full": {m: [r["full"][m] for r in results] for m in ranked},
        "costs": {c: float(np.mean([r[c] for r in results])) for c in COSTS if c in results[0]},
        "settings": {k: v for k, v in settings.items() if k in method.settings},
        "users": spread_over_users(runs, spread_metric(item.metrics)),
    }
    if any(len(run.curve) > 1 for run in runs):
        row["curve"] = curve(runs, item.metrics)
    return row


def spread_metric(metrics: Sequence[str]) -> str:
    """The metric whose spread over users is shown: NDCG if there is one, else the first.

    A hit rate is 0 or 1 for one user and says little about the spread.
    """
    return next((metric for metric in metrics if metric.startswith("NDCG")), metrics[0])


def _over_seeds(runs: Sequence[CellResult], metric: str) -> list[float]:
    """A metric, one value per seed; empty where a run does not have it."""
    if metric.startswith(ROUNDS_TO_BEST):
        values = [rounds_to_best(run.curve, metric.removeprefix(ROUNDS_TO_BEST)) for run in runs]
    else:
        values = [_value(run.result, metric) for run in runs]
    return [] if None in values else [float(value) for value in values if value is not None]


def _value(result: JsonObject, metric: str) -> float | None:
    """A metric of one result: by the protocol if it has the metric, else by full ranking.

    `BD` is the bias disparity of a category; `vectors` counts the vectors sent and received.
    """
    value: float | None
    if metric.startswith("BD "):
        categories = (result.get("bias") or {}).get("categories", {})
        value = (categories.get(metric.removeprefix("BD ")) or {}).get("disparity")
    elif metric.startswith("vectors"):
        value = result.get("vectors", {}).get("step" if metric == "vectors per epoch" else "total")
    else:
        value = result["metrics"].get(metric, result["full"].get(metric))
    return value


def rounds_to_best(lines: Sequence[JsonObject], metric: str) -> float | None:
    """The first measured round with the best value of a metric; None if it was not measured."""
    measured = [(line[metric], -line["round"]) for line in lines if metric in line]
    return float(-max(measured)[1]) if measured else None


def curve(runs: Sequence[CellResult], metrics: Sequence[str]) -> JsonObject:
    """Metrics by round, one curve per seed; traffic and time are those of the first seed."""
    rounds = sorted({line["round"] for run in runs for line in run.curve})
    if len(rounds) > CURVE_POINTS:
        # The first half of the points stays as measured, for claims about early rounds.
        half = CURVE_POINTS // 2
        late = rounds[half:]
        thinned = {late[i] for i in np.linspace(0, len(late) - 1, half).astype(int)}
        rounds = rounds[:half] + sorted(thinned)
    by_round = [{line["round"]: line for line in run.curve} for run in runs]
    shown = [m for m in metrics if all(m in line for run in runs for line in run.curve)]
    first_seed = [by_round[0].get(n, {}) for n in rounds]
    traffic = [line.get("bytes_up", 0) + line.get("bytes_down", 0) for line in first_seed]
    return {
        "part": runs[0].curve[0]["part"],
        "rounds": rounds,
        "MB": [round(size / 1e6, 4) for size in traffic],
        "seconds": [round(line.get("seconds", 0), 4) for line in first_seed],
        "values": {
            m: [[_rounded(lines.get(n, {}).get(m)) for n in rounds] for lines in by_round]
            for m in shown
        },
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def spread_over_users(runs: Sequence[CellResult], metric: str) -> list[float]:
    """Quantiles over users of the metric's mean over seeds; empty if it is not per user."""
    frames = [run.users() for run in runs]
    if any(metric not in frame for frame in frames):
        return []
    if _same_users(frames):
        values = np.mean([frame[metric].to_numpy(float) for frame in frames], axis=0)
    else:
        values = frames[0][metric].to_numpy(float)
    return quantiles(values)


def pairs_of(item: Item, trial: Trial) -> list[MethodPair]:
    """The pairs to test: the first method with every other one, and the pairs of all claims."""
    first, *others = [method.label for method in trial.methods]
    pairs = [MethodPair(first, other) for other in others]
    pairs += [pair for claim in item.claims for pair in getattr(claim.check, "pairs", ())]
    return list(dict.fromkeys(pairs))


def paired_tests(
    item: Item, by_method: Mapping[str, Sequence[CellResult]], pairs: Iterable[MethodPair]
) -> list[JsonObject]:
    """Paired tests over users, on each user's mean over seeds.

    The p-values are corrected by Holm's method over all tests of the dataset.
    """
    users = {
        label: _means_over_seeds(runs, item.metrics) for label, runs in by_method.items() if runs
    }
    comparisons = []
    for pair in pairs:
        if pair.first not in users or pair.other not in users:
            continue
        first = users[pair.first]
        other = users[pair.other]
        common = first.index.intersection(other.index)
        for metric in item.metrics:
            if metric in first and metric in other and len(common) > 1:
                comparison = compare(
                    first.loc[common, metric].to_numpy(float),
                    other.loc[common, metric].to_numpy(float),
                )
                comparisons.append((pair, metric, comparison))
    corrected = holm([comparison.p_value for _, _, comparison in comparisons])
    return [
        {
            "first": pair.first,
            "other": pair.other,
            "metric": metric,
            "difference": round(comparison.difference, 6),
            "low": round(comparison.low, 6),
            "high": round(comparison.high, 6),
            "p": p,
        }
        for (pair, metric, comparison), p in zip(comparisons, corrected, strict=True)
    ]


def _means_over_seeds(runs: Sequence[CellResult], metrics: Sequence[str]) -> pd.DataFrame:
    frames = [run.users() for run in runs]
    shown = [m for m in metrics if all(m in frame for frame in frames)]
    total, *others = [frame[shown].astype(float) for frame in frames]
    for frame in others:
        total = total + frame
    return total / len(frames)


def _same_users(frames: Sequence[pd.DataFrame]) -> bool:
    return all(frame.index.equals(frames[0].index) for frame in frames)
