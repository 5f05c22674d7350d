"""What runs of an item say, as plain data: everything that reports and verdicts need, and nothing that is not kept in JSON.

    {"dataset", "protocol", "seeds", "tested_users", "data", "metrics", "spread of", "rows", "tests", "diverged"}

A row has `series` and `x` (its place in a figure), `metrics` and `full` (seed by seed), `costs`, `curve`, `users` (how figures
are spread over people) and `settings`; of measurements it has `metrics` alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from coterie.evaluation.significance import compare, holm
from coterie.experiments.cell_cache import CellResult
from coterie.reproduce.items import Item, Measurement, Pair, Rows, Trial

COSTS = ("rounds", "seconds", "bytes_up", "bytes_down", "updates", "parameters")
QUANTILES = tuple(range(0, 101, 5))
CURVE_POINTS = 120
"""A figure shows no more, and a file of figures stays small."""


def of_trial(item: Item, trial: Trial, outcomes: Sequence[CellResult]) -> dict[str, Any]:
    good = [outcome for outcome in outcomes if not outcome.diverged]
    by_method = {
        m.label: [o for o in good if o.cell.method.label == m.label] for m in trial.methods
    }
    first = good[0].result if good else {}
    return {
        "dataset": trial.dataset,
        "protocol": first.get("protocol", trial.protocol),
        "seeds": trial.seeds,
        "tested_users": first.get("tested_users"),
        "data": first.get("data"),
        "metrics": list(item.metrics),
        "spread of": told_apart(item.metrics),
        "rows": {label: row(item, runs) for label, runs in by_method.items() if runs},
        "tests": tests(item, by_method, pairs_of(item, trial)),
        "diverged": {o.cell.name: o.diverged for o in outcomes if o.diverged},
    }


def of_measurement(item: Item, measurement: Measurement, rows: Rows) -> dict[str, Any]:
    kept = {
        label: {"series": label, "x": None, "metrics": {k: [v] for k, v in found.items()}}
        for label, found in rows.items()
    }
    return {
        "dataset": measurement.dataset,
        "metrics": list(item.metrics),
        "rows": kept,
        "tests": [],
        "diverged": {},
    }


def row(item: Item, runs: Sequence[CellResult]) -> dict[str, Any]:
    results = [run.result for run in runs]
    method = runs[0].cell.method
    settings = results[0]["settings"]
    found = {
        "series": method.algorithm if item.by else method.label,
        "x": settings.get(item.by) if item.by else None,
        "metrics": {m: values for m in item.metrics if (values := _all_of(results, m))},
        "full": {
            m: [r["full"][m] for r in results] for m in item.metrics if m in results[0]["full"]
        },
        "costs": {c: float(np.mean([r[c] for r in results])) for c in COSTS if c in results[0]},
        "settings": {k: v for k, v in settings.items() if k in method.settings},
        "users": spread_over_users(runs, told_apart(item.metrics)),
    }
    return found | (
        {"curve": curve(runs, item.metrics)} if any(len(run.curve) > 1 for run in runs) else {}
    )


def told_apart(metrics: Sequence[str]) -> str:
    """The metric that people are told apart by: a hit is there or not, and says little of one person."""
    return next((metric for metric in metrics if metric.startswith("NDCG")), metrics[0])


def _all_of(results: Sequence[Mapping[str, Any]], metric: str) -> list[float]:
    """A metric seed by seed; nothing where it does not exist."""
    values = [_of(result, metric) for result in results]
    return [] if None in values else [float(value) for value in values if value is not None]


def _of(result: Mapping[str, Any], metric: str) -> Any:
    """By the protocol where it says so, else by full ranking; of bias a category's disparity, of costs what travelled."""
    if metric.startswith("BD "):
        return (
            (result.get("bias") or {}).get("categories", {}).get(metric.removeprefix("BD ")) or {}
        ).get("disparity")
    if metric.startswith("vectors"):
        return result.get("vectors", {}).get("step" if metric == "vectors an epoch" else "total")
    return result["metrics"].get(metric, result["full"].get(metric))


