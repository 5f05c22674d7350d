"""Draws without replacement: distinct, as many as there are, every outcome as likely, and from a person's own stream alone."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from coterie.core import sampling as draws
from coterie.core import streams
from coterie.core.sampling import (
    Keys,
    a_set,
    many_unseen_items,
    nth_unseen,
    sequential,
    unseen_items,
)
from coterie.data.interactions import Interactions
from coterie.data.splits import split
from coterie.evaluation.candidates import Candidates, sample
from coterie.types import Longs, Rows

MANY = 30_000
seeds = st.integers(0, 2**32)
several_limits = st.lists(st.integers(0, 12), max_size=6)
some_histories = st.integers(1, 12).flatmap(
    lambda n_items: st.tuples(
        st.just(n_items), st.lists(st.sets(st.integers(0, n_items - 1)), min_size=1, max_size=5)
    )
)
History = tuple[int, list[set[int]]]


def keys_of(n: int, seed: int = 0) -> Keys:
    return streams.keys(seed, "test", last=np.arange(n))


def histories(lists: Iterable[Iterable[int]]) -> Rows:
    """One list of items per user."""
    ordered = [sorted(items) for items in lists]
    flat = [item for items in ordered for item in items]
    return Rows(np.cumsum([0, *map(len, ordered)], dtype=np.int64), np.array(flat, np.int32))


def longs(values: Sequence[int]) -> Longs:
    return np.array(values, np.int64)


def present(row: Iterable[int]) -> list[int]:
    """What comes before the padding; nothing may come after it."""
    items = list(row)
    found = [item for item in items if item >= 0]
    assert items == found + [-1] * (len(items) - len(found))
    return found


def evenly(outcomes: Iterable[object], possible: Iterable[object]) -> bool:
    """Whether exactly the possible outcomes came, each about as often."""
    counted = Counter(outcomes)
    assert set(counted) == set(possible)
    return bool(chisquare(list(counted.values())).pvalue > 1e-3)


def word(key: int, j: int) -> int:
    return streams.mix((key + streams.GOLDEN * (j + 1)) & streams.WORD)


def below(word: int, limit: int) -> int:
    return (word >> 32) * limit >> 32


# One after the other


def slowly_in_turn(limit: int, n: int, key: int) -> list[int]:
    """Take the numbers out of a bag."""
    bag = list(range(limit))
    return [bag.pop(below(word(key, j), len(bag))) if bag else -1 for j in range(n)]


@settings(deadline=None, max_examples=200)
@given(several_limits, st.integers(0, 15), seeds)
def test_in_turn_takes_numbers_out_of_a_bag(limits: list[int], n: int, seed: int) -> None:
    keys = keys_of(len(limits), seed)
    drawn = sequential(longs(limits), n, keys)
    assert drawn.shape == (len(limits), n)
    assert drawn.tolist() == [
        slowly_in_turn(limit, n, int(key)) for limit, key in zip(limits, keys, strict=True)
    ]


@settings(deadline=None, max_examples=200)
@given(several_limits, st.integers(0, 15), seeds)
def test_in_turn_draws_distinct_numbers_and_all_where_there_are_fewer(
    limits: list[int], n: int, seed: int
) -> None:
    for limit, row in zip(
        limits, sequential(longs(limits), n, keys_of(len(limits), seed)).tolist(), strict=True
    ):
        found = present(row)
        assert len(found) == len(set(found)) == min(n, limit)
        assert set(found) <= set(range(limit))


@pytest.mark.parametrize(("limit", "n"), [(2, 1), (5, 2), (4, 3), (3, 3), (4, 4)])
def test_every_order_is_as_likely(limit: int, n: int) -> None:
    drawn = sequential(np.full(MANY, limit), n, keys_of(MANY))
    assert evenly(map(tuple, drawn.tolist()), itertools.permutations(range(limit), n))


def test_any_two_turns_are_an_ordered_pair_like_any_other() -> None:
    """Also the last ones of many, which find most numbers taken."""
    drawn = sequential(np.full(MANY, 6), 6, keys_of(MANY))
    for first, second in itertools.combinations(range(6), 2):
        pairs = map(tuple, drawn[:, [first, second]].tolist())
        assert evenly(pairs, itertools.permutations(range(6), 2))


def test_fewer_turns_are_the_first_of_more() -> None:
    limits = np.arange(12) % 7
    whole = sequential(limits, 8, keys_of(12))
    for n in range(8):
        np.testing.assert_array_equal(sequential(limits, n, keys_of(12)), whole[:, :n])


# Sets


def slowly_a_set(limit: int, n: int, key: int) -> list[int]:
    """Floyd's method (Bentley and Floyd 1987) with a Python list."""
    if limit < n:
        return [*range(limit), *[-1] * (n - limit)]
    chosen: list[int] = []
    for j, top in enumerate(range(limit - n, limit)):
        drawn = below(word(key, j), top + 1)
        chosen.append(top if drawn in chosen else drawn)
    return chosen


