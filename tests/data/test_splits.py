"""Splits: held-out parts by hand, and properties that every rule must have."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coterie
from coterie.core import streams
from coterie.data.interactions import Interactions
from coterie.data.splits import (
    Draw,
    Rule,
    Split,
    from_parts,
    from_test_pairs,
    future_share,
    split,
    with_validation,
)
from coterie.data.synthetic import Synthetic, generate
from coterie.errors import DataError

PER_USER = ("leave-one-out", "temporal", "random")

Row = tuple[int, int, int]


def from_rows(rows: list[Row], timed: bool = True) -> Interactions:
    users, items, times = zip(*rows, strict=True)
    return Interactions.from_columns(
        users, items, [float(i) for i in items], times if timed else None
    )


def pairs_of(part: Interactions | None) -> set[tuple[int, int]]:
    if part is None:
        return set()
    return set(
        zip(part.user_ids[part.users].tolist(), part.item_ids[part.items].tolist(), strict=True)
    )


def by_user(part: Interactions) -> dict[int, list[int]]:
    """Items of every user, in the part's order."""
    items = defaultdict(list)
    for user, item in zip(
        part.user_ids[part.users].tolist(), part.item_ids[part.items].tolist(), strict=True
    ):
        items[user].append(item)
    return dict(items)


histories = st.lists(
    st.tuples(st.integers(1, 6), st.integers(1, 12), st.integers(0, 9)),
    min_size=2,
    max_size=45,
    unique_by=lambda row: row[:2],
)

# By hand: user 1 has four interactions, user 2 three, user 3 one
EXAMPLE = from_rows(
    [
        (1, 10, 400),
        (1, 20, 100),
        (1, 30, 300),
        (1, 40, 200),
        (2, 10, 50),
        (2, 50, 70),
        (2, 30, 60),
        (3, 60, 10),
    ]
)


# Leave-one-out


def test_leave_one_out_holds_out_the_newest_of_everybody() -> None:
    parts = split(EXAMPLE, "leave-one-out", 0, seed=0)
    assert pairs_of(parts.test) == {(1, 10), (2, 50)}
    assert by_user(parts.train) == {1: [20, 40, 30], 2: [10, 30], 3: [60]}
    assert parts.validation is None
    assert parts.rule == "leave-one-out"


def test_the_validation_part_of_leave_one_out_is_the_second_newest() -> None:
    parts = split(EXAMPLE, "leave-one-out", 0, seed=0, validation=True)
    assert pairs_of(parts.test) == {(1, 10), (2, 50)}
    assert pairs_of(parts.validation) == {(1, 30), (2, 30)}
    assert by_user(parts.train) == {1: [20, 40], 2: [10], 3: [60]}


def test_a_user_with_a_single_item_is_trained_on_and_not_tested() -> None:
    parts = split(EXAMPLE, "leave-one-out", 0, seed=0, validation=True)
    assert by_user(parts.train)[3] == [60]
    assert 3 not in by_user(parts.test)
    assert 3 not in by_user(parts.validation)


def test_equal_times_are_parted_by_the_hash_of_the_pair() -> None:
    rows = [(user, item, 7) for user in range(40) for item in range(5)]
    parts = split(from_rows(rows), "leave-one-out", 0, seed=0)
    wanted = {(u, max(range(5), key=lambda i: streams.mix(u << 32 | i))) for u in range(40)}
    assert pairs_of(parts.test) == wanted
    assert set(np.bincount(parts.test.items, minlength=5).astype(bool)) == {True}, (
        "no item is favoured"
    )


def test_times_decide_whatever_the_seed() -> None:
    assert pairs_of(split(EXAMPLE, "leave-one-out", 0, seed=1).test) == {(1, 10), (2, 50)}


# Temporal


@pytest.mark.parametrize(
    ("fraction", "test"),
    [
        (0.25, {(1, 10)}),
        (0.34, {(1, 10), (2, 50)}),
        (0.5, {(1, 10), (1, 30), (2, 50)}),
        (0.2, set()),
    ],
)
def test_temporal_holds_out_the_newest_int_of_the_fraction(fraction: float, test: set) -> None:
    if test:
        assert pairs_of(split(EXAMPLE, "temporal", fraction, seed=0).test) == test
    else:
        with pytest.raises(
            DataError,
            match=r"'temporal' holds out nothing for the test part; expected users with more",
        ):
            split(EXAMPLE, "temporal", fraction, seed=0)