def curve(runs: Sequence[CellResult], metrics: Sequence[str]) -> dict[str, Any]:
    """Figures by round, seed by seed; what rounds had cost by then is that of the first seed."""
    rounds = sorted({line["round"] for run in runs for line in run.curve})
    if (
        len(rounds) > CURVE_POINTS
    ):  # the first half of the points as measured, for claims about early rounds
        early = rounds[: CURVE_POINTS // 2]
        late = rounds[CURVE_POINTS // 2 :]
        rounds = early + sorted(
            {late[i] for i in np.linspace(0, len(late) - 1, CURVE_POINTS // 2).astype(int)}
        )
    by_round = [{line["round"]: line for line in run.curve} for run in runs]
    shown = [m for m in metrics if all(m in line for run in runs for line in run.curve)]
    last = [by_round[0].get(n, {}) for n in rounds]
    return {
        "part": runs[0].curve[0]["part"],
        "rounds": rounds,
        "MB": [
            round((line.get("bytes_up", 0) + line.get("bytes_down", 0)) / 1e6, 4) for line in last
        ],
        "seconds": [round(line.get("seconds", 0), 4) for line in last],
        "values": {
            m: [[_rounded(lines.get(n, {}).get(m)) for n in rounds] for lines in by_round]
            for m in shown
        },
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def spread_over_users(runs: Sequence[CellResult], metric: str) -> list[float]:
    """Quantiles over people of the metric's mean over seeds; empty for what people do not have one by one."""
    frames = [run.users() for run in runs]
    if any(metric not in frame for frame in frames):
        return []
    values = (
        np.mean([frame[metric].to_numpy(float) for frame in frames], axis=0)
        if _same_people(frames)
        else frames[0][metric].to_numpy(float)
    )
    return [round(float(v), 4) for v in np.percentile(values, QUANTILES)]


def pairs_of(item: Item, trial: Trial) -> list[Pair]:
    """The first method against the others, and whatever claims are about."""
    first, *others = [method.label for method in trial.methods]
    found = [Pair(first, other) for other in others]
    found += [pair for claim in item.claims for pair in getattr(claim.check, "pairs", ())]
    return list(dict.fromkeys(found))


def tests(
    item: Item, by_method: Mapping[str, Sequence[CellResult]], pairs: Iterable[Pair]
) -> list[dict[str, Any]]:
    """Paired over users, each user's metric averaged over seeds first; p corrected by Holm over all tests of the dataset."""
    users = {
        label: _means_over_seeds(runs, item.metrics) for label, runs in by_method.items() if runs
    }
    found = []
    for pair in pairs:
        if pair.first not in users or pair.other not in users:
            continue
        ours = users[pair.first]
        theirs = users[pair.other]
        common = ours.index.intersection(theirs.index)
        for metric in item.metrics:
            if metric in ours and metric in theirs and len(common) > 1:
                c = compare(
                    ours.loc[common, metric].to_numpy(float),
                    theirs.loc[common, metric].to_numpy(float),
                )
                found.append((pair, metric, c))
    corrected = holm([c.p_value for _, _, c in found])
    return [
        {
            "first": pair.first,
            "other": pair.other,
            "metric": metric,
            "difference": round(c.difference, 6),
            "low": round(c.low, 6),
            "high": round(c.high, 6),
            "p": p,
        }
        for (pair, metric, c), p in zip(found, corrected, strict=True)
    ]


def _means_over_seeds(runs: Sequence[CellResult], metrics: Sequence[str]) -> Any:
    frames = [run.users() for run in runs]
    shown = [m for m in metrics if all(m in frame for frame in frames)]
    return sum(frame[shown].astype(float) for frame in frames) / len(frames)


def _same_people(frames: Sequence[Any]) -> bool:
    return all(frame.index.equals(frames[0].index) for frame in frames)
