"""Precision, recall and the popularity baseline against counts with sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.attacks.evidence import Claims
from coterie.attacks.ledger import Ledger
from coterie.attacks.scores import popular_hits, score, summarise
from coterie.types import Rows


def rows(histories: list[list[int]]) -> Rows:
    users = np.repeat(np.arange(len(histories)), [len(h) for h in histories]).astype(np.int32)
    return Rows.build(users, np.array([i for h in histories for i in h], np.int32), len(histories))


def claims(scores: dict[tuple[int, int], int], elsewhere: list[int], n_items: int) -> Claims:
    keys = sorted(u * n_items + i for u, i in scores)
    values = [scores[divmod(key, n_items)] for key in keys]
    return Claims(
        np.array(keys, np.int64), np.array(values, np.int64), np.array(elsewhere, np.int64)
    )


def test_by_hand():
    """User 0 liked 0, 1 and 2, claimed are 1 and 5; user 1 liked 3, nothing is claimed; user 2 was
    never observed."""
    truth = rows([[0, 1, 2], [3], [1, 4]])
    result = score(claims({(0, 1): 2, (0, 5): 1, (0, 2): 0, (1, 0): 0}, [0, 0, 0], 6), truth, 6)
    assert result.claims.tolist() == [2, 0, 0]
    assert result.hits.tolist() == [1, 0, 0]
    # Item 1 is the most popular. Four items tie behind it, so each counts 1/4 of the other claim.
    assert result.popular_hits.tolist() == pytest.approx([1 + 2 * 0.25, 0, 0])
    # The 3 best scores: items 1 and 5, and one of the other four, of which two are liked.
    assert result.r_hits.tolist() == pytest.approx([1 + 2 / 4, 1 / 6, 2 * 2 / 6])
    figures = summarise(result, np.array([True, True, False]))
    assert (figures.users, figures.claimed_users, figures.claims) == (2, 1, 1.0)
    assert (figures.precision, figures.recall) == pytest.approx((0.5, (1 / 3 + 0) / 2))
    assert (figures.popular_precision, figures.popular_recall) == pytest.approx((0.75, 0.25))
    assert figures.r_precision == pytest.approx((1.5 / 3 + 1 / 6) / 2)


def test_no_claims_have_no_precision_and_no_users_no_recall():
    result = score(claims({}, [0, 0], 4), rows([[0], [1]]), 4)
    both = summarise(result, np.array([True, True]))
    none = summarise(result, np.array([False, False]))
    assert (both.precision, both.popular_precision, both.recall) == (None, None, 0.0)
    assert (none.users, none.claims, none.recall) == (0, 0.0, None)


def expected_hits(scored: list[tuple[float, bool]], n: int) -> float:
    """Expected hits of the n best, with ties drawn evenly: group by group."""
    hits = 0.0
    left = n
    for value in sorted({s for s, _ in scored}, reverse=True):
        group = [right for s, right in scored if s == value]
        taken = min(left, len(group))
        hits += taken * sum(group) / len(group)
        left -= taken
    return hits


@st.composite
def cases(draw):
    n_users = draw(st.integers(1, 5))
    n_items = draw(st.integers(1, 9))
    items = st.lists(st.integers(0, n_items - 1), unique=True)
    histories = [draw(items) for _ in range(n_users)]
    pairs = st.tuples(st.integers(0, n_users - 1), st.integers(0, n_items - 1))
    scores = draw(st.dictionaries(pairs, st.integers(-3, 3)))
    return (
        histories,
        scores,
        draw(st.lists(st.integers(-2, 2), min_size=n_users, max_size=n_users)),
        n_items,
    )


@settings(deadline=None, max_examples=300)
@given(cases())
def test_counts_are_those_of_sets(case):
    histories, scores, elsewhere, n_items = case
    result = score(claims(scores, elsewhere, n_items), rows(histories), n_items)
    popularity = [sum(i in h for h in histories) for i in range(n_items)]
    for u, history in enumerate(histories):
        own = [scores.get((u, i), elsewhere[u]) for i in range(n_items)]
        claimed = {i for i in range(n_items) if own[i] > 0}
        assert result.claims[u] == len(claimed)
        assert result.hits[u] == len(claimed & set(history))
        best = expected_hits([(own[i], i in history) for i in range(n_items)], len(history))
        assert result.r_hits[u] == pytest.approx(best)
        popular = [(popularity[i], i in history) for i in range(n_items)]
        assert result.popular_hits[u] == pytest.approx(expected_hits(popular, len(claimed)))
        assert result.popular_r_hits[u] == pytest.approx(expected_hits(popular, len(history)))


def test_popular_hits_by_number_of_claims():
    truth = rows([[0, 1, 2, 3], [0, 1], [0]])
    hits = [popular_hits(truth, 5, np.full(3, n)).tolist() for n in range(6)]
    assert hits == [[0, 0, 0], [1, 1, 1], [2, 2, 1], [3, 2, 1], [4, 2, 1], [4, 2, 1]]


@settings(deadline=None, max_examples=150)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 30), st.integers(-5, 5), st.integers(0, 1)), max_size=20),
        max_size=12,
    )
)
def test_ledger_adds_up_like_a_dictionary(parts):
    ledger = Ledger(2)
    totals = {}
    for part in parts:
        ledger.add(
            np.array([k for k, _, _ in part], np.int64),
            [np.array(c, np.int32) for c in ([a for _, a, _ in part], [b for *_, b in part])],
        )
        for key, a, b in part:
            before = totals.get(key, (0, 0))
            totals[key] = (before[0] + a, before[1] + b)
    keys, (first, second) = ledger.totals()
    assert keys.tolist() == sorted(totals)
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == [
        totals[key] for key in sorted(totals)
    ]
