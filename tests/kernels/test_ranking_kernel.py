"""The ranking kernel and its NumPy fallback equal sorted lists: ties, short rows, named columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_data import locked

from coterie import kernels
from coterie.kernels.fallback import ranking as plain

FAMILIES = pytest.mark.parametrize(
    "family", [kernels.load("ranking"), plain], ids=["compiled", "plain"]
)


@dataclass(frozen=True)
class Case:
    scores: np.ndarray  # (rows, columns)
    names: np.ndarray  # (rows, columns), or no rows
    excluded: list[list[int]]
    relevant: list[list[int]]
    k: int

    def name(self, row: int, column: int) -> int:
        return int(self.names[row, column]) if len(self.names) else column


@dataclass(frozen=True)
class Found:
    above: np.ndarray
    tied: np.ndarray
    top: np.ndarray
    sound: np.ndarray


def ragged(lists: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([0, *map(len, lists)]).astype(np.int64)
    return locked(offsets), locked(np.array([c for columns in lists for c in columns], np.int32))


def ranked(family, case: Case, cuts: tuple[int, ...] = ()) -> Found:
    """Rank with read-only inputs, and outputs that hold arbitrary values before."""
    n = len(case.scores)
    places = sum(map(len, case.relevant))
    found = Found(
        np.full(places, -7, np.int64),
        np.full(places, -7, np.int64),
        np.full((n, case.k), -7, np.int32),
        np.ones(n, bool),
    )
    for first, last in zip((0, *cuts), (*cuts, n), strict=True):
        family.rank(
            locked(case.scores),
            locked(case.names),
            *ragged(case.excluded),
            *ragged(case.relevant),
            first,
            last,
            found.above,
            found.tied,
            found.top,
            found.sound,
        )
    return found


def by_sorting(case: Case) -> Found:
    """One row after the other, in plain Python."""
    above = []
    tied = []
    top = []
    for r, scores in enumerate(case.scores.tolist()):
        free = [c for c in range(len(scores)) if c not in case.excluded[r]]
        for c in case.relevant[r]:
            above.append(sum(scores[other] > scores[c] for other in free))
            tied.append(sum(scores[other] == scores[c] for other in free))
        best = sorted(free, key=lambda c, r=r, scores=scores: (-scores[c], case.name(r, c)))
        top.append(([case.name(r, c) for c in best] + [-1] * case.k)[: case.k])
    sound = np.ones(len(top), bool)
    return Found(
        np.array(above, np.int64), np.array(tied, np.int64), np.array(top, np.int32), sound
    )


def assert_same(one: Found, other: Found) -> None:
    np.testing.assert_array_equal(one.above, other.above)
    np.testing.assert_array_equal(one.tied, other.tied)
    np.testing.assert_array_equal(one.top, other.top)
    np.testing.assert_array_equal(one.sound, other.sound)


def random_case(seed: int, n: int, width: int, k: int, levels: int, named: bool) -> Case:
    """Random scores; few levels give many ties.

    In every row some columns are excluded and some relevant; in some rows all are excluded.
    """
    rng = np.random.default_rng(seed)
    scores = rng.integers(-levels, levels + 1, (n, width)).astype(np.float32)
    if levels > 40:
        scores = rng.normal(0, 1, (n, width)).astype(np.float32)
    state = rng.choice(3, (n, width), p=[0.3, 0.2, 0.5])
    state[rng.random(n) < 0.1] = 0
    names = (
        np.stack([rng.permutation(3 * width)[:width] for _ in range(n)])
        if named
        else np.empty((0, 0))
    )
    return Case(
        scores,
        names.astype(np.int32),
        [np.flatnonzero(row == 0).tolist() for row in state],
        [np.flatnonzero(row == 1).tolist() for row in state],
        k,
    )


@FAMILIES
@settings(deadline=None, max_examples=250)
@given(
    st.integers(0, 2**32),
    st.integers(1, 5),
    st.integers(1, 100),
    st.integers(1, 120),
    st.sampled_from([0, 1, 5, 50]),
    st.booleans(),
)
def test_equals_sorted_lists(family, seed, n, width, k, levels, named):
    case = random_case(seed, n, width, k, levels, named)
    assert_same(ranked(family, case), by_sorting(case))


@FAMILIES
def test_wide_rows_and_long_lists(family):
    """Many strides, and a heap that is many levels deep."""
    for named, levels in ((False, 50), (True, 50), (True, 5)):
        case = random_case(1, 2, 1_000, 300, levels, named)
        assert_same(ranked(family, case), by_sorting(case))


@FAMILIES
@pytest.mark.parametrize("order", [1, -1], ids=["rising", "falling"])
def test_sorted_rows(family, order):
    """Every column enters the heap, or none after the first ones."""
    case = Case(
        np.arange(200, dtype=np.float32)[None, ::order].copy(),
        np.empty((0, 0), np.int32),
        [[7]],
        [[0, 199]],
        9,
    )
    assert_same(ranked(family, case), by_sorting(case))


@FAMILIES
@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 8), max_size=3))
def test_rows_may_be_ranked_in_pieces(family, seed, cuts):
    case = random_case(seed, 8, 40, 5, 3, named=False)
    assert_same(ranked(family, case, tuple(sorted(cuts))), ranked(family, case))


@FAMILIES
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32), column=st.integers(0, 44))
def test_a_non_finite_score_affects_only_its_row(family, bad, seed, column):
    """In any column, also in an excluded one."""
    case = random_case(seed, 3, 45, 4, 3, named=True)
    good = ranked(family, case)
    scores = case.scores.copy()
    scores[1, column] = bad
    found = ranked(family, Case(scores, case.names, case.excluded, case.relevant, case.k))
    assert found.sound.tolist() == [True, False, True]
    np.testing.assert_array_equal(found.top[[0, 2]], good.top[[0, 2]])


@FAMILIES
def test_the_largest_floats_are_finite(family):
    top = np.finfo(np.float32).max
    case = Case(
        np.array([[top, -top, 0.0, -0.0]], np.float32),
        np.empty((0, 0), np.int32),
        [[]],
        [[1, 3]],
        4,
    )
    found = ranked(family, case)
    assert found.sound.all()
    assert (found.above.tolist(), found.tied.tolist(), found.top.tolist()) == (
        [3, 1],
        [1, 2],
        [[0, 2, 3, 1]],
    )


@FAMILIES
def test_by_hand(family):
    """Scores 10 20 20 30 5 with 30 excluded: both 20s are above 10; they tie and go by name."""
    scores = np.array([[10, 20, 20, 30, 5]], np.float32)
    case = Case(scores, np.array([[4, 9, 2, 1, 0]], np.int32), [[3]], [[0, 1]], 6)
    found = ranked(family, case)
    assert (found.above.tolist(), found.tied.tolist()) == ([2, 0], [1, 2])
    assert found.top.tolist() == [[2, 9, 4, 0, -1, -1]]