def test_even_the_whole_fraction_leaves_one_to_train_on() -> None:
    parts = split(EXAMPLE, "temporal", 1.0, seed=0)
    assert by_user(parts.train) == {1: [20], 2: [10], 3: [60]}


def test_the_validation_part_is_the_fraction_of_what_is_left() -> None:
    rows = [(1, item, item) for item in range(20)]
    parts = split(from_rows(rows), "temporal", 0.2, seed=0, validation=True)
    assert by_user(parts.test) == {1: [16, 17, 18, 19]}  # int(0.2 * 20)
    assert by_user(parts.validation) == {1: [13, 14, 15]}  # int(0.2 * 16)
    assert by_user(parts.train) == {1: list(range(13))}


# Global time


def test_global_time_holds_out_what_is_newer_than_one_moment() -> None:
    rows = [
        (1, 1, 10),
        (1, 2, 20),
        (2, 1, 30),
        (2, 2, 40),
        (1, 3, 50),
        (2, 3, 60),
        (3, 1, 70),
        (1, 4, 80),
    ]
    parts = split(from_rows(rows), "global-time", 0.5, seed=0)
    assert pairs_of(parts.train) == {(1, 1), (1, 2), (2, 1), (2, 2)}
    assert pairs_of(parts.test) == {(1, 3), (2, 3), (1, 4)}  # user 3 came after the moment
    assert parts.train.n_users == 3


def test_global_time_leaks_nothing_of_the_future() -> None:
    rng = np.random.default_rng(0)
    rows = [
        (int(u), int(i), int(t))
        for u, i, t in zip(*rng.integers(0, 50, (2, 800)), rng.permutation(800), strict=True)
    ]
    data = from_rows(rows)
    parts = split(data, "global-time", 0.3, seed=0, validation=True)
    assert parts.train.times.max() < parts.validation.times.min()
    assert parts.validation.times.max() < parts.test.times.min()
    assert future_share(parts) == 0
    assert len(parts.test) / len(data) == pytest.approx(0.3, abs=0.02)


def test_global_time_needs_times() -> None:
    with pytest.raises(
        DataError,
        match=r"'global-time' needs times; the data has none\. Use random or leave-one-out\.",
    ):
        split(from_rows([(1, 1, 0), (1, 2, 0)], timed=False), "global-time", 0.5, seed=0)


def test_one_moment_for_all_cannot_be_cut() -> None:
    with pytest.raises(DataError, match="holds out nothing"):
        split(from_rows([(1, 1, 5), (1, 2, 5), (2, 1, 5)]), "global-time", 0.5, seed=0)


# Random, and data without times


@pytest.mark.parametrize(
    ("rule", "timed"), [("random", True), ("random", False), ("leave-one-out", False)]
)
def test_random_hold_out_follows_the_seed_and_favours_no_place(rule, timed: bool) -> None:
    data = from_rows([(user, item, item) for user in range(400) for item in range(10)], timed)
    first, again, other = (split(data, rule, 0.1, seed).test for seed in (0, 0, 1))
    assert pairs_of(first) == pairs_of(again)
    assert pairs_of(first) != pairs_of(other)
    # One of ten for each of 400 users: 40 each, standard deviation 6.
    held = np.bincount(first.items, minlength=10)
    assert held.sum() == 400
    assert 15 < held.min() <= held.max() < 70


def test_without_times_the_temporal_rule_holds_out_as_many_at_random() -> None:
    data = from_rows([(user, item, 0) for user in range(50) for item in range(10)], timed=False)
    parts = split(data, "temporal", 0.25, seed=3)
    assert set(np.bincount(parts.test.users)) == {2}
    assert parts.test.times is None
    assert pairs_of(parts.test) != pairs_of(split(data, "temporal", 0.25, seed=4).test)


def test_test_and_validation_are_drawn_apart() -> None:
    """From a single stream, the validation item would always be next to the test item."""
    data = from_rows([(user, item, 0) for user in range(300) for item in range(20)], timed=False)
    parts = split(data, "leave-one-out", 0, seed=0, validation=True)
    gaps = parts.validation.items.astype(int) - parts.test.items.astype(int)
    assert np.unique(gaps % 20, return_counts=True)[1].max() < 40


# Every rule


def expected_counts(n: int, rule: str, fraction: float) -> int:
    return min(1 if rule == "leave-one-out" else int(fraction * n), n - 1)


