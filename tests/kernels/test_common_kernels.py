"""Random words and negatives in kernels: SplitMix64 to the bit, and one draw per negative."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from slow_twins import WORD, number_below, splitmix64, unseen

from coterie.core import streams
from coterie.kernels import common

words = st.integers(0, WORD)


def test_random_words_are_the_published_splitmix64():
    """The first outputs of the reference implementation, Vigna's splitmix64.c, for seed 1234567."""
    known = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert [int(common.random_word(np.uint64(1234567), n)) for n in range(5)] == known


@settings(deadline=None, max_examples=150)
@given(words, st.integers(0, 60))
def test_random_words_equal_the_stepwise_stream(key, n):
    assert int(common.random_word(np.uint64(key), n)) == splitmix64(key, n)


@settings(deadline=None, max_examples=100)
@given(words, st.integers(0, 2**62))
def test_random_words_need_no_earlier_words(key, n):
    assert int(common.random_word(np.uint64(key), n)) == streams.mix(
        (key + (n + 1) * streams.GOLDEN) & WORD
    )


@settings(deadline=None, max_examples=100)
@given(words, st.text(max_size=8), st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=6))
def test_keys_of_many_users_are_the_keys_of_each(seed, purpose, users):
    keys = streams.keys(seed, purpose, 3, last=np.array(users, np.int32))
    assert keys.tolist() == [streams.key(seed, purpose, 3, user) for user in users]


@settings(deadline=None, max_examples=150)
@given(words, st.integers(1, 2**32 - 1))
def test_numbers_stay_below_their_limit(word, n):
    found = int(common.below(np.uint64(word), n))
    assert found == number_below(word, n)
    assert 0 <= found < n


def test_numbers_below_a_limit_are_uniform():
    drawn = [int(common.below(np.uint64(splitmix64(n, 0)), 13)) for n in range(13_000)]
    assert chisquare(np.bincount(drawn, minlength=13)).pvalue > 1e-3


@settings(deadline=None, max_examples=150)
@given(
    st.integers(1, 30).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))),
    st.integers(0, 3),
)
def test_nth_unseen_equals_a_slow_loop(case, before):
    """The user's items are in the middle of a longer array."""
    n_items, seen = case
    items = np.array([0] * before + sorted(seen) + [0, 0], np.int32)
    found = [
        int(common.nth_unseen(items, before, before + len(seen), rank))
        for rank in range(n_items - len(seen))
    ]
    assert found == unseen(seen, n_items)


@pytest.mark.parametrize("x", [-1000.0, -90.0, -20.0, -1.0, 0.0, 0.3, 20.0, 90.0, 1000.0])
def test_the_sigmoid_never_overflows(x):
    expected = 1 / (1 + math.exp(-x)) if x > -700 else 0.0
    assert common.sigmoid(np.float32(x)) == pytest.approx(expected, rel=1e-6, abs=1e-30)
