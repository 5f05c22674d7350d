"""Hand-made findings of one dataset: two seeds of `good` and `weak`, and a sweep over p."""

from __future__ import annotations

from typing import Any

from coterie.reproduce.items import Effect, Verdict
from coterie.types import JsonObject


def row(
    values: list[float],
    curve: list[list[float]] | None = None,
    x: float | None = None,
    series: str = "",
) -> JsonObject:
    made: JsonObject = {
        "series": series,
        "x": x,
        "metrics": {"HR@10": values},
        "full": {"HR@10": [v / 10 for v in values]},
        "costs": {"rounds": 30.0, "seconds": 1.5, "bytes_up": 2e6, "bytes_down": 4e6},
        "users": [0.0, 0.5, 1.0] * 7,
        "settings": {"reg": 0.1},
    }
    if curve:
        rounds = [10, 20, 30]
        made["curve"] = {
            "part": "test",
            "rounds": rounds,
            "MB": [2.0, 4.0, 6.0],
            "seconds": [0.5, 1.0, 1.5],
            "values": {"HR@10": curve},
        }
    return made


def paired(
    first: str, other: str, difference: float, low: float, high: float, p: float
) -> JsonObject:
    return {
        "first": first,
        "other": other,
        "metric": "HR@10",
        "difference": difference,
        "low": low,
        "high": high,
        "p": p,
    }


def table(**more: Any) -> JsonObject:
    rows = {
        "good": row([0.8, 0.9], [[0.5, 0.8, 0.8], [0.6, 0.9, 0.9]]),
        "weak": row([0.4, 0.5], [[0.2, 0.3, 0.4], [0.3, 0.5, 0.45]]),
    }
    tests = [
        paired("good", "weak", 0.4, 0.3, 0.5, 0.001),
        paired("weak", "good", -0.4, -0.5, -0.3, 0.001),
    ]
    findings = {
        "dataset": "made-up",
        "protocol": "loo-50",
        "seeds": 2,
        "tested_users": 100,
        "data": "abc",
        "metrics": ["HR@10"],
        "spread of": "HR@10",
        "rows": rows,
        "tests": tests,
        "diverged": {},
        "paper": {"good": [0.9]},
        "stand_in": False,
        "searches": {"good": {"trials": 12, "space": {"reg": [0.1, 1]}, "note": ""}},
    }
    return findings | more


def sweep(values: dict[float, list[float]], series: str = "ours") -> JsonObject:
    return table(
        rows={f"p = {x:g}": row(v, x=x, series=series) for x, v in values.items()}, tests=[]
    )


def report(**more: Any) -> JsonObject:
    """A report as `running.reproduce` returns it."""
    effect = Effect("HR@10: good − weak", "difference", 0.4, 0.3, 0.5, 0.0, 0.001)
    verdict = Verdict.of("holds", "0.85 against 0.45 & more", effect)
    claim = {
        "name": "ahead",
        "said": "good is <b>ahead</b> of weak",
        "where": "4.1",
        "verdict": "holds",
        "by": {"made-up": verdict.to_json()},
        "ours": False,
    }
    our_claim = claim | {
        "name": "tuned",
        "said": "the same with tuned settings",
        "verdict": "does not hold",
        "by": {"made-up": Verdict.of("does not hold", "0.85 against 0.85").to_json()},
        "ours": True,
    }
    item = {
        "key": "table2",
        "title": "Table 2: accuracy",
        "about": "See `good`.",
        "by": "",
        "tables": [table()],
        "claims": [claim, our_claim],
        "absent": ["Nothing <i>else</i>."],
        "machine": {"cores": 2},
    }
    return {
        "paper": "made-up",
        "title": "A paper",
        "reference": "Anonymous. 2026.",
        "quick": False,
        "items": [item],
        "code": {"coterie": "0.1.0"},
    } | more