@settings(deadline=None, max_examples=200)
@given(
    rows=histories,
    rule=st.sampled_from(PER_USER),
    fraction=st.sampled_from([0.1, 0.2, 0.29, 0.5, 0.7, 1.0]),
    timed=st.booleans(),
    seed=st.integers(0, 3),
    validation=st.booleans(),
)
def test_parts_are_disjoint_whole_and_of_the_stated_size(
    rows, rule, fraction, timed, seed, validation
) -> None:
    data = from_rows(rows, timed)
    counts = {user: len(items) for user, items in by_user(data).items()}
    wanted = {user: expected_counts(n, rule, fraction) for user, n in counts.items()}
    if not any(wanted.values()):
        with pytest.raises(DataError, match="holds out nothing"):
            split(data, rule, fraction, seed, validation)
        return
    if validation and not any(
        expected_counts(n - wanted[u], rule, fraction) for u, n in counts.items()
    ):
        return  # nothing to validate on: a test of its own
    parts = split(data, rule, fraction, seed, validation)
    train = pairs_of(parts.train)
    test = pairs_of(parts.test)
    held = pairs_of(parts.validation)
    assert train | test | held == pairs_of(data)
    assert len(train) + len(test) + len(held) == len(data)
    assert {u: len(items) for u, items in by_user(parts.test).items()} == {
        u: n for u, n in wanted.items() if n
    }
    assert set(by_user(parts.train)) == set(counts), "everybody keeps something to train on"
    if validation:
        rest = {u: expected_counts(counts[u] - n, rule, fraction) for u, n in wanted.items()}
        assert {u: len(items) for u, items in by_user(parts.validation).items()} == {
            u: n for u, n in rest.items() if n
        }
    if timed and rule != "random":
        assert_newest_held_out(parts)


def assert_newest_held_out(parts: Split) -> None:
    for user in np.unique(parts.test.users):
        newest = parts.train.times[parts.train.users == user].max()
        if parts.validation is not None and (parts.validation.users == user).any():
            assert newest <= parts.validation.times[parts.validation.users == user].min()
            newest = parts.validation.times[parts.validation.users == user].max()
        assert newest <= parts.test.times[parts.test.users == user].min()


@settings(deadline=None, max_examples=100)
@given(histories, st.sampled_from([0.2, 0.5, 0.8]))
def test_global_time_loses_only_the_test_interactions_of_new_users(rows, fraction: float) -> None:
    data = from_rows(rows)
    try:
        parts = split(data, "global-time", fraction, seed=0)
    except DataError:
        return
    train = pairs_of(parts.train)
    test = pairs_of(parts.test)
    known = set(by_user(parts.train))
    assert not train & test
    assert {user for user, _ in test} <= known
    assert {user for user, _ in pairs_of(data) - train - test}.isdisjoint(known)
    assert parts.train.times.max() < parts.test.times.min()


@settings(deadline=None, max_examples=100)
@given(
    histories,
    st.randoms(use_true_random=False),
    st.sampled_from([*PER_USER, "global-time"]),
    st.booleans(),
)
def test_a_split_does_not_depend_on_the_order_of_rows(rows, random, rule, timed: bool) -> None:
    shuffled = rows.copy()
    random.shuffle(shuffled)
    found = []
    for order in (rows, shuffled):
        try:
            found.append(pairs_of(split(from_rows(order, timed), rule, 0.5, seed=1).test))
        except DataError as error:
            found.append(str(error))
    assert found[0] == found[1]


@pytest.mark.parametrize("rule", [*PER_USER, "global-time"])
def test_parts_keep_all_users_and_items_and_carry_ratings_and_times(
    rule, people: Interactions
) -> None:
    parts = split(people, rule, 0.05 if rule == "global-time" else 0.2, seed=0, validation=True)
    for part in (parts.train, parts.test, parts.validation):
        assert (part.n_users, part.n_items) == (people.n_users, people.n_items)
        assert len(part.times) == len(part)
        assert (np.diff(part.users) >= 0).all()
    rated = split(EXAMPLE, "temporal", 0.5, seed=0)
    assert rated.test.ratings.tolist() == rated.test.item_ids[rated.test.items].tolist()


@pytest.mark.parametrize("rule", PER_USER)
def test_a_split_that_leaves_nothing_to_validate_on_says_so(rule) -> None:
    data = from_rows([(user, item, item) for user in range(5) for item in range(2)])
    with pytest.raises(DataError, match="validation"):
        split(data, rule, 0.5, seed=0, validation=True)


