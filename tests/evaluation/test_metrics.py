"""Every metric against independent implementations: enumeration, counting, loops, scikit-learn."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from math import comb, log2

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from score_table import Table, histories
from sklearn.metrics import ndcg_score, roc_auc_score

from coterie.evaluation.candidates import Candidates
from coterie.evaluation.metrics import evenness, overall, per_user
from coterie.evaluation.ranking import Ranks, rank_all, rank_candidates

SEEN = "seen"
WANTED = "wanted"
OTHER = "other"

# The oracles. A user is a list of (score, relevant) over the items that may be recommended.


def at_one_order(relevance: list[bool], k: int) -> dict[str, float]:
    """The textbook metrics of one ranked list, best first."""
    n = sum(relevance)
    places = [place for place, relevant in enumerate(relevance[:k], 1) if relevant]
    precision = len(places) / k
    recall = len(places) / n
    ideal = sum(1 / log2(place + 1) for place in range(1, min(n, k) + 1))
    return {
        f"HR@{k}": float(bool(places)),
        f"NDCG@{k}": sum(1 / log2(place + 1) for place in places) / ideal,
        f"MRR@{k}": 1 / places[0] if places else 0.0,
        f"P@{k}": precision,
        f"R@{k}": recall,
        f"F1@{k}": 2 * precision * recall / (precision + recall) if places else 0.0,
        f"MAP@{k}": sum(hits / place for hits, place in enumerate(places, 1)) / min(n, k),
    }


def auc_of_one_order(relevance: list[bool]) -> float:
    pairs = [first for first, second in itertools.combinations(relevance, 2) if first != second]
    return sum(pairs) / len(pairs) if pairs else 0.5


def all_orders(user: list[tuple[float, bool]]) -> Iterator[list[bool]]:
    """Every ranking that the scores allow."""
    groups = itertools.groupby(sorted(user, key=lambda pair: -pair[0]), key=lambda pair: pair[0])
    for parts in itertools.product(
        *(itertools.permutations([r for _, r in group]) for _, group in groups)
    ):
        yield list(itertools.chain(*parts))


def expected_over_all_orders(
    user: list[tuple[float, bool]], cutoffs: tuple[int, ...]
) -> dict[str, float]:
    """The definition: the mean over every order of the tied items."""
    rankings = list(all_orders(user))
    tables = [
        {k: v for c in cutoffs for k, v in at_one_order(ranking, c).items()} for ranking in rankings
    ]
    expected = {name: sum(table[name] for table in tables) / len(tables) for name in tables[0]}
    return expected | {"AUC": sum(map(auc_of_one_order, rankings)) / len(rankings)}


def chance_of_none(groups: list[tuple[int, int]], places: int) -> float:
    """Probability of no relevant item in the first places; a group is (size, relevant items)."""
    for size, relevant in groups:
        if places <= 0:
            break
        if places < size:
            return comb(size - relevant, places) / comb(size, places)
        if relevant:
            return 0.0
        places -= size
    return 1.0


def expected_by_counting(user: list[tuple[float, bool]], k: int) -> dict[str, float]:
    """Rank by rank: the probability of a relevant item, and of the first one."""
    scores = sorted({score for score, _ in user}, reverse=True)
    groups = [(sum(s == v for s, _ in user), sum(r for s, r in user if s == v)) for v in scores]
    n = sum(relevant for _, relevant in groups)
    chances = [relevant / size for size, relevant in groups for _ in range(size)][:k]
    none = [chance_of_none(groups, place) for place in range(k + 1)]
    hits = sum(chances)
    return {
        f"HR@{k}": 1 - none[k],
        f"NDCG@{k}": sum(c / log2(p + 1) for p, c in enumerate(chances, 1))
        / sum(1 / log2(p + 1) for p in range(1, min(n, k) + 1)),
        f"MRR@{k}": sum((none[p - 1] - none[p]) / p for p in range(1, k + 1)),
        f"P@{k}": hits / k,
        f"R@{k}": hits / n,
        f"F1@{k}": 2 * hits / (k + n),
    }


# Small cases, by definition.

cell = st.tuples(st.sampled_from([SEEN, WANTED, WANTED, OTHER, OTHER, OTHER]), st.integers(0, 2))
users_of_six_items = st.lists(st.lists(cell, min_size=6, max_size=6), min_size=1, max_size=4)


def items_in(user: list[tuple[str, float]], *states: str) -> list[int]:
    return [item for item, (state, _) in enumerate(user) if state in states]


def ranked_among_all(users: list[list[tuple[str, float]]], k: int) -> Ranks:
    model = Table(np.array([[score for _, score in user] for user in users], np.float32))
    seen, wanted = (
        histories([items_in(user, state) for user in users]) for state in (SEEN, WANTED)
    )
    return rank_all(model, seen, wanted, len(users[0]), k)


def ranked_among_candidates(users: list[list[tuple[str, float]]], k: int) -> Ranks:
    """The same ranking through candidate lists, padded to the longest."""
    model = Table(np.array([[score for _, score in user] for user in users], np.float32))
    tested = [n for n, user in enumerate(users) if items_in(user, WANTED)]
    lists = [items_in(users[n], WANTED) + items_in(users[n], OTHER) for n in tested]
    width = max(map(len, lists)) + 1
    items = np.array([row + [-1] * (width - len(row)) for row in lists], np.int32)
    relevant = np.array([len(items_in(users[n], WANTED)) for n in tested])
    return rank_candidates(model, Candidates(np.array(tested, np.int32), items, relevant), k)


@pytest.mark.parametrize("ranked", [ranked_among_all, ranked_among_candidates])
@settings(deadline=None, max_examples=120)
@given(users=users_of_six_items)
def test_metrics_are_the_mean_over_all_orders_of_tied_items(ranked, users):
    tested = [user for user in users if items_in(user, WANTED)]
    assume(tested)
    cutoffs = (1, 2, 3, 5, 9)
    table = per_user(ranked(users, 9), cutoffs, ("MAP",))
    for place, user in enumerate(tested):
        pairs = [(score, state == WANTED) for state, score in user if state != SEEN]
        for name, value in expected_over_all_orders(pairs, cutoffs).items():
            assert table[name][place] == pytest.approx(value, abs=1e-12), name
    assert all(len(column) == len(tested) for column in table.values())


def test_metrics_of_one_user_by_hand():
    """Scores 3 2 2 1; the two items with score 2 are relevant: ranks 2 and 3."""
    table = per_user(
        ranked_among_all([[(OTHER, 3), (WANTED, 2), (WANTED, 2), (OTHER, 1)]], 2), (2,)
    )
    gained = 1 / log2(3)
    ideal = 1 + 1 / log2(3)
    by_hand = {
        "HR@2": 1,
        "NDCG@2": gained / ideal,
        "MRR@2": 1 / 2,
        "P@2": 1 / 2,
        "R@2": 1 / 2,
        "F1@2": 1 / 2,
    }
    assert {name: column[0] for name, column in table.items()} == pytest.approx(
        by_hand | {"AUC": 1 / 2}
    )


@pytest.mark.parametrize("k", [1, 3, 4, 10])
def test_everything_relevant_is_a_perfect_list_and_no_contest(k):
    table = per_user(
        ranked_among_all([[(WANTED, 1), (WANTED, 2), (WANTED, 2), (SEEN, 9)]], k), (k,)
    )
    found = min(k, 3)
    assert table[f"HR@{k}"] == table[f"NDCG@{k}"] == table[f"MRR@{k}"] == pytest.approx(1)
    assert table[f"P@{k}"] == pytest.approx(found / k)
    assert table[f"R@{k}"] == pytest.approx(found / 3)
    assert table["AUC"] == 0.5


def test_short_lists_do_not_raise_precision():
    """Two candidates at cut-off ten: one is a hit, and precision still divides by ten."""
    table = per_user(ranked_among_all([[(WANTED, 1), (OTHER, 2), (SEEN, 3)]], 10), (10,))
    assert (table["P@10"][0], table["R@10"][0], table["MRR@10"][0]) == (0.1, 1.0, 0.5)


# Thousands of users at once.


def crowd(
    n_users: int, n_items: int, levels: int | None, seed: int
) -> list[list[tuple[str, float]]]:
    """Random users; `levels` distinct scores make ties, None makes none."""
    rng = np.random.default_rng(seed)
    states = rng.choice([SEEN, WANTED, OTHER], (n_users, n_items), p=[0.3, 0.1, 0.6])
    scores = (
        rng.random((n_users, n_items))
        if levels is None
        else rng.integers(0, levels, (n_users, n_items))
    )
    return [
        list(zip(s, v, strict=True))
        for s, v in zip(states.tolist(), scores.astype(np.float32).tolist(), strict=True)
    ]


def compare_with(expected, users, ranked, cutoffs) -> int:
    table = per_user(ranked(users, max(cutoffs)), cutoffs, ("MAP",))
    tested = [user for user in users if items_in(user, WANTED)]
    pairs = [
        [(score, state == WANTED) for state, score in user if state != SEEN] for user in tested
    ]
    for k in cutoffs:
        values = [expected(user, k) for user in pairs]
        for name in values[0]:
            np.testing.assert_allclose(
                table[name], [v[name] for v in values], atol=1e-12, err_msg=name
            )
    return len(tested)


@pytest.mark.parametrize("ranked", [ranked_among_all, ranked_among_candidates])
def test_five_thousand_users_with_ties(ranked):
    assert (
        compare_with(expected_by_counting, crowd(5_600, 24, 4, seed=1), ranked, (1, 7, 30)) >= 5_000
    )


@pytest.mark.parametrize("ranked", [ranked_among_all, ranked_among_candidates])
def test_five_thousand_users_without_ties(ranked):
    def in_order(user: list[tuple[float, bool]], k: int) -> dict[str, float]:
        return at_one_order([relevant for _, relevant in sorted(user, reverse=True)], k)

    assert compare_with(in_order, crowd(5_600, 24, None, seed=2), ranked, (1, 5, 10, 40)) >= 5_000


@pytest.mark.parametrize("levels", [3, 40, None])
def test_auc_and_ndcg_equal_scikit_learn(levels):
    """scikit-learn's NDCG averages over ties too; both want the same candidates for all users."""
    rng = np.random.default_rng(3)
    n_users = 150
    n_items = 50
    scores = (
        rng.random((n_users, n_items))
        if levels is None
        else rng.integers(0, levels, (n_users, n_items)) * 1.0
    )
    relevant = rng.random((n_users, n_items)) < 0.15
    relevant[:, 0] = True
    relevant[:, 1] = False
    nothing = histories([[]] * n_users)
    wanted = histories([np.flatnonzero(row).tolist() for row in relevant])
    table = per_user(rank_all(Table(scores), nothing, wanted, n_items, 10), (10,))
    aucs = [roc_auc_score(r, s) for r, s in zip(relevant, scores, strict=True)]
    np.testing.assert_allclose(table["AUC"], aucs, atol=1e-12)
    gains = [
        ndcg_score([r], [s], k=10)
        for r, s in zip(relevant[:60].astype(int).tolist(), scores[:60], strict=True)
    ]
    np.testing.assert_allclose(table["NDCG@10"][:60], gains, atol=1e-12)


