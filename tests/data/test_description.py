"""The facts of `describe`, computed by hand."""

from __future__ import annotations

from coterie.data.description import describe
from coterie.data.interactions import Interactions


def test_the_facts_by_hand() -> None:
    # Item 1 has three of five interactions. Users and items both have (3, 1, 1): median one.
    data = Interactions.from_columns(
        [1, 1, 1, 2, 3], [1, 2, 3, 1, 1], None, [0, 86_400, 5, 90_000, 7]
    )
    assert describe(data) == {
        "users": 3,
        "items": 3,
        "interactions": 5,
        "density": "55.556%",
        "per user": "1 to 3, median 1",
        "per item": "1 to 3, median 1",
        "share of the most popular 1 %": "60.0%",
        "time": "1970-01-01 to 1970-01-02",
        "item texts": "no",
        "item categories": "none",
        "user features": "none",
        "reading": [],
        "notes": [],
    }


def test_texts_categories_and_features_are_described() -> None:
    data = Interactions.from_columns([1, 1], [1, 2]).describe_items(
        {"1": "One"}, {"1": ("a", "b"), "2": ("b",)}
    )
    facts = describe(data.describe_users({"age": {"1": "9"}, "region": {"1": "x"}}).note("noted"))
    assert (facts["item texts"], facts["item categories"], facts["user features"]) == (
        "yes",
        2,
        "age, region",
    )
    assert (facts["time"], facts["notes"]) == ("none", ["noted"])


def test_the_most_popular_percent_is_one_item_in_a_hundred() -> None:
    items = list(range(300)) + [0] * 50 + [1] * 40 + [2] * 30
    users = [*range(300), *range(1, 51), *range(2, 42), *range(3, 33)]
    facts = describe(Interactions.from_columns(users, items))
    assert facts["interactions"] == 420
    assert facts["share of the most popular 1 %"] == f"{(51 + 41 + 31) / 420:.1%}"