# The parts of a split


def test_training_sees_the_training_part_alone() -> None:
    parts = split(EXAMPLE, "leave-one-out", 0, seed=0, validation=True)
    training = parts.training()
    assert [training.positives.of(u).tolist() for u in range(3)] == [[1, 3], [0], [5]]
    assert training.excluded is training.positives
    assert training.ratings.tolist() == [20.0, 40.0, 10.0, 60.0]
    assert (training.n_users, training.n_items) == (3, 6)


def test_ratings_stay_with_their_items() -> None:
    parts = split(EXAMPLE, "leave-one-out", 0, seed=0)
    training = parts.training()
    # The rating of an item is its index.
    rated = parts.train.item_ids[training.positives.items].astype(float)
    assert training.ratings.tolist() == rated.tolist()


def test_the_published_leak_excludes_what_is_held_out() -> None:
    parts = split(EXAMPLE, "leave-one-out", 0, seed=0, validation=True)
    leaky = parts.training(as_published=True)
    assert [leaky.excluded.of(u).tolist() for u in range(3)] == [[0, 1, 2, 3], [0, 2, 4], [5]]
    assert [leaky.positives.of(u).tolist() for u in range(3)] == [[1, 3], [0], [5]]


def test_seen_is_training_and_validation_and_everything_is_all() -> None:
    parts = split(EXAMPLE, "leave-one-out", 0, seed=0, validation=True)
    assert [parts.seen().of(u).tolist() for u in range(3)] == [[1, 2, 3], [0, 2], [5]]
    assert [parts.everything().of(u).tolist() for u in range(3)] == [[0, 1, 2, 3], [0, 2, 4], [5]]


def test_tuning_gets_the_validation_part_and_not_a_trace_of_the_test_part() -> None:
    parts = split(EXAMPLE, "leave-one-out", 0, seed=0, validation=True)
    tuning = parts.for_tuning()
    assert tuning.test is parts.validation
    assert tuning.train is parts.train
    assert tuning.validation is None
    assert not pairs_of(parts.test) & (pairs_of(tuning.train) | pairs_of(tuning.test))
    assert tuning.everything().of(0).tolist() == [1, 2, 3]


def test_tuning_without_a_validation_part_is_refused() -> None:
    with pytest.raises(
        DataError, match=r"no validation part; expected one for tuning .*Set validation=true"
    ):
        split(EXAMPLE, "leave-one-out", 0, seed=0).for_tuning()


# Leakage over global time


def test_the_share_of_the_future_by_hand() -> None:
    train = from_rows([(1, 1, 10), (1, 2, 20), (2, 1, 30), (2, 2, 40)])
    test = from_rows([(1, 3, 20), (2, 3, 45), (2, 4, 5)])
    # newer than 20: two of four; than 45: none; than 5: all four
    assert future_share(from_parts(train, test)) == pytest.approx((0.5 + 0 + 1) / 3)


def test_no_times_no_leakage_figure() -> None:
    data = from_rows([(1, 1, 0), (1, 2, 0)], timed=False)
    assert future_share(split(data, "leave-one-out", 0, seed=0)) is None


@settings(deadline=None, max_examples=60)
@given(histories)
def test_the_share_of_the_future_is_that_of_two_loops(rows) -> None:
    try:
        parts = split(from_rows(rows), "leave-one-out", 0, seed=0)
    except DataError:
        return
    shares = [np.mean([train > test for train in parts.train.times]) for test in parts.test.times]
    assert future_share(parts) == pytest.approx(np.mean(shares))


# Given parts


def test_own_parts_are_joined_over_one_numbering() -> None:
    train = Interactions.from_columns(["b", "c"], ["y", "z"], [1, 2], [5, 6])
    test = Interactions.from_columns(["a", "b"], ["x", "w"], [3, 4], [8, 7])
    parts = from_parts(train, test, Interactions.from_columns(["d"], ["y"], [5], [9]))
    for part in (parts.train, parts.test, parts.validation):
        assert part.user_ids.tolist() == ["a", "b", "c", "d"]
        assert part.item_ids.tolist() == ["w", "x", "y", "z"]
    assert parts.train.to_frame().to_numpy().tolist() == [["b", "y", 1.0, 5], ["c", "z", 2.0, 6]]
    assert parts.test.to_frame().to_numpy().tolist() == [["a", "x", 3.0, 8], ["b", "w", 4.0, 7]]
    assert parts.validation.to_frame().to_numpy().tolist() == [["d", "y", 5.0, 9]]
    assert parts.rule == "own"