@settings(deadline=None, max_examples=200)
@given(several_limits, st.integers(0, 15), seeds)
def test_a_set_equals_the_slow_twin_and_is_one(limits: list[int], n: int, seed: int) -> None:
    keys = keys_of(len(limits), seed)
    drawn = a_set(longs(limits), n, keys)
    assert drawn.shape == (len(limits), n)
    assert drawn.tolist() == [
        slowly_a_set(limit, n, int(key)) for limit, key in zip(limits, keys, strict=True)
    ]
    for limit, row in zip(limits, drawn.tolist(), strict=True):
        found = present(row)
        assert len(found) == len(set(found)) == min(n, limit)
        assert set(found) <= set(range(limit))


@pytest.mark.parametrize(("limit", "n"), [(5, 1), (5, 2), (6, 3), (7, 6)])
def test_every_set_is_as_likely(limit: int, n: int) -> None:
    drawn = a_set(np.full(MANY, limit), n, keys_of(MANY))
    assert evenly(
        (tuple(sorted(row)) for row in drawn.tolist()), itertools.combinations(range(limit), n)
    )


# A stream of one's own


@pytest.mark.parametrize("draw", [sequential, a_set])
def test_a_row_depends_on_its_own_limit_and_key_alone(
    draw: Callable[[Longs, int, Keys], Longs],
) -> None:
    limits = longs([9, 3, 0, 12, 4, 9])
    keys = keys_of(6)
    whole = draw(limits, 4, keys)
    for which in ([0], [5, 0], [4, 3, 2, 1], [1, 1], []):
        np.testing.assert_array_equal(draw(limits[which], 4, keys[which]), whole[which])
    assert whole[0].tolist() != whole[5].tolist()  # the same limit, another key


# Items outside a history


@settings(deadline=None, max_examples=150)
@given(some_histories, st.integers(0, 15), seeds)
def test_negatives_are_distinct_and_unseen_and_as_many_as_there_are(
    case: History, n: int, seed: int
) -> None:
    n_items, seen = case
    users = np.arange(len(seen), dtype=np.int32)
    drawn = unseen_items(histories(seen), users, n_items, n, keys_of(len(seen), seed))
    assert drawn.shape == (len(seen), n)
    for row, had in zip(drawn.tolist(), seen, strict=True):
        items = present(row)
        assert len(items) == len(set(items)) == min(n, n_items - len(had))
        assert set(items) <= set(range(n_items)) - had


@settings(deadline=None, max_examples=150)
@given(some_histories)
def test_nth_unseen_equals_a_slow_loop(case: History) -> None:
    n_items, seen = case
    rows = histories(seen)
    for user, had in enumerate(seen):
        free = [item for item in range(n_items) if item not in had]
        ranks = np.arange(len(free), dtype=np.int64)[None, :]
        assert nth_unseen(rows, np.array([user], np.int32), ranks, n_items)[0].tolist() == free


def test_every_unseen_item_and_every_pair_of_them_is_as_likely() -> None:
    seen = [2, 3, 7]
    rows = histories([seen] * MANY)
    drawn = unseen_items(rows, np.arange(MANY, dtype=np.int32), 10, 2, keys_of(MANY))
    free = [item for item in range(10) if item not in seen]
    assert evenly(drawn.ravel().tolist(), free)
    assert evenly((tuple(sorted(row)) for row in drawn.tolist()), itertools.combinations(free, 2))


# As many as each asks for


def slowly_unseen(had: set[int], n_items: int, n: int, key: int) -> list[int]:
    """Every item draws a lot; the lowest of those that the user does not have."""
    lots = sorted((word(key, item), item) for item in range(n_items) if item not in had)
    return [item for _, item in lots[:n]]


@settings(deadline=None, max_examples=200)
@given(some_histories, st.data(), seeds)
def test_many_unseen_items_are_those_with_the_lowest_lots(
    case: History, data: st.DataObject, seed: int
) -> None:
    n_items, seen = case
    wanted = data.draw(st.lists(st.integers(0, 15), min_size=len(seen), max_size=len(seen)))
    keys = keys_of(len(seen), seed)
    drawn = many_unseen_items(histories(seen), np.arange(len(seen)), n_items, longs(wanted), keys)
    widest = 0
    for row, had, n, key in zip(drawn.tolist(), seen, wanted, keys, strict=True):
        items = present(row)
        assert len(items) == len(set(items)) == min(n, n_items - len(had))
        assert set(items) <= set(range(n_items)) - had
        assert items == slowly_unseen(had, n_items, n, int(key))
        widest = max(widest, len(items))
    assert drawn.shape == (len(seen), widest)


