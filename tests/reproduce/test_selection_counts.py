"""Selection counts: every round selects equally many; users without data are never selected."""

from __future__ import annotations

import pytest

from coterie.reproduce.selection_counts import selection_counts, selection_spread

SMALL = {
    "n_users": 50,
    "n_items": 60,
    "mean_interactions": 10,
    "rounds": 20,
    "participation": 0.2,
}
CLUSTERED = SMALL | {"clusters": 5}


def test_every_round_selects_a_fifth():
    assert selection_counts("fedavg", "synthetic", SMALL).sum() == 20 * 10


def test_the_spread_is_that_of_the_counts():
    counts = selection_counts("fedfast", "synthetic", CLUSTERED)
    spread = selection_spread(["fedfast"], "synthetic", CLUSTERED)["fedfast"]
    assert (spread["minimum"], spread["maximum"]) == (counts.min(), counts.max())
    assert spread["deviation"] == pytest.approx(counts.std(), abs=0.01)
    assert counts.sum() >= 20 * 5
