"""What checks read of what was found on one dataset (`found.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from coterie.reproduce.items import Verdict

Found = Mapping[str, Any]


def together(verdicts: Sequence[str]) -> Any:
    """Of several datasets or parts of a sentence: it holds where all that could be tested do."""
    tested_ones = [v for v in verdicts if v != "cannot be tested"]
    if not tested_ones:
        return "cannot be tested"
    if len(set(tested_ones)) == 1:
        return tested_ones[0]
    return "holds in part"


def not_run(*methods: str) -> Verdict:
    return Verdict("cannot be tested", f"not run here: {', '.join(methods)}")


def values(found: Found, method: str, metric: str) -> list[float]:
    """A figure of a method, seed by seed."""
    row = found["rows"].get(method)
    return list(row["metrics"].get(metric, ())) if row else []


def along(found: Found, series: str, metric: str) -> list[tuple[float, float]]:
    """(setting, mean) of a series, in the order of the setting."""
    rows = [row for row in found["rows"].values() if not series or row["series"] == series]
    return sorted(
        (row["x"], mean(row["metrics"][metric])) for row in rows if metric in row["metrics"]
    )


def curves(found: Found, method: str, metric: str) -> list[list[tuple[int, float]]]:
    """(round, figure) of a method, seed by seed."""
    row = found["rows"].get(method)
    curve = row and row.get("curve")
    if not curve or metric not in curve["values"]:
        return []
    return [
        [(n, v) for n, v in zip(curve["rounds"], run, strict=True) if v is not None]
        for run in curve["values"][metric]
    ]


def tested(found: Found, first: str, other: str, metric: str) -> dict[str, Any] | None:
    for test in found["tests"]:
        if (test["first"], test["other"], test["metric"]) == (first, other, metric):
            return dict(test)
    return None


def said(found: Found, first: str, other: str, metric: str, test: Mapping[str, Any]) -> str:
    a = mean(values(found, first, metric))
    b = mean(values(found, other, metric))
    p = "p < 0.0001" if test["p"] < 1e-4 else f"p = {test['p']:.2g}"
    return (
        f"{metric} {a:.4g} against {b:.4g} of {other}: {test['difference']:+.4f} "
        f"[{test['low']:+.4f}, {test['high']:+.4f}], {p}"
    )