def test_nobody_draws_nothing() -> None:
    nobody = np.empty(0, np.int32)
    none = histories([])
    assert many_unseen_items(none, nobody, 5, longs([]), keys_of(0)).shape == (0, 0)
    assert unseen_items(none, nobody, 5, 3, keys_of(0)).shape == (0, 3)
    assert (
        sequential(longs([]), 3, keys_of(0)).shape
        == a_set(longs([]), 3, keys_of(0)).shape
        == (0, 3)
    )


def test_everybody_draws_alike_alone_and_in_a_crowd_of_several_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chunk = 40
    n_users = 2 * chunk + 50
    n_items = 9
    rng = np.random.default_rng(1)
    monkeypatch.setattr(draws, "CELLS", chunk * n_items)
    rows = histories(
        [rng.permutation(n_items)[: rng.integers(0, n_items + 1)].tolist() for _ in range(n_users)]
    )
    wanted = rng.integers(0, n_items, n_users)
    keys = keys_of(n_users)
    crowd = many_unseen_items(rows, np.arange(n_users), n_items, wanted, keys)
    for user in [0, 1, chunk - 1, chunk, chunk + 1, 2 * chunk - 1, 2 * chunk, n_users - 1]:
        only_node = many_unseen_items(rows, longs([user]), n_items, wanted[[user]], keys[[user]])
        assert present(only_node[0]) == present(crowd[user])
    backwards = many_unseen_items(rows, np.arange(n_users)[::-1], n_items, wanted[::-1], keys[::-1])
    np.testing.assert_array_equal(backwards[::-1], crowd)


def test_every_ordered_pair_of_many_unseen_items_is_as_likely() -> None:
    seen = [0, 3, 6]
    rows = histories([seen] * MANY)
    drawn = many_unseen_items(rows, np.arange(MANY), 7, np.full(MANY, 2), keys_of(MANY))
    assert evenly(map(tuple, drawn.tolist()), itertools.permutations([1, 2, 4, 5], 2))


# Candidates for every held-out item


def negatives_of(candidates: Candidates) -> list[list[int]]:
    return [
        present(row[n:])
        for row, n in zip(candidates.items.tolist(), candidates.relevant.tolist(), strict=True)
    ]


@pytest.mark.parametrize("n", [1, 10, 40])
def test_every_held_out_item_has_its_negatives_or_all_there_are(
    people: Interactions, n: int
) -> None:
    parts = split(people, "temporal", 0.2, seed=0)
    held = parts.test.rows
    known = parts.everything()
    candidates = sample(parts.test, known, n, seed=1, for_each_item=True)
    assert candidates.users.tolist() == np.flatnonzero(held.counts).tolist()
    assert candidates.relevant.tolist() == held.counts_of(candidates.users).tolist()
    all_there_are = 0
    for user, row, negatives in zip(
        candidates.users, candidates.items, negatives_of(candidates), strict=True
    ):
        free = people.n_items - len(known.of(user))
        asked = n * len(held.of(user))
        assert row[: len(held.of(user))].tolist() == held.of(user).tolist()
        assert len(set(negatives)) == len(negatives) == min(asked, free)
        assert not set(negatives) & set(known.of(user).tolist())
        all_there_are += asked > free
    assert (all_there_are > 0) == (n == 40)  # both happen


def test_candidates_for_every_item_are_everybodys_own(people: Interactions) -> None:
    """Whoever else is tested, and however many items the others hold out; another seed and another part draw others."""
    parts = split(people, "temporal", 0.2, seed=0)
    known = parts.everything()
    n = parts.test.rows.counts
    few = parts.test.select(n[parts.test.users] <= np.median(n[n > 0]))
    whole, some, seed, part = (
        sample(held, known, 3, seed, part, for_each_item=True)
        for held, seed, part in (
            (parts.test, 4, "test"),
            (few, 4, "test"),
            (parts.test, 5, "test"),
            (parts.test, 4, "x"),
        )
    )
    drawn = dict(zip(whole.users.tolist(), negatives_of(whole), strict=True))
    assert 0 < len(some.users) < len(whole.users)
    assert negatives_of(some) == [drawn[user] for user in some.users.tolist()]
    assert some.items.shape[1] < whole.items.shape[1]
    assert negatives_of(whole) != negatives_of(seed)
    assert negatives_of(whole) != negatives_of(part)


def test_without_held_out_items_nobody_has_candidates(people: Interactions) -> None:
    nothing = people.select(np.zeros(len(people), bool))
    candidates = sample(nothing, people.rows, 10, seed=0, for_each_item=True)
    assert (candidates.users.shape, candidates.items.shape) == ((0,), (0, 0))
