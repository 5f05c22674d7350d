"""Accuracy by the disclosure rates that users chose: does disclosing less cost accuracy?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coterie.evaluation.evaluation import Evaluation
from coterie.evaluation.metric_names import RATING_ERRORS
from coterie.types import Bools, Doubles, Floats, JsonObject

MOST_GROUPS = 11
"""With more distinct values than this, users are grouped by tenths."""


def by_chosen_value(
    chosen: Floats, evaluation: Evaluation, metrics: Sequence[str]
) -> list[JsonObject]:
    """One row per distinct value, or per tenth of 0 to 1; none if all tested users chose the same.

    `chosen` has a value for every user, tested or not.
    """
    values = chosen[evaluation.users].astype(np.float64)
    if len(np.unique(values)) < 2:
        return []
    # The RMSE of a group is not the mean of its users' RMSE, so errors of ratings are left out.
    shown = [
        metric for metric in metrics if metric in evaluation.table and metric not in RATING_ERRORS
    ]
    rows: list[JsonObject] = []
    for low, high, members in groups(values):
        row: JsonObject = {"from": low, "to": high, "users": int(members.sum())}
        for metric in shown:
            row[metric] = float(evaluation.table[metric][members].mean())
        rows.append(row)
    return rows


def groups(values: Doubles) -> list[tuple[float, float, Bools]]:
    """(from, to, members) per distinct value, or per tenth of 0 to 1 if there are many."""
    # Disclosure rates are stored in single precision, where 0.1 is 0.10000000149.
    values = np.round(values, 6)
    distinct = np.unique(values)
    if len(distinct) <= MOST_GROUPS:
        return [(v, v, values == v) for v in distinct.tolist()]
    tenth = np.minimum(np.floor(np.round(values * 10, 5)).astype(np.int64), 9)
    return [(t / 10, (t + 1) / 10, tenth == t) for t in np.unique(tenth).tolist()]