def test_own_parts_keep_natural_order_and_may_have_no_validation() -> None:
    parts = from_parts(
        Interactions.from_columns([10, 2], [1, 1]), Interactions.from_columns([9], [30])
    )
    assert [str(u) for u in parts.train.user_ids] == ["2", "9", "10"]
    assert parts.validation is None


def test_a_number_and_its_text_are_one_id_in_own_parts() -> None:
    parts = from_parts(
        Interactions.from_columns([1, 2], [5, 6]), Interactions.from_columns(["1", "2"], ["6", "7"])
    )
    assert [str(u) for u in parts.train.user_ids] == ["1", "2"]
    assert [str(i) for i in parts.train.item_ids] == ["5", "6", "7"]
    assert parts.train.users.tolist() == parts.test.users.tolist() == [0, 1]


@settings(deadline=None, max_examples=60)
@given(histories, histories)
def test_own_parts_hold_what_was_given(first, second) -> None:
    train = from_rows(first)
    test = from_rows(second)
    parts = from_parts(train, test)
    assert pairs_of(parts.train) == {row[:2] for row in first}
    assert pairs_of(parts.test) == {row[:2] for row in second}


def test_own_parts_keep_what_is_known_about_items_and_users() -> None:
    train = Interactions.from_columns([1], [5]).describe_items({"5": "Five"}, {"5": ("odd",)})
    test = Interactions.from_columns([1], [4]).describe_items({"4": "Four"}, {"4": ("even",)})
    parts = from_parts(train.describe_users({"age": {"1": "30"}}), test)
    assert parts.train.item_texts is not None
    assert parts.train.item_texts[parts.train.items].tolist() == ["Five"]
    assert parts.train.item_categories[parts.train.items].tolist() == [("odd",)]
    assert parts.train.user_features["age"].tolist() == ["30"]


def test_a_model_of_an_own_split_recommends_by_the_ids_that_went_in(tmp_path: Path) -> None:
    train = Interactions.from_columns(["b", "c", "d", "d"], ["y", "y", "y", "z"])
    # Both come first in natural order.
    (tmp_path / "test.csv").write_text("user_id,item_id\na,v\nb,w\n")
    run = coterie.run("popular", train, split="own", test_file=str(tmp_path / "test.csv"))
    assert run.score("d", ["y", "z", "v"]) == [3.0, 1.0, 0.0]
    best = run.recommend("b", n=1)
    assert [(r.item, r.score) for r in best] == [("z", 1.0)]


def test_published_test_pairs_are_held_out() -> None:
    # (1, 30) and (2, 10)
    users = np.array([0, 1], np.int32)
    items = np.array([2, 0], np.int32)
    parts = from_test_pairs(EXAMPLE, users, items)
    assert pairs_of(parts.test) == {(1, 30), (2, 10)}
    assert by_user(parts.train) == {1: [20, 40, 10], 2: [30, 50], 3: [60]}
    assert (parts.rule, parts.validation) == ("published", None)


def test_with_published_pairs_the_validation_part_is_the_newest_of_the_rest() -> None:
    users = np.array([0, 1], np.int32)
    items = np.array([2, 0], np.int32)
    parts = with_validation(from_test_pairs(EXAMPLE, users, items), seed=0)
    assert pairs_of(parts.validation) == {(1, 10), (2, 50)}
    assert by_user(parts.train) == {1: [20, 40], 2: [30], 3: [60]}
    assert pairs_of(parts.train) | pairs_of(parts.test) | pairs_of(parts.validation) == pairs_of(
        EXAMPLE
    )


def test_published_pairs_that_are_not_in_the_data_are_refused() -> None:
    # user 3 never did item 10
    users = np.array([0, 2], np.int32)
    items = np.array([2, 0], np.int32)
    with pytest.raises(
        DataError, match="1 published test pairs are not in the data; expected all of them"
    ):
        from_test_pairs(EXAMPLE, users, items)


@pytest.mark.parametrize("validation", [False, True])
def test_by_global_time_every_tested_user_has_training_interactions(validation: bool) -> None:
    """Also if the validation part takes a user's only training interaction."""
    data = generate(Synthetic(n_users=2_000, n_items=200, mean_interactions=12))
    parts = split(data, "global-time", 0.03, seed=0, validation=validation)
    trained = set(parts.train.users.tolist())
    assert set(parts.test.users.tolist()) <= trained
    if validation:
        assert set(parts.validation.users.tolist()) <= trained
    did = data.rows
    for user in np.unique(parts.test.users):
        assert set(parts.everything().of(user)) == set(did.of(user))


