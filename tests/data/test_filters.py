"""Filters: each against numbers worked out by hand, the k-core against a slow loop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.data.filters import Filters, apply, in_core
from coterie.data.interactions import Interactions
from coterie.errors import ConfigError

Pair = tuple[int, int]

EXAMPLE = Interactions.from_columns(
    ["a", "a", "a", "b", "b", "c"], ["x", "y", "z", "x", "y", "x"], [5, 3, 1, 4, 2, 5], [1, 2, 3, 4, 5, 6]
)


def pairs_of(data: Interactions) -> set[tuple[object, object]]:
    return set(zip(data.user_ids[data.users].tolist(), data.item_ids[data.items].tolist(), strict=True))


def slow_core(pairs: set[Pair], k: int) -> set[Pair]:
    """Take away one user or item at a time until none has fewer than k."""
    left = set(pairs)
    while True:
        for side in (0, 1):
            few = {p[side] for p in left if sum(q[side] == p[side] for q in left) < k}
            if few:
                left = {p for p in left if p[side] != min(few)}
                break
        else:
            return left


@settings(deadline=None, max_examples=150)
@given(st.sets(st.tuples(st.integers(0, 8), st.integers(10, 18)), min_size=1, max_size=45), st.integers(1, 5))
def test_the_core_is_that_of_a_slow_loop(pairs: set[Pair], k: int) -> None:
    users, items = zip(*pairs, strict=True)
    data = Interactions.from_columns(users, items)
    wanted = slow_core(pairs, k)
    assert pairs_of(data.select(in_core(data, k))) == wanted
    if wanted:
        assert pairs_of(apply(data, Filters(core=k))) == wanted
    else:
        with pytest.raises(ConfigError, match="no interaction is left"):
            apply(data, Filters(core=k))


def test_a_chain_unravels_from_its_ends_and_a_ring_stays() -> None:
    chain = [(n, n) for n in range(9)] + [(n + 1, n) for n in range(9)]  # user 0, item 0, user 1, item 1 ... user 9
    ring = [*chain, (9, 9), (0, 9)]
    for pairs, left in ((chain, 0), (ring, 20)):
        users, items = zip(*pairs, strict=True)
        assert in_core(Interactions.from_columns(users, items), 2).sum() == left


@pytest.mark.parametrize(("least", "users", "left"), [(1, "abc", 6), (2, "ab", 5), (3, "a", 3)])
def test_users_with_too_few_interactions_go(least: int, users: str, left: int) -> None:
    data = apply(EXAMPLE, Filters(min_user_interactions=least))
    assert (data.user_ids.tolist(), len(data)) == (list(users), left)


def test_users_are_counted_once_and_items_not_at_all() -> None:
    data = apply(EXAMPLE, Filters(min_user_interactions=3))
    assert data.item_ids.tolist() == ["x", "y", "z"]  # each is left with one user


@pytest.mark.parametrize(("least", "left"), [(1, 6), (3, 4), (3.5, 3), (5, 2)])
def test_ratings_below_the_threshold_go(least: float, left: int) -> None:
    data = apply(EXAMPLE, Filters(min_rating=least, feedback="explicit"))
    assert len(data) == left
    assert data.ratings.min() >= least


def test_users_are_counted_after_the_ratings_are_filtered() -> None:
    data = apply(EXAMPLE, Filters(min_rating=3, min_user_interactions=2))
    assert pairs_of(data) == {("a", "x"), ("a", "y")}


def test_implicit_feedback_forgets_ratings_and_explicit_keeps_them() -> None:
    assert apply(EXAMPLE, Filters()).ratings is None
    assert apply(EXAMPLE, Filters(feedback="explicit")).ratings.tolist() == [5.0, 3.0, 1.0, 4.0, 2.0, 5.0]


@pytest.mark.parametrize("filters", [Filters(min_rating=3), Filters(feedback="explicit")])
def test_data_without_ratings_cannot_be_filtered_by_them(filters: Filters) -> None:
    with pytest.raises(ConfigError, match="the data has no ratings; expected a column 'rating'"):
        apply(Interactions.from_columns([1], [2]), filters)


@pytest.mark.parametrize("filters", [Filters(min_rating=6), Filters(min_user_interactions=4), Filters(core=4)])
def test_a_filter_that_leaves_nothing_is_refused_with_what_to_lower(filters: Filters) -> None:
    with pytest.raises(ConfigError, match=r"no interaction is left after filtering .*Lower min_user_interactions"):
        apply(EXAMPLE, filters)


def test_every_filter_that_took_something_leaves_a_note() -> None:
    data = apply(EXAMPLE, Filters(min_rating=2, min_user_interactions=2, core=2))
    assert data.notes == (
        "5 of 6 interactions kept: rated at least 2",
        "4 of 5 interactions kept: by users with at least 2",
    )
    assert apply(EXAMPLE, Filters(min_rating=1, min_user_interactions=1, core=1)).notes == ()


@settings(deadline=None, max_examples=50)
@given(st.sets(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=5, max_size=60), st.integers(1, 4))
def test_filtering_renumbers_without_changing_the_order(pairs: set[Pair], least: int) -> None:
    users, items = zip(*sorted(pairs), strict=True)
    data = Interactions.from_columns(users, items, None, [(7 * u + 3 * i) % 5 for u, i in sorted(pairs)])
    counts = np.bincount(data.users)[data.users]
    if not (counts >= least).any():
        return
    kept = apply(data, Filters(min_user_interactions=least))
    before = [row for row, n in zip(data.to_frame().to_numpy().tolist(), counts, strict=True) if n >= least]
    assert kept.to_frame().to_numpy().tolist() == before
    assert set(kept.users.tolist()) == set(range(kept.n_users))
    assert set(kept.items.tolist()) == set(range(kept.n_items))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"core": -1}, "setting 'core' is -1; .*greater than or equal to 0"),
        ({"min_ratings": 3}, r"unknown setting 'min_ratings'\. Did you mean 'min_rating'\?"),
        ({"duplicates": "first"}, "setting 'duplicates' is 'first'; .*'newest', 'oldest' or 'error'"),
        ({"min_rating": float("nan")}, "setting 'min_rating' is nan; .*finite"),
    ],
)
def test_an_impossible_filter_is_named(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Filters.of(values)
