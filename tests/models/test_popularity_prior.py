"""Popularity in scores: by hand, at its limits, and the same wherever scores are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.models.factors import Factors
from coterie.models.popularity_prior import (
    PopularityPrior,
    WithPopularity,
    derived_strength,
    recommender,
    sampled_items,
)
from coterie.models.recommender import Recommender, pick
from coterie.types import Floats, Ints


@dataclass(frozen=True, slots=True)
class Table(Recommender):
    """Scores that are given."""

    kind: ClassVar[str] = "table"
    scores: Floats

    def score(self, users: Ints, items: Ints | None = None) -> Floats:
        return pick(self.scores[users], items)


def prior_of(counts: list[int], lengths: list[int], strength: float) -> PopularityPrior:
    prior = PopularityPrior.of_counts(np.array(counts), np.array(lengths), strength)
    assert prior is not None
    return prior


def everyone(n: int) -> Ints:
    return np.arange(n, dtype=np.int32)


def test_scores_by_hand():
    """log(1 + counts) = (0, 1, 2) times log 2; k = 6 beside histories of 0, 2 and 18."""
    prior = prior_of([0, 1, 3], [0, 2, 18], 6.0)
    z = np.sqrt(1.5)
    np.testing.assert_allclose(prior.popularity, [-z, 0, z], rtol=1e-6)
    model = Table(np.array([[3, 0, 0], [6, 0, 0], [0, 30, 0]], np.float32))
    deviations = [np.sqrt(2), np.sqrt(8), np.sqrt(200)]
    expected = [
        [-z, 0, z],
        [(2 * 6 / deviations[1] - 6 * z) / 8, 0, 6 * z / 8],
        [-6 * z / 24, 18 * 30 / deviations[2] / 24, 6 * z / 24],
    ]
    found = WithPopularity(model, prior).score(everyone(3))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_strength_follows_the_share_of_the_ten_most_popular_items():
    """3 percent where 10 of 1,000 items have 1: 600 times what exceeds 2 percent."""
    counts = np.array([291 * 3] * 10 + [291] * 970 + [0] * 20)
    assert derived_strength(counts) == pytest.approx(600 * (8730 / 291000 - 0.02))
    assert derived_strength(np.array([5] * 1000)) == 0
    assert derived_strength(np.array([5])) == 0
    assert derived_strength(np.array([10_000] * 10 + [1] * 990)) == 30


def test_popularity_that_says_nothing_is_no_prior():
    assert PopularityPrior.of_counts(np.array([4, 4, 4]), np.array([1]), 9.0) is None
    assert PopularityPrior.of_counts(np.array([4, 5, 4]), np.array([1]), 0.0) is None


def test_without_a_prior_the_model_itself_recommends():
    model = Table(np.zeros((1, 2), np.float32))
    assert recommender(model, None) is model


def test_long_histories_are_ranked_by_the_model_and_empty_ones_by_popularity():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(2, 50)).astype(np.float32)
    counts = rng.permutation(50)
    prior = prior_of(counts.tolist(), [0, 10**9], 20.0)
    found = WithPopularity(Table(scores), prior).score(everyone(2))
    assert (np.argsort(found[0]) == np.argsort(counts)).all()
    assert (np.argsort(found[1]) == np.argsort(scores[1])).all()


def test_a_model_that_says_nothing_is_ranked_by_popularity():
    prior = prior_of([5, 1, 9], [7], 3.0)
    found = WithPopularity(Table(np.full((1, 3), 0.1, np.float32)), prior).score(everyone(1))
    assert np.argsort(found[0]).tolist() == [1, 0, 2]


@given(st.floats(0.1, 100), st.floats(-50, 50))
def test_neither_scale_nor_level_of_the_scores_matters(factor: float, shift: float):
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(3, 20))
    prior = prior_of(rng.permutation(20).tolist(), [1, 5, 30], 8.0)
    plain = WithPopularity(Table(scores.astype(np.float32)), prior).score(everyone(3))
    other = Table((factor * scores + shift).astype(np.float32))
    found = WithPopularity(other, prior).score(everyone(3))
    steps = found - found[:, :1]
    np.testing.assert_allclose(steps, plain - plain[:, :1], atol=2e-3)


def test_candidates_score_as_they_do_among_all_items():
    """Also with padding, and more items than the deviation is measured on."""
    rng = np.random.default_rng(2)
    n_users, n_items = 300, 2500
    model = Factors.start(n_users, n_items, 4, 0, 1.0)
    prior = prior_of(
        rng.integers(0, 90, n_items).tolist(), rng.integers(0, 40, n_users).tolist(), 9
    )
    whole = WithPopularity(model, prior)
    users = everyone(n_users)[::-1].copy()
    items = rng.integers(0, n_items, (n_users, 7)).astype(np.int32)
    items[:, -1] = -1
    found = whole.score(users, items)
    expected = np.take_along_axis(whole.score(users), np.maximum(items, 0), axis=1)
    np.testing.assert_allclose(found[:, :-1], expected[:, :-1], rtol=1e-4, atol=1e-5)


def test_the_deviation_is_measured_on_items_of_the_whole_catalogue():
    assert sampled_items(7).tolist() == list(range(7))
    spread = sampled_items(4321)
    assert len(spread) == 200 == len(set(spread.tolist()))
    assert spread[0] == 0
    assert spread[-1] > 4290


def test_a_new_user_is_scored_like_one_of_training():
    rng = np.random.default_rng(3)
    scores = rng.normal(size=(1, 30)).astype(np.float32)
    prior = prior_of(rng.integers(0, 9, 30).tolist(), [6], 4.0)
    known = WithPopularity(Table(scores), prior).score(everyone(1))[0]
    np.testing.assert_allclose(prior.for_new_user(scores[0], 6), known, rtol=1e-6)


def test_scores_that_are_not_numbers_are_not_hidden():
    prior = prior_of([1, 2], [3], 4.0)
    model = Table(np.array([[np.nan, 1.0]], np.float32))
    assert np.isnan(WithPopularity(model, prior).score(everyone(1))).any()


def test_a_prior_is_restored_from_its_arrays():
    prior = prior_of([1, 2, 5], [3, 4], 2.5)
    again = PopularityPrior.from_arrays(prior.arrays())
    assert again.strength == prior.strength
    np.testing.assert_array_equal(again.popularity, prior.popularity)
    np.testing.assert_array_equal(again.lengths, prior.lengths)
