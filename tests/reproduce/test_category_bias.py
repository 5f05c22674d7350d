"""The bias of the training data: Italy's row of Table 5."""

from __future__ import annotations

import pytest

from coterie.reproduce.category_bias import BIAS, SHARE, training_bias
from coterie.reproduce.papers.fpl import CATEGORIES, ITALY, SOURCE_BIAS


def test_italy_is_near_the_papers_row(real_data):
    """The root of the mean squared difference over nine categories is below a tenth."""
    real_data(ITALY)
    rows = training_bias((BIAS, SHARE), ITALY, "holdout")
    assert set(rows[BIAS]) == set(CATEGORIES)
    assert sum(rows[SHARE].values()) == pytest.approx(1.0)
    squares = [
        (rows[BIAS][name] - printed) ** 2
        for name, printed in zip(CATEGORIES, SOURCE_BIAS, strict=True)
    ]
    assert (sum(squares) / len(squares)) ** 0.5 < 0.1