# Diversity of the lists.


def gini_by_differences(counts: np.ndarray) -> float:
    """Mean absolute difference over twice the mean, corrected for a finite number of items."""
    n = len(counts)
    return (
        np.abs(counts[:, None] - counts[None, :]).sum() / (2 * n * n * counts.mean()) * n / (n - 1)
    )


def lists_of(top: np.ndarray) -> Ranks:
    none = np.zeros(0, np.int64)
    some = np.ones(len(top), np.int64)
    return Ranks(
        np.arange(len(top), dtype=np.int32), some, none, none, none, none, top.astype(np.int32)
    )


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(2, 15), st.integers(1, 6))
def test_diversity_equals_plain_loops(seed, n_users, n_items, k):
    rng = np.random.default_rng(seed)
    top = np.stack(
        [
            rng.permutation(np.concatenate([np.arange(n_items), np.full(k, -2)]))[:k]
            for _ in range(n_users)
        ]
    )
    top = np.take_along_axis(top, np.argsort(top < 0, axis=1, kind="stable"), axis=1).clip(-1)
    popularity = rng.integers(0, n_users + 1, n_items)
    cutoffs = tuple(range(1, k + 1))
    table = overall(lists_of(top), cutoffs, popularity, n_users)
    for c in cutoffs:
        shown = [item for row in top.tolist() for item in row[:c] if item >= 0]
        counts = np.array([shown.count(item) for item in range(n_items)])
        assert table[f"IC@{c}"] == len(set(shown))
        assert table[f"Gini@{c}"] == pytest.approx(
            1 - gini_by_differences(counts) if shown else 0.0
        )
        shares = [popularity[item] / n_users for item in shown]
        assert table[f"Pop@{c}"] == pytest.approx(sum(shares) / len(shares) if shares else 0.0)


@pytest.mark.parametrize(
    ("listed", "n_items", "by_hand"),
    [
        ([0, 1, 2, 3], 4, 1.0),  # all alike
        ([2, 2, 2], 4, 0.0),  # one item for all
        ([0, 1, 1, 1], 2, 0.5),  # 1 - (3 - 1) / 4
        ([0, 1], 4, 1 / 3),  # counts 0 0 1 1: 1 - (1 + 3) / (2 * 3)
        ([], 5, 0.0),
        ([0, 0], 1, 0.0),
    ],
)
def test_evenness_by_hand(listed, n_items, by_hand):
    assert evenness(np.array(listed, np.int32), n_items) == pytest.approx(by_hand)
