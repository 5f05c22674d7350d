"""Draws of two towers: the kernels equal the fallback, whose rules `core.sampling` tests."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_federation import histories

from coterie.core import streams
from coterie.kernels import requests
from coterie.kernels.fallback import requests as slow
from coterie.types import Rows


def drawn_by(draw, *arguments: object, n: int, width: int) -> np.ndarray:
    drawn = np.full((n, width), 99, np.int32)
    draw(*arguments, drawn)
    return drawn


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 12))
def test_drawn_items_equal_the_fallback(seed, width):
    """Users without a history and with every item are among them, in any order."""
    rows = histories(seed).positives
    users = np.random.default_rng(seed).permutation(12)
    keys = streams.keys(seed, "test", last=users)
    arguments = (users, rows.offsets, rows.items, keys)
    found = drawn_by(requests.draw_items, *arguments, n=12, width=width)
    np.testing.assert_array_equal(found, drawn_by(slow.draw_items, *arguments, n=12, width=width))
    for user, items in zip(users.tolist(), found.tolist(), strict=True):
        present = [item for item in items if item >= 0]
        assert len(set(present)) == len(present) == min(width, rows.counts[user])
        assert set(present) <= set(rows.of(user).tolist())


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 18))
def test_unseen_items_equal_the_fallback(seed, width):
    """Some users have fewer unseen items than are drawn, and one has none."""
    training = histories(seed)
    rows = training.excluded
    users = np.random.default_rng(seed).permutation(12)
    keys = streams.keys(seed, "test", last=users)
    arguments = (users, rows.offsets, rows.items, training.n_items, keys)
    found = drawn_by(requests.draw_unseen, *arguments, n=12, width=width)
    np.testing.assert_array_equal(found, drawn_by(slow.draw_unseen, *arguments, n=12, width=width))
    for user, items in zip(users.tolist(), found.tolist(), strict=True):
        present = [item for item in items if item >= 0]
        assert len(set(present)) == len(present)
        assert len(present) == min(width, training.n_items - rows.counts[user])
        assert not set(present) & set(rows.of(user).tolist())


@pytest.mark.parametrize("draw", [requests, slow])
def test_sorted_rows_by_hand(draw):
    items = np.array([[7, -1, 3, 9], [-1, 2, -1, 0]], np.int32)
    clicked = np.zeros((2, 4), bool)
    draw.sort(items, 1, clicked)
    assert items.tolist() == [[-1, 3, 7, 9], [-1, -1, 0, 2]]
    assert clicked.tolist() == [[False, False, True, False], [False] * 4]


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_sorted_rows_equal_the_fallback(seed, n_clicks):
    rng = np.random.default_rng(seed)
    items = np.array([rng.permutation(9)[:5] - 1 for _ in range(6)], np.int32)
    results = []
    for draw in (requests, slow):
        copy = items.copy()
        clicked = np.zeros(items.shape, bool)
        draw.sort(copy, n_clicks, clicked)
        results.append((copy.tolist(), clicked.tolist()))
    assert results[0] == results[1]


@pytest.mark.parametrize("draw", [requests, slow])
def test_no_users_and_no_items(draw):
    nothing = Rows(np.zeros(3, np.int64), np.empty(0, np.int32))
    users = np.arange(2)
    keys = streams.keys(0, "test", last=users)
    found = drawn_by(draw.draw_items, users, nothing.offsets, nothing.items, keys, n=2, width=3)
    assert (found == -1).all()
    none = np.empty(0, np.int64)
    arguments = (none, nothing.offsets, nothing.items, 5, keys[:0])
    assert drawn_by(draw.draw_unseen, *arguments, n=0, width=3).shape == (0, 3)
