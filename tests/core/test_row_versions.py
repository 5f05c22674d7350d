"""Versions of a table are values, whatever memory they use."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.core import row_versions
from coterie.core.row_versions import next_version
from coterie.types import Floats

N = 500


@pytest.fixture(autouse=True)
def _no_table_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_versions, "SMALL", 0)


def address(table: Floats) -> int:
    return int(table.__array_interface__["data"][0])


def test_versions_equal_copies_and_older_ones_never_change() -> None:
    """Every fourth version is referred to on: as a whole, by a slice, or by one column."""
    rng = np.random.default_rng(0)
    table = rng.random((N, 3), np.float32)
    truth = table.copy()
    held = [(table, truth.copy())]
    for t in range(60):
        rows = rng.integers(0, N, 40)  # with repeats
        after = next_version(table, rows)
        truth[rows] = rng.random((40, 3), np.float32)
        after[rows] = truth[rows]
        np.testing.assert_array_equal(after, truth)
        if t % 4 == 0:
            part = (slice(None), slice(5, 9), (slice(None), 1))[t // 4 % 3]
            held.append((after[part], truth[part].copy()))
        table = after
        for view, expected in held:
            np.testing.assert_array_equal(view, expected)


def test_two_versions_after_the_same_one_are_apart() -> None:
    first = np.zeros((N, 2), np.float32)
    second = next_version(first, np.array([1]))
    second[1] = 1
    left = next_version(second, np.array([2]))
    left[2] = 2
    right = next_version(second, np.array([3]))
    right[3] = 3
    assert left[:4, 0].tolist() == [0, 1, 2, 0]
    assert right[:4, 0].tolist() == [0, 1, 0, 3]
    assert second[:4, 0].tolist() == [0, 1, 0, 0]


def test_two_blocks_of_memory_are_enough_where_nobody_refers_to_older_versions() -> None:
    table = np.zeros((N, 2), np.float32)
    seen = set()
    for t in range(20):
        table = next_version(table, np.array([t]))
        table[t] = t
        seen.add(address(table))
    assert len(seen) == 2
    assert table[:20, 0].tolist() == list(range(20))


def test_memory_is_returned_with_the_last_version() -> None:
    table = np.zeros((N, 2), np.float32)
    for t in range(5):
        table = next_version(table, np.array([t]))
    del table
    assert not row_versions._before._entries


def test_a_part_of_a_larger_array_is_copied() -> None:
    whole = np.zeros((N, 4), np.float32)
    after = next_version(whole[:, :2], np.array([0]))
    after[0] = 1
    assert after.base is None
    assert not whole.any()


def test_a_small_table_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_versions, "SMALL", 1 << 24)
    table = np.zeros((N, 2), np.float32)
    assert next_version(table, np.array([0])).base is None
    assert not row_versions._before._entries
