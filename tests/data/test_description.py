"""The facts of `describe`, computed by hand."""

from __future__ import annotations

from coterie.data.description import describe, table_of
from coterie.data.interactions import Interactions


def test_the_facts_by_hand() -> None:
    # Item 1 has three of five interactions. Users and items both have (3, 1, 1): median one.
    data = Interactions.from_columns(
        [1, 1, 1, 2, 3], [1, 2, 3, 1, 1], None, [0, 86_400, 5, 90_000, 7]
    )
    counts = {"least": 1, "most": 3, "median": 1.0, "mean": 5 / 3}
    facts = describe(data)
    assert facts == {
        "users": 3,
        "items": 3,
        "interactions": 5,
        "density": 5 / 9,
        "per_user": counts,
        "per_item": counts,
        "popular_share": 0.6,
        "first_day": "1970-01-01",
        "last_day": "1970-01-02",
        "item_texts": False,
        "item_categories": None,
        "user_features": [],
        "rows": None,
        "skipped": [],
        "columns": {},
        "reading": [],
        "notes": [],
    }
    assert dict(table_of(facts)) == {
        "users": "3",
        "items": "3",
        "interactions": "5",
        "density": "55.556%",
        "per user": "1 to 3, median 1",
        "per item": "1 to 3, median 1",
        "share of the most popular 1 %": "60.0%",
        "time": "1970-01-01 to 1970-01-02",
        "item texts": "no",
        "item categories": "none",
        "user features": "none",
    }


def test_texts_categories_and_features_are_described() -> None:
    data = Interactions.from_columns([1, 1], [1, 2]).describe_items(
        {"1": "One"}, {"1": ("a", "b"), "2": ("b",)}
    )
    facts = describe(data.describe_users({"age": {"1": "9"}, "region": {"1": "x"}}).note("noted"))
    assert (facts["item_texts"], facts["item_categories"]) == (True, 2)
    assert facts["user_features"] == ["age", "region"]
    assert (facts["first_day"], facts["last_day"], facts["notes"]) == (None, None, ["noted"])
    shown = dict(table_of(facts))
    assert (shown["item texts"], shown["item categories"]) == ("yes", "2")
    assert (shown["user features"], shown["time"]) == ("age, region", "none")


def test_the_most_popular_percent_is_one_item_in_a_hundred() -> None:
    items = list(range(300)) + [0] * 50 + [1] * 40 + [2] * 30
    users = [*range(300), *range(1, 51), *range(2, 42), *range(3, 33)]
    facts = describe(Interactions.from_columns(users, items))
    assert facts["interactions"] == 420
    assert facts["popular_share"] == (51 + 41 + 31) / 420
