"""Filters: each against numbers computed by hand, the k-core against a slow loop."""

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
    ["a", "a", "a", "b", "b", "c"],
    ["x", "y", "z", "x", "y", "x"],
    [5, 3, 1, 4, 2, 5],
    [1, 2, 3, 4, 5, 6],
)


def pairs_of(data: Interactions) -> set[tuple[object, object]]:
    return set(
        zip(data.user_ids[data.users].tolist(), data.item_ids[data.items].tolist(), strict=True)
    )


def slow_core(pairs: set[Pair], k: int) -> set[Pair]:
    """Drop one user or item at a time until none has fewer than k."""
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
@given(
    st.sets(st.tuples(st.integers(0, 8), st.integers(10, 18)), min_size=1, max_size=45),
    st.integers(1, 5),
)
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
    # user 0, item 0, user 1, item 1 ... user 9
    chain = [(n, n) for n in range(9)] + [(n + 1, n) for n in range(9)]
    ring = [*chain, (9, 9), (0, 9)]
    for pairs, left in ((chain, 0), (ring, 20)):
        users, items = zip(*pairs, strict=True)
        assert in_core(Interactions.from_columns(users, items), 2).sum() == left


@pytest.mark.parametrize(("least", "users", "left"), [(1, "abc", 6), (2, "ab", 5), (3, "a", 3)])
def test_users_with_too_few_interactions_go(least: int, users: str, left: int) -> None:
    data = apply(EXAMPLE, Filters(min_user_interactions=least))
    assert (data.user_ids.tolist(), len(data)) == (list(users), left)


def test_repeated_pairs_count_as_records() -> None:
    """a has three rows with two pairs, b two rows with two, c one row."""
    data = Interactions.from_columns(list("aaabbc"), list("xxyxyx"))
    left = {n: apply(data, Filters(min_user_records=n)).user_ids.tolist() for n in (1, 2, 3)}
    assert left == {1: ["a", "b", "c"], 2: ["a", "b"], 3: ["a"]}
    assert len(apply(data, Filters(min_user_records=3))) == 2
    both = apply(apply(data, Filters(min_user_interactions=2)), Filters(min_user_records=3))
    assert both.user_ids.tolist() == ["a"]  # counts follow their users


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
    assert apply(EXAMPLE, Filters(feedback="explicit")).ratings.tolist() == [
        5.0,
        3.0,
        1.0,
        4.0,
        2.0,
        5.0,
    ]


@pytest.mark.parametrize("filters", [Filters(min_rating=3), Filters(feedback="explicit")])
def test_data_without_ratings_cannot_be_filtered_by_them(filters: Filters) -> None:
    with pytest.raises(ConfigError, match="the data has no ratings; expected a column 'rating'"):
        apply(Interactions.from_columns([1], [2]), filters)


@pytest.mark.parametrize(
    "filters", [Filters(min_rating=6), Filters(min_user_interactions=4), Filters(core=4)]
)
def test_a_filter_that_leaves_nothing_is_refused_with_what_to_lower(filters: Filters) -> None:
    with pytest.raises(
        ConfigError, match=r"no interaction is left after filtering .*Lower min_user_interactions"
    ):
        apply(EXAMPLE, filters)


def test_every_filter_that_took_something_leaves_a_note() -> None:
    data = apply(EXAMPLE, Filters(min_rating=2, min_user_interactions=2, core=2))
    assert data.notes == (
        "5 of 6 interactions kept: rated at least 2",
        "4 of 5 interactions kept: by users with at least 2",
    )
    assert apply(EXAMPLE, Filters(min_user_interactions=1, core=1)).notes == ()


def test_a_threshold_for_ratings_says_what_it_did_also_if_it_took_nothing() -> None:
    data = apply(EXAMPLE, Filters(min_rating=1))
    assert data.notes == ("6 of 6 interactions kept: rated at least 1",)


@settings(deadline=None, max_examples=50)
@given(
    st.sets(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=5, max_size=60),
    st.integers(1, 4),
)
def test_filtering_renumbers_without_changing_the_order(pairs: set[Pair], least: int) -> None:
    users, items = zip(*sorted(pairs), strict=True)
    data = Interactions.from_columns(
        users, items, None, [(7 * u + 3 * i) % 5 for u, i in sorted(pairs)]
    )
    counts = np.bincount(data.users)[data.users]
    if not (counts >= least).any():
        return
    kept = apply(data, Filters(min_user_interactions=least))
    before = [
        row
        for row, n in zip(data.to_frame().to_numpy().tolist(), counts, strict=True)
        if n >= least
    ]
    assert kept.to_frame().to_numpy().tolist() == before
    assert set(kept.users.tolist()) == set(range(kept.n_users))
    assert set(kept.items.tolist()) == set(range(kept.n_items))


# ---- sampling users

CROWD = Interactions.from_columns(
    *zip(*[(u, i) for u in range(300) for i in range(u % 4 + 1)], strict=True)
)