def test_what_is_held_out_at_random_does_not_depend_on_others() -> None:
    data = generate(Synthetic(n_users=60, n_items=80))
    some = data.select(data.users >= 30)
    whole, part = (split(d, "random", 0.3, seed=5) for d in (data, some))
    assert pairs_of(part.test) == {(u, i) for u, i in pairs_of(whole.test) if u > 30}


# Folds and repeats


def fold_tests(data: Interactions, folds: int, seed: int = 0, repeat: int = 0) -> list[Split]:
    """The splits of all folds; a fold without any tested user is left out."""
    parts = []
    for fold in range(folds):
        draw = Draw(folds=folds, fold=fold, repeat=repeat)
        with suppress(DataError):
            parts.append(split(data, "k-fold", 0.2, seed, draw=draw))
    return parts


@settings(deadline=None, max_examples=150)
@given(histories, st.integers(2, 7), st.integers(0, 99), st.booleans())
def test_over_the_folds_every_interaction_is_tested_once(
    rows: list[Row], folds: int, seed: int, timed: bool
) -> None:
    data = from_rows(rows, timed)
    tested = [pair for part in fold_tests(data, folds, seed) for pair in pairs_of(part.test)]
    sizes = {user: len(items) for user, items in by_user(data).items()}
    assert sorted(tested) == sorted(pair for pair in pairs_of(data) if sizes[pair[0]] > 1)


@settings(deadline=None, max_examples=150)
@given(histories, st.integers(2, 7), st.integers(0, 99))
def test_training_never_sees_its_fold(rows: list[Row], folds: int, seed: int) -> None:
    data = from_rows(rows)
    for part in fold_tests(data, folds, seed):
        assert not pairs_of(part.train) & pairs_of(part.test)
        assert pairs_of(part.train) | pairs_of(part.test) == pairs_of(data)
        assert by_user(part.train).keys() == by_user(data).keys()
        for user, items in by_user(part.test).items():
            # A user's folds differ by one interaction at most.
            whole = len(by_user(data)[user])
            assert whole // folds <= len(items) <= -(-whole // folds)


def test_folds_have_equal_sizes_over_all_users() -> None:
    """Users with three interactions of five folds: without a random start, two folds are empty."""
    data = from_rows([(user, item, item) for user in range(1, 401) for item in (1, 2, 3)])
    sizes = [len(part.test) for part in fold_tests(data, 5)]
    assert (len(sizes), sum(sizes)) == (5, 1200)
    assert min(sizes) > 200


def test_a_users_folds_do_not_depend_on_other_users() -> None:
    rows = [(user, item, item) for user in (1, 2, 3) for item in range(1, 9)]
    alone = from_rows([row for row in rows if row[0] == 1])
    together = from_rows(rows)
    draw = Draw(folds=4, fold=1)
    one = split(alone, "k-fold", 0.2, 5, draw=draw).test
    both = split(together, "k-fold", 0.2, 5, draw=draw).test
    assert by_user(one)[1] == by_user(both)[1]


def test_a_validation_part_is_held_out_of_the_other_folds() -> None:
    data = from_rows([(user, item, item) for user in (1, 2) for item in range(1, 21)])
    draw = Draw(folds=4, fold=2)
    plain = split(data, "k-fold", 0.2, 0, draw=draw)
    parts = split(data, "k-fold", 0.2, 0, validation=True, draw=draw)
    assert pairs_of(parts.test) == pairs_of(plain.test)
    assert pairs_of(parts.train) | pairs_of(parts.validation) == pairs_of(plain.train)
    assert len(parts.validation) == 2 * int(15 / 4)


@pytest.mark.parametrize("rule", ["random", "k-fold"])
def test_a_repeat_holds_out_other_interactions(rule: Rule) -> None:
    data = from_rows([(user, item, item) for user in (1, 2, 3) for item in range(1, 21)])
    first, again, second = (
        pairs_of(split(data, rule, 0.2, 0, draw=Draw(folds=5, repeat=repeat)).test)
        for repeat in (0, 0, 1)
    )
    assert first == again != second
    if rule == "random":
        assert first == pairs_of(split(data, rule, 0.2, 0).test)
