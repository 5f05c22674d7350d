"""Defences against hostile clients: bounds by hand, properties, and honest runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_federation import histories, play_locally, sha256

from coterie.errors import ConfigError
from coterie.federated.robust import bounds, groups, trimming
from coterie.types import SCALE, Updates

DEFENCES = ["bounded", "trimmed", "groups"]


def updates_of(*clients: dict[int, list[int]], samples: list[int] | None = None) -> Updates:
    """Updates of clients that send rows for items."""
    n = len(clients)
    counts = [len(one) for one in clients]
    none = np.zeros((n, 0), np.int32)
    width = max((len(row) for one in clients for row in one.values()), default=1)
    rows = [row for one in clients for row in one.values()]
    return Updates(
        users=np.arange(n, dtype=np.int32),
        samples=np.array(samples or [1] * n, np.int64),
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        items=np.array([item for one in clients for item in one], np.int32),
        item_rows=np.array(rows, np.int32).reshape(len(rows), width),
        user_rows=none,
        dense=none,
    )


# Bounds


def test_a_long_row_is_shortened_to_two_medians():
    """Four honest clients send rows of norm 5; the fifth sends one of norm 5,000."""
    sent = updates_of(*[{0: [3, 4]}] * 4, {0: [3000, 4000]})
    rows = bounds.bounded(sent).item_rows
    assert rows[:4].tolist() == [[3, 4]] * 4
    assert rows[4].tolist() == [6, 8]


def test_tiny_rows_do_not_count():
    """FCF's clients send a row for every item: one of norm 50 among a hundred of norm 1."""
    honest = {0: [30, 40]} | {item: [1, 0] for item in range(1, 101)}
    rows = bounds.shortened_rows(updates_of(*[honest] * 5))
    assert rows[0].tolist() == [30, 40]


def test_many_rows_are_shortened_together():
    honest = {0: [3, 4], 1: [4, 3]}
    hostile = {item: [3, 4] for item in range(100)}
    rows = bounds.shortened_rows(updates_of(*[honest] * 4, hostile))
    assert rows[:8].tolist() == [[3, 4], [4, 3]] * 4
    whole = np.sqrt((rows[8:].astype(float) ** 2).sum())
    assert whole <= 3 * np.sqrt(50)


def test_a_row_of_few_clients_moves_less():
    rows = np.array([[9], [9], [9], [9], [9], [9]], np.int32)
    items = np.array([0, 0, 0, 1, 1, 2], np.int32)
    assert bounds.with_few_senders(items, rows).ravel().tolist() == [9, 9, 9, 6, 6, 3]


def test_samples_are_capped_at_four_medians():
    assert bounds.capped_samples(np.array([1, 10, 10, 10, 1 << 23])).tolist() == [1, 10, 10, 10, 40]


@settings(deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n_hostile=st.integers(1, 4),
    amplitude=st.integers(1, 8 * SCALE - 1),
)
def test_less_than_half_of_the_clients_cannot_move_a_row_far(seed, n_hostile, amplitude):
    """Ten honest clients with rows of norm up to 100."""
    rng = np.random.default_rng(seed)
    honest = [{item: rng.integers(-40, 40, 4).tolist() for item in range(6)} for _ in range(10)]
    hostile = [{item: [amplitude] * 4 for item in range(6)} for _ in range(n_hostile)]
    rows = bounds.bounded(updates_of(*honest, *hostile)).item_rows
    norms = np.sqrt((rows.astype(float) ** 2).sum(axis=1))
    assert norms[60:].max(initial=0) <= bounds.ROWS * 80
    assert (np.abs(rows[:60]) <= 40).all()


def test_updates_without_rows_are_as_they_were():
    """FedEASE's clients send histories: there is nothing to shorten."""
    sent = updates_of({}, {}, {}, {}, {})
    assert len(bounds.bounded(sent).item_rows) == 0


# Trimming


def test_extremes_get_the_values_of_their_neighbours():
    items = np.array([0, 0, 0, 0, 0, 1, 1], np.int32)
    rows = np.array([[5], [1], [900], [-900], [2], [7], [8]], np.int32)
    assert trimming.trimmed_rows(items, rows).ravel().tolist() == [5, 1, 5, 1, 2, 0, 0]


def test_the_sum_over_groups_is_that_of_the_middle_ones():
    sums = np.array([[1], [2], [3], [4], [1000]])
    assert trimming.trimmed_sum(sums, 1).tolist() == [15]


def test_groups_cover_a_cohort_once():
    found = groups.assign(23, seed=1, t=2)
    assert sorted(np.concatenate(found).tolist()) == list(range(23))
    assert len(found) == 10


# Runs


@pytest.mark.parametrize("defence", DEFENCES)
@pytest.mark.parametrize("name", ["fedavg", "fedfast", "fcf", "pfpl", "fedals", "fedease"])
def test_bits_do_not_depend_on_nodes(name, defence):
    training = histories(4, 30, 15)
    given_: dict[str, Any] = {"robust": defence, "participation": 0.5}
    one, _ = play_locally(name, training, **given_)
    three, _ = play_locally(name, training, nodes=3, **given_)
    assert sha256(one[-1]) == sha256(three[-1])


def test_equal_updates_are_not_changed():
    sent = updates_of(*[{0: [3, 4], 1: [4, 3]}] * 6)
    for defend in (bounds.bounded, trimming.trimmed):
        assert (defend(sent).item_rows == sent.item_rows).all()


def test_a_round_of_few_clients_is_refused():
    with pytest.raises(ConfigError, match="a round selects 2 clients; expected at least 5"):
        play_locally("fedavg", histories(4, 30, 15), robust="bounded", participation=0.05)


@pytest.mark.parametrize("other", [{"secure_aggregation": "secagg"}, {"epsilon": 1.0}])
def test_a_defence_needs_updates_in_the_clear(other):
    with pytest.raises(ConfigError, match="setting 'robust' is 'bounded'"):
        play_locally("fcf", histories(4, 30, 15), robust="bounded", **other)