def users_of(data: Interactions, **filters: int) -> set[int]:
    return set(apply(data, Filters(**filters)).user_ids.tolist())


def test_sampled_users_keep_all_their_interactions() -> None:
    data = apply(CROWD, Filters(sample_users=40))
    assert data.n_users == 40
    assert pairs_of(data) == {
        pair for pair in pairs_of(CROWD) if pair[0] in set(data.user_ids.tolist())
    }
    assert data.notes == (
        f"{len(data)} of {len(CROWD)} interactions kept: by 40 of 300 users, "
        "drawn with sample_seed 0",
    )


def test_the_seed_decides_who_is_drawn() -> None:
    assert users_of(CROWD, sample_users=40) == users_of(CROWD, sample_users=40, sample_seed=0)
    assert users_of(CROWD, sample_users=40) != users_of(CROWD, sample_users=40, sample_seed=1)


def test_everybody_is_drawn_equally_often() -> None:
    """400 draws of 60 of 300: 80 each, standard deviation 8; the bound is five of those."""
    drawn = np.zeros(300, int)
    for seed in range(400):
        drawn[list(users_of(CROWD, sample_users=60, sample_seed=seed))] += 1
    assert drawn.sum() == 400 * 60
    assert 40 < drawn.min() <= drawn.max() < 120
    # Neither low indices nor active users are preferred.
    assert abs(drawn[:150].sum() - 12_000) < 400
    assert abs(drawn[3::4].sum() - 6_000) < 350


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 149), st.integers(1, 150), st.integers(0, 2**63 - 1))
def test_more_users_of_a_seed_are_the_same_and_others(few: int, more: int, seed: int) -> None:
    few, more = min(few, more), max(few, more)
    assert users_of(CROWD, sample_users=few, sample_seed=seed) <= users_of(
        CROWD, sample_users=more, sample_seed=seed
    )


def test_users_are_drawn_from_those_that_the_other_filters_leave() -> None:
    active = users_of(CROWD, min_user_interactions=4)
    assert len(active) == 75
    assert users_of(CROWD, min_user_interactions=4, sample_users=75) == active
    assert users_of(CROWD, min_user_interactions=4, sample_users=30) < active
    assert users_of(CROWD, core=3, sample_users=20) < users_of(CROWD, core=3)


def test_another_filter_does_not_reshuffle_who_is_drawn() -> None:
    """Sampling after a filter keeps the order of the random keys."""
    active = users_of(CROWD, min_user_interactions=4)
    both = users_of(CROWD, sample_users=150) & active
    assert 20 < len(both) < 60
    assert users_of(CROWD, min_user_interactions=4, sample_users=len(both)) == both


def test_items_without_a_sampled_user_are_dropped() -> None:
    data = apply(EXAMPLE, Filters(sample_users=1))
    (user,) = data.user_ids.tolist()
    assert set(data.item_ids.tolist()) == {item for who, item in pairs_of(EXAMPLE) if who == user}


def test_the_order_of_rows_does_not_change_who_is_drawn() -> None:
    rows = list(zip(CROWD.users.tolist(), CROWD.items.tolist(), strict=True))[::-1]
    backwards = Interactions.from_columns(*zip(*rows, strict=True))
    assert users_of(backwards, sample_users=40) == users_of(CROWD, sample_users=40)


def test_drawing_everybody_changes_nothing_and_says_nothing() -> None:
    data = apply(CROWD, Filters(sample_users=300))
    assert data.fingerprint() == CROWD.fingerprint()
    assert data.notes == ()


def test_more_users_than_there_are_cannot_be_drawn() -> None:
    with pytest.raises(ConfigError) as caught:
        apply(CROWD, Filters(min_user_interactions=4, sample_users=1_076))
    assert str(caught.value) == (
        "setting 'sample_users' is 1,076, but 75 users are left after the other filters; "
        "expected at most 75. "
        "Lower it with --set sample_users=N, or keep all with sample_users=0."
    )


def test_filters_that_leave_no_users_fail_before_sampling() -> None:
    with pytest.raises(ConfigError, match="no interaction is left after filtering"):
        apply(CROWD, Filters(min_user_interactions=9, sample_users=5))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"core": -1}, "setting 'core' is -1; .*greater than or equal to 0"),
        ({"sample_users": -1}, "setting 'sample_users' is -1; .*greater than or equal to 0"),
        ({"sample_seed": -1}, "setting 'sample_seed' is -1; .*greater than or equal to 0"),
        ({"min_ratings": 3}, r"unknown setting 'min_ratings'\. Did you mean 'min_rating'\?"),
        (
            {"duplicates": "first"},
            "setting 'duplicates' is 'first'; .*'newest', 'oldest' or 'error'",
        ),
        ({"min_rating": float("nan")}, "setting 'min_rating' is nan; .*finite"),
    ],
)
def test_an_impossible_filter_is_named(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Filters.of(values)
