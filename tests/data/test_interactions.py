"""Interactions: columns to a canonical form, with the same ids out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coterie
from coterie.core import streams
from coterie.data.ids import find, number
from coterie.data.interactions import Interactions, canonical_order
from coterie.errors import DataError, UnknownName

ARRAYS = ("users", "items", "ratings", "times", "user_ids", "item_ids")

Row = tuple[int, int, int]


histories = st.lists(
    st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(0, 4)),
    min_size=1,
    max_size=40,
    unique=True,
)


def build(rows: list[Row], keep: str = "newest") -> Interactions:
    users, items, times = zip(*rows, strict=True)
    return Interactions.from_columns(users, items, [rating(r) for r in rows], times, keep=keep)


def rating(row: Row) -> float:
    """A rating that identifies its row."""
    user, item, time = row
    return user * 1000 + item * 10 + time


def external(data: Interactions) -> set[Row]:
    frame = data.to_frame()
    return set(
        zip(frame.user_id.tolist(), frame.item_id.tolist(), frame.timestamp.tolist(), strict=True)
    )


@settings(deadline=None, max_examples=150)
@given(histories, st.randoms(use_true_random=False), st.sampled_from(["newest", "oldest"]))
def test_row_order_does_not_matter(rows: list[Row], random, keep: str) -> None:
    shuffled = rows.copy()
    random.shuffle(shuffled)
    one = build(rows, keep)
    other = build(shuffled, keep)
    for name in ARRAYS:
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    assert one.notes == other.notes


def test_row_order_does_not_matter_where_a_pair_is_rated_twice_at_one_moment() -> None:
    one = Interactions.from_columns([1, 1], [5, 5], [2.0, 4.0], [100, 100])
    other = Interactions.from_columns([1, 1], [5, 5], [4.0, 2.0], [100, 100])
    assert one.ratings.tolist() == other.ratings.tolist()


@settings(deadline=None, max_examples=150)
@given(histories, st.sampled_from(["newest", "oldest"]))
def test_of_a_repeated_pair_one_stays_with_its_own_rating(rows: list[Row], keep: str) -> None:
    chosen = {}
    for user, item, time in rows:
        best = max if keep == "newest" else min
        chosen[user, item] = best(time, chosen.get((user, item), time))
    data = build(rows, keep)
    assert external(data) == {(u, i, t) for (u, i), t in chosen.items()}
    pairs = zip(data.user_ids[data.users], data.item_ids[data.items], data.times, strict=True)
    assert data.ratings.tolist() == [rating(row) for row in pairs]
    merged = len(rows) - len(chosen)
    assert data.notes == (
        (f"{merged:,} repeated user-item pairs merged, the {keep} of each kept",) if merged else ()
    )


def test_without_times_the_row_that_stands_later_is_the_newer() -> None:
    columns = [1, 1, 2], [7, 7, 7], [3.0, 4.0, 5.0]
    newest = Interactions.from_columns(*columns)
    oldest = Interactions.from_columns(*columns, keep="oldest")
    assert newest.ratings.tolist() == [4.0, 5.0]
    assert oldest.ratings.tolist() == [3.0, 5.0]
    merged = "1 repeated user-item pairs merged"
    assert newest.notes == (f"{merged}, the last row of each kept",)
    assert oldest.notes == (f"{merged}, the first row of each kept",)


@settings(deadline=None, max_examples=100)
@given(histories)
def test_the_canonical_order_is_user_then_time_then_the_hash_of_the_pair(rows: list[Row]) -> None:
    data = build(rows)
    keys = [
        (u, t, streams.mix(u << 32 | i))
        for u, i, t in zip(
            data.users.tolist(), data.items.tolist(), data.times.tolist(), strict=True
        )
    ]
    assert keys == sorted(keys)
    assert len(np.unique(data.pairs())) == len(data)


def test_arrays_are_contiguous_and_of_the_stated_types() -> None:
    data = Interactions.from_columns(["b", "a"], [1, 2], [1, 2], [9, 8])
    assert [a.dtype for a in (data.users, data.items, data.ratings, data.times)] == [
        "i4",
        "i4",
        "f4",
        "i8",
    ]
    assert all(a.flags.c_contiguous for a in (data.users, data.items, data.ratings, data.times))
    assert (data.n_users, data.n_items, len(data)) == (2, 2, 2)


odd_ids = st.text("ab01 é世\x00,'", max_size=3)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(odd_ids, odd_ids), min_size=1, max_size=20, unique=True))
def test_external_ids_come_back_as_they_went_in(pairs: list[tuple[str, str]]) -> None:
    users, items = zip(*pairs, strict=True)
    frame = Interactions.from_columns(users, items).to_frame()
    assert set(zip(frame.user_id, frame.item_id, strict=True)) == set(pairs)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=30))
def test_whole_numbers_are_ordered_as_numbers_and_stay_numbers(ids: list[int]) -> None:
    distinct, places, first_seen = number(ids)
    assert distinct.dtype.kind == "i"
    assert distinct.tolist() == sorted(set(ids))
    assert distinct[places].tolist() == ids
    assert distinct[first_seen].tolist() == list(dict.fromkeys(ids))


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, 10**18 - 1).map(str), min_size=1, max_size=30))
def test_texts_of_whole_numbers_are_ordered_as_numbers_and_stay_texts(ids: list[str]) -> None:
    distinct, places, first_seen = number(ids)
    assert distinct.tolist() == sorted(set(ids), key=int)
    assert distinct[places].tolist() == ids
    assert distinct[first_seen].tolist() == list(dict.fromkeys(ids))


@pytest.mark.parametrize(
    ("ids", "order"),
    [
        (["10", "9", "1"], ["1", "9", "10"]),
        (["10", "9", "x"], ["10", "9", "x"]),
        (["10", "09", "9"], ["09", "10", "9"]),  # 09 and 9 are two ids, so these are texts
        (["-2", "10"], ["-2", "10"]),
        (["1" * 30, "9"], ["1" * 30, "9"]),
        (["b", "B", "a"], ["B", "a", "b"]),
        (["²", "1"], ["1", "²"]),
        (["0", "00"], ["0", "00"]),
    ],
)
def test_natural_order_by_hand(ids: list[str], order: list[str]) -> None:
    assert number(ids)[0].tolist() == order


def test_items_remember_their_first_appearance_also_after_some_are_gone() -> None:
    data = Interactions.from_columns([1, 1, 2, 2], [30, 10, 20, 10])
    assert data.item_ids[data.item_order].tolist() == [30, 10, 20]
    kept = data.select(data.users == 0).compact()
    assert kept.item_ids[kept.item_order].tolist() == [30, 10]


def test_select_keeps_the_numbering_and_compact_renumbers_everything_that_hangs_on_it() -> None:
    data = Interactions.from_columns(["u", "v", "w"], ["a", "b", "c"], [1, 2, 3], [7, 8, 9])
    data = data.describe_items({"a": "Alpha", "c": "Gamma"}, {"c": ("x", "y")})
    data = data.describe_users({"age": {"u": "1", "w": "3"}})
    some = data.select(data.ratings != 2)
    assert (some.n_users, some.n_items, some.users.tolist()) == (3, 3, [0, 2])
    small = some.compact()
    assert small.user_ids.tolist() == ["u", "w"]
    assert small.item_ids.tolist() == ["a", "c"]
    assert (small.users.tolist(), small.items.tolist(), small.ratings.tolist()) == (
        [0, 1],
        [0, 1],
        [1.0, 3.0],
    )
    assert small.item_texts.tolist() == ["Alpha", "Gamma"]
    assert small.item_categories.tolist() == [(), ("x", "y")]
    assert small.user_features["age"].tolist() == ["1", "3"]


def test_rows_list_each_users_items_in_ascending_order() -> None:
    rows = Interactions.from_columns([1, 1, 3, 1], [9, 5, 5, 7], timestamp=[1, 3, 2, 2]).rows
    assert [rows.of(u).tolist() for u in range(2)] == [[0, 1, 2], [0]]
    assert rows.counts.tolist() == [3, 1]


def test_an_item_without_a_description_gets_an_empty_one() -> None:
    data = Interactions.from_columns([1, 1], [8, 9])
    assert data.describe_items({}, {}).item_texts is None
    described = data.describe_items({"9": "Nine"}, {"8": ("even",)})
    assert described.item_texts.tolist() == ["", "Nine"]
    assert described.item_categories.tolist() == [("even",), ()]


def test_categories_of_equal_length_stay_tuples() -> None:
    data = Interactions.from_columns([1, 1], [8, 9]).describe_items(
        {}, {"8": ("a", "b"), "9": ("c", "d")}
    )
    assert data.item_categories.tolist() == [("a", "b"), ("c", "d")]


@pytest.mark.parametrize(
    ("ids", "name"), [([5, 7], 7), ([5, 7], "7"), (["5", "7"], "7"), (["5", "7"], 7)]
)
def test_an_id_is_found_as_number_or_text(ids: list[object], name: object) -> None:
    assert find(number(ids)[0], name, "user") == 1


def test_an_unknown_id_gets_a_suggestion() -> None:
    with pytest.raises(
        UnknownName, match=r"unknown item 'mtrix' among 2\. Did you mean 'matrix'\?"
    ):
        find(number(["matrix", "alien"])[0], "mtrix", "item")


# Invalid input


@pytest.mark.parametrize("bad", [None, float("nan"), pd.NA, pd.NaT])
def test_a_missing_id_is_refused(bad: object) -> None:
    with pytest.raises(DataError, match="user_id"):
        Interactions.from_columns(np.array(["a", bad, "b"], dtype=object), [1, 2, 3])
    with pytest.raises(DataError, match="item_id"):
        Interactions.from_columns([1, 2, 3], np.array(["a", bad, "b"], dtype=object))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), "five", 1e300])
def test_a_rating_that_is_no_finite_number_is_refused(bad: object) -> None:
    with pytest.raises(DataError, match="rating"):
        Interactions.from_columns([1, 2], [1, 2], [3.0, bad])


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), "yesterday", -1, 1_700_000_000_000])
def test_a_time_that_is_no_moment_since_1970_is_refused(bad: object) -> None:
    with pytest.raises(DataError, match="timestamp"):
        Interactions.from_columns([1, 2], [1, 2], None, [100, bad])


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(
        DataError,
        match=r"different lengths .*'user_id': 2, 'item_id': 2, 'rating': 1.*expected one",
    ):
        Interactions.from_columns([1, 2], [1, 2], [3.0])


def test_an_unknown_policy_for_repeated_pairs_is_refused() -> None:
    with pytest.raises((DataError, UnknownName), match="latest"):
        Interactions.from_columns([1, 1], [2, 2], keep="latest")


def test_no_rows_are_no_interactions() -> None:
    data = Interactions.from_columns([], [])
    assert (len(data), data.n_users, data.n_items) == (0, 0, 0)


# Data frames


FRAME = pd.DataFrame(
    {"user_id": [1, 2, 1], "item_id": ["a", "b", "c"], "rating": [1, 2, 3], "timestamp": [5, 6, 4]}
)


def test_a_frame_comes_back_in_canonical_order() -> None:
    back = Interactions.from_frame(FRAME).to_frame()
    assert back.to_numpy().tolist() == [[1, "c", 3.0, 4], [1, "a", 1.0, 5], [2, "b", 2.0, 6]]


def test_columns_of_a_frame_may_have_other_names() -> None:
    renamed = FRAME.rename(columns={"user_id": "who", "rating": "stars"})
    data = Interactions.from_frame(renamed, user_id="who", rating="stars")
    assert data.ratings.tolist() == [3.0, 1.0, 2.0]


def test_moments_of_a_frame_become_seconds() -> None:
    moments = pd.to_datetime(["2020-01-01", "2020-01-02", "1970-01-01"])
    for column in (
        moments,
        moments.tz_localize("UTC"),
        moments.as_unit("ns"),
        moments.as_unit("s"),
    ):
        data = Interactions.from_frame(FRAME.assign(timestamp=column))
        assert data.times.tolist() == [0, 1_577_836_800, 1_577_923_200], column.dtype


def test_a_frame_without_a_needed_column_gets_a_suggestion() -> None:
    with pytest.raises(
        DataError,
        match=r"^data frame: no column was recognised as user_id; .* Did you mean 'userz'\?$",
    ):
        Interactions.from_frame(FRAME.rename(columns={"user_id": "userz"}))


def test_a_column_that_is_named_must_exist() -> None:
    with pytest.raises(DataError, match="'stars'"):
        Interactions.from_frame(FRAME, rating="stars")


def test_an_unknown_role_gets_a_suggestion() -> None:
    with pytest.raises(DataError, match=r"the role 'user'; .* Did you mean 'user_id'\?"):
        Interactions.from_frame(FRAME, user="user_id")


@pytest.mark.parametrize("column", ["user_id", "item_id", "rating", "timestamp"])
def test_a_missing_value_in_a_frame_is_named_by_row_and_column(column: str) -> None:
    frame = FRAME.astype(object)
    frame.loc[1, column] = None
    with pytest.raises(
        DataError,
        match=rf"^row 1: column '{column}' is .*expected a value\. Drop or fill the row\.$",
    ):
        Interactions.from_frame(frame)


@pytest.mark.parametrize(("policy", "kept"), [("newest", 5.0), ("oldest", 3.0)])
def test_the_policy_for_repeated_pairs_holds_for_frames_too(policy: str, kept: float) -> None:
    frame = pd.DataFrame(
        {"user_id": [1, 1], "item_id": [2, 2], "rating": [3, 5], "timestamp": [10, 20]}
    )
    assert coterie.load(frame, duplicates=policy, feedback="explicit").ratings.tolist() == [kept]


def test_repeated_pairs_in_a_frame_can_be_refused() -> None:
    frame = pd.DataFrame({"user_id": [1, 1], "item_id": [2, 2]})
    with pytest.raises(DataError, match="expected distinct pairs"):
        coterie.load(frame, duplicates="error")


def test_notes_are_added_and_nothing_else_changes() -> None:
    data = Interactions.from_frame(FRAME)
    noted = data.note("first").note("second")
    assert noted.notes == ("first", "second")
    assert data.notes == ()
    assert replace(noted, notes=()).users is data.users


def test_canonical_order_without_times_is_user_then_item() -> None:
    users = np.array([1, 0, 1, 0], np.int32)
    items = np.array([2, 9, 1, 3], np.int32)
    assert canonical_order(users, items, None).tolist() == [3, 1, 2, 0]
