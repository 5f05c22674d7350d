"""Accuracy by what users chose for themselves: whoever keeps more to themselves, are they served worse?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coterie.evaluation.evaluation import Evaluation
from coterie.types import Bools, Doubles, Floats

MOST_GROUPS = 11
"""With more values than this, users are grouped by tenths."""


def by_choice(chosen: Floats, judged: Evaluation, metrics: Sequence[str]) -> list[dict[str, Any]]:
    """One row for every value, or every tenth from 0 to 1, that some tested user chose; none where all chose the same.

    `chosen` has a value for every user, of whom some were tested.
    """
    values = chosen[judged.users].astype(np.float64)
    if len(np.unique(values)) < 2:
        return []
    return [
        {"from": low, "to": high, "users": int(inside.sum())}
        | {
            metric: float(judged.table[metric][inside].mean())
            for metric in metrics
            if metric in judged.table
        }
        for low, high, inside in groups(values)
    ]


def groups(values: Doubles) -> list[tuple[float, float, Bools]]:
    """(from, to, who) of every value, or of every tenth from 0 to 1 if there are many."""
    values = np.round(
        values, 6
    )  # rates are held in single precision: 0.1 is meant by 0.10000000149
    distinct = np.unique(values)
    if len(distinct) <= MOST_GROUPS:
        return [(v, v, values == v) for v in distinct.tolist()]
    tenth = np.minimum(np.floor(np.round(values * 10, 5)).astype(np.int64), 9)
    return [(t / 10, (t + 1) / 10, tenth == t) for t in np.unique(tenth).tolist()]
