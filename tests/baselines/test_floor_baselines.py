"""Random and most popular, checked by hand or by counting."""

from __future__ import annotations

import numpy as np
import pytest

from coterie import api
from coterie.data.interactions import Interactions
from coterie.data.synthetic import Synthetic, generate


def test_popular_by_hand():
    """Training counts are a 3, b 2, c 2, d 1; every user's latest item is held out."""
    rows = [
        ("u", "a", 1),
        ("u", "b", 2),
        ("u", "d", 9),
        ("v", "a", 1),
        ("v", "c", 2),
        ("v", "b", 9),
        ("w", "a", 1),
        ("w", "b", 2),
        ("w", "c", 9),
        ("x", "c", 1),
        ("x", "d", 2),
        ("x", "a", 9),
    ]
    users, items, times = zip(*rows, strict=True)
    data = Interactions.from_columns(users, items, None, times)
    run = api.run("popular", data, protocol="full", cutoffs="1,2")
    assert run.model.arrays()["counts"].tolist() == [3, 2, 2, 1]
    assert [[r.item for r in run.recommend(user, 4)] for user in "uvwx"] == [
        ["c", "d"],  # has a and b
        ["b", "d"],
        ["c", "d"],
        ["a", "b"],
    ]
    assert run.full["HR@1"] == 3 / 4  # d for u comes second
    assert run.full["HR@2"] == 1
    assert run.full["IC@1"] == 3
    assert run.full["Pop@1"] == pytest.approx((2 + 2 + 2 + 3) / 4 / 4)


def test_equally_popular_items_are_listed_by_index_but_rank_as_ties():
    """All counts are one: lists start at the lowest index, but metrics count ties as ties."""
    n = 6
    data = Interactions.from_columns(
        [u for u in range(n) for _ in range(2)],
        [i for u in range(n) for i in (u, (u + 1) % n)],
        None,
        list(range(2 * n)),
    )
    run = api.run("popular", data, protocol="full", cutoffs=2)
    assert set(run.model.arrays()["counts"].tolist()) == {1.0}
    assert [r.item for r in run.recommend(3, 2)] == [0, 1]
    assert run.full["HR@2"] == pytest.approx(2 / 5)
    assert run.full["AUC"] == 0.5


@pytest.fixture(scope="module")
def dataset() -> Interactions:
    return generate(Synthetic(n_users=4_000, n_items=150, n_groups=3, mean_interactions=8))


def test_random_hits_k_out_of_the_candidates(dataset):
    run = api.run("random", dataset, protocol="loo-50")
    n = run.result["tested_users"]
    p = 10 / 51
    assert abs(run.metrics["HR@10"] - p) < 4 * np.sqrt(p * (1 - p) / n)
    assert run.metrics["AUC"] == pytest.approx(0.5, abs=4 * np.sqrt(1 / 12 / n))


def test_random_recommends_all_items_evenly(dataset):
    run = api.run("random", dataset, protocol="full")
    assert run.full["IC@10"] == dataset.n_items
    assert run.full["Gini@10"] > 0.9
    assert api.run("popular", dataset, protocol="full").full["Gini@10"] < 0.5


def test_most_popular_on_foursquare_italy(real_data):
    """The latest int(0.2 n) are held out. Ranks 11 and 12 tie, hence the ranges."""
    real_data("foursquare-italy", "Bologna.tsv")
    run = api.run("popular", "foursquare-italy", protocol="holdout")
    assert run.result["tested_users"] == run.result["users"] == 1_353
    assert run.result["training_interactions"] == 54_088
    assert 0.0266 <= run.metrics["P@10"] <= 0.0271
    assert 0.0340 <= run.metrics["R@10"] <= 0.0344
    assert run.metrics["IC@10"] in (20, 21)
    assert round(run.metrics["Gini@10"], 5) == 0.00035


def test_popularity_beats_chance_on_movielens(real_data):
    """Neither has settings."""
    real_data("ml-100k", "u.data", "ml-100k.inter")
    chance, popular = (
        api.run(name, "ml-100k", protocol="loo-50").metrics["HR@10"]
        for name in ("random", "popular")
    )
    assert abs(chance - 10 / 51) < 4 * np.sqrt(0.16 / 943)
    assert popular > 2 * chance
