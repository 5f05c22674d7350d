"""Random streams: pure functions of their arguments, and unrelated to each other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.core import streams

words = st.integers(0, 2**64 - 1)
indices = st.integers(-(2**40), 2**40)


def test_mix_is_the_finaliser_of_splitmix64() -> None:
    """The first five numbers that Vigna's reference program prints for the seed 1234567."""
    published = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    states = [(1234567 + n * streams.GOLDEN) & streams.WORD for n in range(1, 6)]
    assert [streams.mix(state) for state in states] == published
    assert streams.mix_array(np.array(states, np.uint64)).tolist() == published


@settings(deadline=None, max_examples=100)
@given(st.lists(words, max_size=20))
def test_mixing_an_array_is_mixing_every_word(values: list[int]) -> None:
    assert streams.mix_array(np.array(values, np.uint64)).tolist() == [
        streams.mix(v) for v in values
    ]


@settings(deadline=None, max_examples=100)
@given(words, st.integers(0, 63))
def test_flipping_one_bit_changes_about_half_of_the_others(word: int, bit: int) -> None:
    changed = (streams.mix(word) ^ streams.mix(word ^ (1 << bit))).bit_count()
    assert 8 <= changed <= 56


@settings(deadline=None, max_examples=100)
@given(
    words, st.text("aé ", max_size=3), st.lists(indices, max_size=3), st.lists(indices, max_size=10)
)
def test_keys_are_the_key_of_every_last_index(
    seed: int, purpose: str, first: list[int], last: list[int]
) -> None:
    many = streams.keys(seed, purpose, *first, last=np.array(last, np.int64))
    assert many.tolist() == [streams.key(seed, purpose, *first, i) for i in last]


def test_keys_take_the_users_of_a_cohort_as_they_are() -> None:
    users = np.array([0, 5, 2], np.int32)
    assert streams.keys(1, "negatives", 7, last=users).tolist() == [
        streams.key(1, "negatives", 7, u) for u in (0, 5, 2)
    ]


def test_no_two_streams_of_a_run_share_a_key() -> None:
    names = [
        (seed, purpose, *rest)
        for seed in (0, 1, 2, 42)
        for purpose in ("negatives", "sampling", "split")
        for rest in [
            (),
            *((r,) for r in range(40)),
            *((r, u) for r in range(40) for u in range(40)),
        ]
    ]
    assert len({streams.key(*name) for name in names}) == len(names)


def test_the_order_of_indices_matters() -> None:
    assert streams.key(0, "x", 1, 2) != streams.key(0, "x", 2, 1)
    assert streams.key(0, "x", 0) != streams.key(0, "x")


def test_a_stream_repeats_and_does_not_depend_on_what_others_drew() -> None:
    first = streams.at(3, "split", 1).random(5)
    streams.at(3, "split", 0).random(1_000)
    assert np.array_equal(first, streams.at(3, "split", 1).random(5))


@pytest.mark.parametrize("other", [(4, "split", 1), (3, "Split", 1), (3, "split", 2), (3, "split")])
def test_any_other_name_gives_other_numbers(other: tuple) -> None:
    assert not np.isclose(streams.at(3, "split", 1).random(50), streams.at(*other).random(50)).any()


def test_neighbouring_streams_are_uncorrelated_and_even() -> None:
    draws = np.stack([streams.at(0, "user", u).random(2_000) for u in range(40)])
    correlations = np.corrcoef(draws)[np.triu_indices(40, 1)]
    assert np.abs(correlations).max() < 0.1
    assert draws[:, 0].mean() == pytest.approx(0.5, abs=0.15)
    low_bits = streams.keys(0, "user", last=np.arange(10_000)) & np.uint64(1)
    assert low_bits.mean() == pytest.approx(0.5, abs=0.02)


def test_keys_are_the_same_on_every_machine_and_in_every_version() -> None:
    """Frozen, so that old runs can be repeated."""
    assert streams.key(0, "synthetic") == 14150471459762297225
    assert streams.key(42, "negatives", 3, 17) == 7695309079134678265


@pytest.mark.parametrize("n", [1, 2, 5])
def test_no_users_draw_nothing(n):
    """A node may have no users."""
    assert streams.normal(np.empty(0, np.uint64), n).shape == (0, n)
