"""Accuracy by the values that users chose."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.evaluation.breakdown import by_chosen_value
from coterie.evaluation.evaluation import Evaluation


def evaluation(values: list[float]) -> Evaluation:
    """Users 1, 2, 3, ... were tested; user 0 was not."""
    return Evaluation(
        {}, {}, np.arange(1, len(values) + 1, dtype=np.int32), {"P@10": np.array(values)}
    )


def test_one_row_for_every_value():
    chosen = np.array([0.9, 0.1, 0.5, 0.1], np.float32)
    rows = by_chosen_value(chosen, evaluation([0.2, 1.0, 0.4]), ["P@10"])
    assert rows == [
        {"from": 0.1, "to": 0.1, "users": 2, "P@10": pytest.approx(0.3)},
        {"from": 0.5, "to": 0.5, "users": 1, "P@10": 1.0},
    ]


def test_tenths_where_there_are_many_values():
    chosen = np.concatenate([[0.0], np.linspace(0, 1, 21)]).astype(np.float32)
    rows = by_chosen_value(chosen, evaluation(list(range(21))), ["P@10"])
    assert [row["users"] for row in rows] == [2] * 9 + [3]
    assert rows[-1] == {"from": 0.9, "to": 1.0, "users": 3, "P@10": 19.0}


def test_nothing_where_all_chose_the_same():
    assert by_chosen_value(np.full(4, 0.5, np.float32), evaluation([1, 0, 1]), ["P@10"]) == []
