"""The reference of every result: accuracy of the most popular items, without scoring them."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from score_table import histories

from coterie import api
from coterie.evaluation.popularity import below, popular_ranks
from coterie.evaluation.ranking import Ranks, rank_all
from coterie.models.popular import ItemCounts
from coterie.types import Rows

FIELDS = [field.name for field in dataclasses.fields(Ranks) if field.name != "top"]


def slow_ranks(counts: np.ndarray, seen: Rows, wanted: Rows, k: int) -> Ranks:
    """The general way: score every item for every user, then rank."""
    return rank_all(ItemCounts(counts.astype(np.float32)), seen, wanted, len(counts), k)


def test_ranks_by_hand():
    """Counts 5, 3, 3, 1; the user has seen item 0, so item 2 shares the first place with item 1."""
    ranks = popular_ranks(np.array([5, 3, 3, 1]), histories([[0]]), histories([[2, 3]]), 2)
    assert ranks.above.tolist() == [0, 2]
    assert ranks.tied.tolist() == [2, 1]
    assert ranks.candidates.tolist() == [3]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 10))
def test_ranks_equal_those_of_scored_items(seed, n_users, n_items):
    rng = np.random.default_rng(seed)
    state = rng.choice(3, (n_users, n_items), p=[0.3, 0.2, 0.5])
    seen = histories([np.flatnonzero(row == 0) for row in state])
    wanted = histories([np.flatnonzero(row == 1) for row in state])
    if not len(wanted.items):
        return
    counts = rng.integers(0, 5, n_items)
    found = popular_ranks(counts, seen, wanted, 3)
    expected = slow_ranks(counts, seen, wanted, 3)
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)


def test_the_reference_equals_the_algorithm_popular():
    """Under full ranking and among sampled candidates, to the last bit."""
    for protocol in ("full", "loo-50", "holdout"):
        run = api.run("popular", protocol=protocol, n_users=60, n_items=80)
        popular = run.result["popular"]
        assert popular == {name: run.metrics[name] for name in popular}
        assert run.result["below_popular"] == []


def test_a_result_below_popular_is_marked():
    run = api.run("random", n_users=120, n_items=300)
    assert run.result["below_popular"] == ["HR@10", "NDCG@10"]
    assert run.metrics["HR@10"] < run.result["popular"]["HR@10"]


def test_equal_figures_are_not_below():
    assert below({"HR@10": 0.5, "IC@10": 3.0}, {"HR@10": 0.5}, ("HR@10", "IC@10")) == []
    assert below({"HR@10": 0.4}, {"HR@10": 0.5}, ("HR@10",)) == ["HR@10"]
