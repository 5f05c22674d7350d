"""How often users are asked: every round asks as many, and those who have nothing are never asked."""

from __future__ import annotations

import pytest

from coterie.reproduce.selection_counts import how_often, times_asked

SMALL = {
    "n_users": 50,
    "n_items": 60,
    "mean_interactions": 10,
    "rounds": 20,
    "participation": 0.2,
    "clusters": 5,
}


def test_every_round_asks_a_fifth():
    assert (
        times_asked(
            "fedavg", "synthetic", {k: v for k, v in SMALL.items() if k != "clusters"}
        ).sum()
        == 20 * 10
    )


def test_what_is_told_is_of_those_counts():
    times = times_asked("fedfast", "synthetic", SMALL)
    told = how_often(["fedfast"], "synthetic", SMALL)["fedfast"]
    assert (told["least"], told["most"]) == (times.min(), times.max())
    assert told["deviation"] == pytest.approx(times.std(), abs=0.01)
    assert times.sum() >= 20 * 5
