"""Novelty, long tail, diversity and calibration: by hand, and against plain loops."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from math import log, log2, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from score_table import Table

from coterie.core import plugins
from coterie.data.interactions import Interactions, objects
from coterie.data.splits import Split
from coterie.errors import ConfigError
from coterie.evaluation.direction import is_better, lower_is_better
from coterie.evaluation.evaluation import evaluate
from coterie.evaluation.list_metrics import LIST_METRICS, RankedLists, head
from coterie.evaluation.list_values import check_categories
from coterie.evaluation.protocols import protocol
from coterie.types import Rows

NAMES = ("Nov", "Tail", "ILD", "CatILD", "Calib")


def trained_on(
    histories: dict[int, list[int]], n_items: int, categories: list[tuple[str, ...]]
) -> Interactions:
    pairs = [(user, item) for user, items in histories.items() for item in items]
    ids = np.arange(n_items)
    return Interactions(
        users=np.array([user for user, _ in pairs], np.int32),
        items=np.array([item for _, item in pairs], np.int32),
        ratings=None,
        times=None,
        user_ids=np.arange(len(histories)),
        item_ids=ids,
        item_order=ids.astype(np.int32),
        item_categories=objects(categories),
    )


def lists_of(train: Interactions, items: list[list[int]]) -> RankedLists:
    table = np.array(items, np.int32)
    nothing = Rows(np.zeros(len(table) + 1, np.int64), np.empty(0, np.int32))
    users = np.arange(len(table), dtype=np.int32)
    return RankedLists(k=table.shape[1], users=users, items=table, relevant=nothing, train=train)


# By hand. Four users; item 0 has all four, item 1 two, items 2 and 3 one, item 4 none.

HISTORIES = {0: [0, 1], 1: [0, 1], 2: [0, 2], 3: [0, 3]}
GENRES: list[tuple[str, ...]] = [("a",), ("a", "b"), ("b",), ("b", "c"), ()]
LISTS = [[2, 3, 4], [2, 3, -1], [1, -1, -1], [-1, -1, -1]]
BY_HAND = {
    # log2(4 / 1) each; item 4 counts as if it had one user; item 1: log2(4 / 2).
    "Nov": [2, 2, 1, 0],
    # 8 interactions; items 0, 1 and 2 are the fewest that have 6.4 of them: 4 + 2 + 1.
    "Tail": [2 / 3, 1 / 2, 0, 0],
    # Items 2, 3 and 4 have no user in common.
    "ILD": [1, 1, 0, 0],
    # b and bc share one of two; item 4 shares its category with nobody.
    "CatILD": [(1 / 2 + 1 + 1) / 3, 1 / 2, 0, 0],
    "Calib": [
        # p = (a 3/4, b 1/4); q = (b 1/2, c 1/6, none 1/3).
        0.75 * log(0.75 / (0.01 * 0.75)) + 0.25 * log(0.25 / (0.99 * 0.5 + 0.01 * 0.25)),
        # q = (b 3/4, c 1/4).
        0.75 * log(0.75 / (0.01 * 0.75)) + 0.25 * log(0.25 / (0.99 * 0.75 + 0.01 * 0.25)),
        # p = (a 1/2, b 1/2) = q.
        0.0,
        log(100),
    ],
}


@pytest.mark.parametrize("name", NAMES)
def test_values_by_hand(name: str) -> None:
    # The third user's history is a and b, as its list.
    lists = lists_of(trained_on(HISTORIES, 5, GENRES), LISTS)
    assert LIST_METRICS[name].per_user(lists) == pytest.approx(BY_HAND[name])


def test_diversity_by_users_by_hand() -> None:
    """Items 0 and 1 share two of 4 and 2 users: 1 - 2 / sqrt(8)."""
    lists = lists_of(trained_on(HISTORIES, 5, GENRES), [[1, 0]])
    assert LIST_METRICS["ILD"].per_user(lists) == pytest.approx([1 - 2 / sqrt(8)])


def test_the_head_is_the_fewest_items_with_four_fifths() -> None:
    assert head(np.array([1, 4, 2, 1, 0])).tolist() == [True, True, True, False, False]
    assert head(np.array([8, 2])).tolist() == [True, False]
    assert head(np.array([7, 3])).tolist() == [True, True]


# Plain loops over random data.


def slow_values(
    histories: dict[int, list[int]],
    n_items: int,
    categories: list[tuple[str, ...]],
    user: int,
    listed: list[int],
) -> dict[str, float]:
    fans = {i: {u for u, items in histories.items() if i in items} for i in range(n_items)}
    genres = {i: set(categories[i]) or {"?"} for i in range(n_items)}

    def mix(items: list[int]) -> Counter[str]:
        shares: Counter[str] = Counter()
        for item in items:
            for genre in genres[item]:
                shares[genre] += 1 / len(genres[item]) / len(items)
        return shares

    def cosine(i: int, j: int) -> float:
        both = len(fans[i]) * len(fans[j])
        return len(fans[i] & fans[j]) / sqrt(both) if both else 0.0

    def jaccard(i: int, j: int) -> float:
        return len(genres[i] & genres[j]) / len(genres[i] | genres[j])

    popular = sorted(range(n_items), key=lambda i: (-len(fans[i]), i))
    total = sum(map(len, fans.values()))
    in_head: set[int] = set()
    while sum(len(fans[i]) for i in in_head) < 0.8 * total:
        in_head.add(popular[len(in_head)])
    pairs = list(combinations(listed, 2))
    p = mix(histories[user])
    q = mix(listed)

    def mean(values: list[float]) -> float:
        return sum(values) / len(values) if values else 0.0

    return {
        "Nov": mean([-log2(max(len(fans[i]), 1) / len(histories)) for i in listed]),
        "Tail": mean([float(i not in in_head) for i in listed]),
        "ILD": mean([1 - cosine(i, j) for i, j in pairs]),
        "CatILD": mean([1 - jaccard(i, j) for i, j in pairs]),
        "Calib": sum(s * log(s / (0.99 * q[g] + 0.01 * s)) for g, s in p.items()),
    }


@settings(deadline=None, max_examples=80)
@given(st.integers(0, 2**32), st.integers(1, 8), st.integers(2, 12), st.integers(1, 5))
def test_values_equal_plain_loops(seed: int, n_users: int, n_items: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    histories = {
        user: sorted(rng.choice(n_items, rng.integers(1, n_items), replace=False).tolist())
        for user in range(n_users)
    }
    categories = [
        tuple(name for name in "abc" if rng.random() < 0.4)  # often none
        for _ in range(n_items)
    ]
    if not any(categories):
        categories[0] = ("a",)
    rows = [rng.permutation(n_items)[: rng.integers(0, k + 1)].tolist() for _ in range(n_users)]
    lists = lists_of(
        trained_on(histories, n_items, categories), [row + [-1] * (k - len(row)) for row in rows]
    )
    slow = [slow_values(histories, n_items, categories, user, row) for user, row in enumerate(rows)]
    for name in NAMES:
        values = LIST_METRICS[name].per_user(lists)
        assert values == pytest.approx([each[name] for each in slow], abs=1e-9), name


# In an evaluation.


def small_split() -> Split:
    train = trained_on(HISTORIES, 5, GENRES)
    test = trained_on({0: [2], 1: [3], 2: [1], 3: [4]}, 5, GENRES)
    return Split("own", train, test)


def test_an_evaluation_has_the_requested_metrics_only() -> None:
    model = Table(np.tile(np.array([5, 4, 3, 2, 1], np.float32), (4, 1)))
    plain = evaluate(model, small_split(), protocol("full", {"cutoffs": 2}), None)
    assert not {f"{name}@2" for name in (*NAMES, "MAP")} & plain.metrics.keys()
    chosen = protocol("full", {"cutoffs": 2, "metrics": "novelty,calibration,map"})
    found = evaluate(model, small_split(), chosen, None)
    added = {"Nov@2", "Calib@2", "MAP@2"}
    assert found.metrics.keys() - plain.metrics.keys() == added
    # The users are recommended items 2 3, 2 3, 1 3 and 1 2.
    assert found.table["Nov@2"] == pytest.approx([2, 2, 1.5, 1.5])
    assert found.metrics["Nov@2"] == pytest.approx(1.75)
    assert {name: found.metrics[name] for name in plain.metrics} == plain.metrics


def test_low_miscalibration_is_good() -> None:
    assert lower_is_better("full:Calib@10")
    assert is_better("Calib@10", 0.1, 0.2)
    assert is_better("Nov@10", 0.2, 0.1)


def test_metrics_of_categories_need_categories() -> None:
    from dataclasses import replace

    data = replace(trained_on(HISTORIES, 5, GENRES), item_categories=None)
    check_categories(protocol("full", {"metrics": "Nov,ILD"}), data)
    with pytest.raises(ConfigError, match="metric 'Calib' needs item categories"):
        check_categories(protocol("full", {"metrics": "Nov,Calib"}), data)


def test_a_metric_gets_the_held_out_items_of_tested_users_only() -> None:
    """Users 0 and 2 are not tested: row 0 is user 1, row 1 is user 3."""
    train = trained_on(HISTORIES, 5, GENRES)
    test = trained_on({0: [], 1: [3], 2: [], 3: [4, 1]}, 5, GENRES)
    seen: list[tuple[list[int], list[list[int]]]] = []

    def spy(lists: RankedLists) -> np.ndarray:
        held = [sorted(lists.relevant.of(n).tolist()) for n in range(len(lists.users))]
        seen.append((lists.users.tolist(), held))
        return lists.lengths.astype(float)

    model = Table(np.ones((4, 5), np.float32))
    with plugins.provided(plugins.METRICS, {"spy": spy}):
        chosen = protocol("full", {"metrics": "spy@2"})
        found = evaluate(model, Split("own", train, test), chosen, None)
    assert seen == [([1, 3], [[3], [1, 4]])]
    assert found.metrics["spy@2"] == 2
