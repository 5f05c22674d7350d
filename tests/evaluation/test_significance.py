"""Paired tests against SciPy, a worked Holm example, and coverage of bootstrap intervals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from coterie.evaluation import significance
from coterie.evaluation.significance import compare, holm, interval, paired_t_test

values = st.floats(-100, 100, allow_subnormal=False).map(lambda v: round(v, 3))


@settings(deadline=None, max_examples=80)
@given(
    st.integers(2, 40).flatmap(
        lambda n: st.tuples(arrays(float, n, elements=values), arrays(float, n, elements=values))
    )
)
def test_the_t_test_is_scipys(columns):
    a, b = columns
    assume(np.std(a - b) > 1e-6)
    assert paired_t_test(a - b) == pytest.approx(stats.ttest_rel(a, b).pvalue, rel=1e-9, abs=1e-12)


def test_columns_that_never_differ_are_not_different():
    column = np.array([0.0, 1.0, 0.25, 0.5])
    found = compare(column, column)
    assert (found.difference, found.low, found.high, found.p_value) == (0, 0, 0, 1)


def test_a_constant_difference_is_certain():
    found = compare(np.array([1.0, 2.0, 3.0]), np.array([0.5, 1.5, 2.5]))
    assert (found.difference, found.low, found.high, found.p_value) == (0.5, 0.5, 0.5, 0)


def test_swapping_the_methods_swaps_the_sign_alone():
    a, b = np.random.default_rng(0).random((2, 50))
    one = compare(a, b)
    other = compare(b, a)
    assert one.difference == pytest.approx(-other.difference)
    assert one.p_value == pytest.approx(other.p_value)
    assert (one.low, one.high) == pytest.approx((-other.high, -other.low))


@pytest.mark.parametrize(("a", "b"), [([1.0, 2.0], [1.0]), ([1.0], [2.0]), ([], [])])
def test_columns_that_cannot_be_paired_are_refused(a, b):
    with pytest.raises(ValueError, match=f"have {len(a)} and {len(b)} users"):
        compare(np.array(a), np.array(b))


@pytest.mark.parametrize(
    ("p", "adjusted"),
    [
        # 4 x .005, 3 x .01, 2 x .03; the value for .04 may not be lower.
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),
        ([0.5, 0.6], [1.0, 1.0]),
        ([0.02], [0.02]),
        ([0.01, 0.01, 0.01], [0.03, 0.03, 0.03]),
        ([], []),
    ],
)
def test_holm_by_hand(p, adjusted):
    assert holm(p) == pytest.approx(adjusted)


@settings(max_examples=100)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0.001, 0.2))
def test_holm_rejects_what_the_step_down_procedure_rejects(p, level):
    """Holm's procedure: from the smallest p on, stop at the first that is not small enough."""
    assume(all(abs(value * m - level) > 1e-9 for value in p for m in range(1, len(p) + 1)))
    rejected: set[int] = set()
    for step, which in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        if p[which] > level / (len(p) - step):
            break
        rejected.add(which)
    assert {i for i, value in enumerate(holm(p)) if value <= level} == rejected


def test_the_interval_covers_the_truth_about_as_often_as_it_says(monkeypatch):
    monkeypatch.setattr(significance, "RESAMPLES", 200)
    samples = np.random.default_rng(5).exponential(1.0, (250, 60))
    covered = [
        low <= 1.0 <= high
        for low, high in (interval(s, 0.9, seed) for seed, s in enumerate(samples))
    ]
    assert 0.82 <= np.mean(covered) <= 0.95


def test_the_interval_of_many_users_is_the_normal_one():
    sample = np.random.default_rng(6).random(4_000)
    low, high = interval(sample, 0.95)
    half = stats.norm.ppf(0.975) * sample.std(ddof=1) / np.sqrt(len(sample))
    assert (low, high) == pytest.approx(
        (sample.mean() - half, sample.mean() + half), abs=0.1 * half
    )


def test_the_interval_is_seeded_and_widens_with_its_level():
    sample = np.random.default_rng(7).random(60)
    assert interval(sample, seed=1) == interval(sample, seed=1) != interval(sample, seed=2)
    (low50, high50) = interval(sample, 0.5)
    (low99, high99) = interval(sample, 0.99)
    assert low99 < low50 < high50 < high99
