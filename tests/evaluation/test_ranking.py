"""Ranks and top lists: ties, blocks, non-finite scores and bounded memory."""

from __future__ import annotations

import dataclasses
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from score_table import Choosy, Table, histories

from coterie import api, kernels
from coterie.data.interactions import Interactions
from coterie.errors import Diverged, UserError
from coterie.evaluation import ranking
from coterie.evaluation.candidates import Candidates
from coterie.evaluation.metrics import per_user
from coterie.evaluation.ranking import Ranks, best_items, rank_all, rank_candidates
from coterie.models.factors import Factors
from coterie.types import Rows


def random_case(n_users: int, n_items: int, seed: int, levels: int = 6) -> tuple[Table, Rows, Rows]:
    rng = np.random.default_rng(seed)
    state = rng.choice(3, (n_users, n_items), p=[0.2, 0.2, 0.6])
    model = Table(rng.integers(0, levels, (n_users, n_items)).astype(np.float32))
    return (
        model,
        histories([np.flatnonzero(r == 0) for r in state]),
        histories([np.flatnonzero(r == 1) for r in state]),
    )


def as_candidates(n_items: int, seen: Rows, wanted: Rows) -> Candidates:
    """Everything a user has not seen, the relevant items first, the others in descending order."""
    users = np.flatnonzero(wanted.counts).astype(np.int32)
    items = np.full((len(users), n_items), -1, np.int32)
    for row, user in enumerate(users):
        others = sorted(
            set(range(n_items)) - set(seen.of(user)) - set(wanted.of(user)), reverse=True
        )
        listed = [*wanted.of(user), *others]
        items[row, : len(listed)] = listed
    return Candidates(users, items, wanted.counts[users])


def assert_same(one: Ranks, other: Ranks) -> None:
    for field in dataclasses.fields(Ranks):
        np.testing.assert_array_equal(
            getattr(one, field.name), getattr(other, field.name), err_msg=field.name
        )


@settings(deadline=None, max_examples=80)
@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 10), st.integers(1, 12))
def test_ranks_and_lists_equal_a_slow_sort(seed, n_users, n_items, k):
    model, seen, wanted = random_case(n_users, n_items, seed)
    if not len(wanted.items):
        return
    ranks = rank_all(model, seen, wanted, n_items, k)
    entry = 0
    assert ranks.users.tolist() == [user for user in range(n_users) if len(wanted.of(user))]
    for row, user in enumerate(ranks.users):
        scores = model.table[user]
        free = [item for item in range(n_items) if item not in seen.of(user)]
        best = sorted(free, key=lambda item: (-scores[item], item))
        assert ranks.top[row].tolist() == (best + [-1] * k)[:k]
        assert ranks.candidates[row] == len(free)
        assert ranks.relevant[row] == len(wanted.of(user))
        for item in wanted.of(user):
            assert ranks.owner[entry] == row
            assert ranks.above[entry] == sum(scores[other] > scores[item] for other in free)
            assert ranks.tied[entry] == sum(scores[other] == scores[item] for other in free)
            entry += 1
    assert entry == len(ranks.owner)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 10), st.integers(1, 12))
def test_candidates_that_are_all_unseen_items_rank_like_all_items(seed, n_users, n_items, k):
    """Top lists included: ties are in item order in both, not in the order of the candidates."""
    model, seen, wanted = random_case(n_users, n_items, seed)
    if not len(wanted.items):
        return
    whole = rank_all(model, seen, wanted, n_items, k)
    assert_same(rank_candidates(model, as_candidates(n_items, seen, wanted), k), whole)


def test_a_constant_model_lists_candidates_in_item_order():
    """The relevant item is the first candidate, but must not be recommended first."""
    candidates = Candidates(
        np.array([0], np.int32), np.array([[7, 3, 5, 1]], np.int32), np.array([1])
    )
    assert rank_candidates(Table(np.zeros((1, 9))), candidates, 3).top.tolist() == [[1, 3, 5]]


@pytest.mark.parametrize("cells", [1, 7, 333, 1 << 20])
def test_blocks_do_not_change_results(monkeypatch, cells):
    model, seen, wanted = random_case(150, 20, seed=4)
    candidates = as_candidates(20, seen, wanted)
    whole = rank_all(model, seen, wanted, 20, 5)
    sampled = rank_candidates(model, candidates, 5)
    monkeypatch.setattr(ranking, "BLOCK_CELLS", cells)
    assert_same(rank_all(model, seen, wanted, 20, 5), whole)
    assert_same(rank_candidates(model, candidates, 5), sampled)


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 40), st.integers(1, 50), st.integers(0, 30), st.floats(-1e9, 1e9))
def test_a_constant_model_hits_k_out_of_the_candidates(n_items, k, n_seen, constant):
    seen = histories([list(range(1, min(n_seen + 1, n_items)))])
    ranks = rank_all(
        Table(np.full((1, n_items), constant, np.float32)), seen, histories([[0]]), n_items, k
    )
    free = n_items - len(seen.items)
    table = per_user(ranks, (k,))
    assert table[f"HR@{k}"][0] == pytest.approx(min(k / free, 1))
    assert table["AUC"][0] == 0.5


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", [0, 1, 2], ids=["relevant", "other", "seen"])
def test_a_non_finite_score_is_an_error_and_not_a_hit(bad, where):
    table = np.array([[0.5, 0.1, 0.9]], np.float32)
    table[0, where] = bad
    with pytest.raises(
        Diverged, match=r"diverged.* score is -?(nan|inf); expected finite.* Lower learning_rate"
    ):
        rank_all(Table(table), histories([[2]]), histories([[0]]), 3, 1)
    everything = Candidates(np.array([0], np.int32), np.array([[0, 1, 2]], np.int32), np.array([1]))
    with pytest.raises(Diverged):
        rank_candidates(Table(table), everything, 1)


def test_huge_finite_scores_are_fine():
    top = float(np.finfo(np.float32).max)
    ranks = rank_all(
        Table(np.array([[top, -top, 0]], np.float32)), histories([[]]), histories([[1]]), 3, 3
    )
    assert (ranks.above.tolist(), ranks.top.tolist()) == ([2], [[0, 2, 1]])


def test_scores_that_may_not_be_written_are_left_alone():
    class Same(Table):
        def score(self, users, items=None):
            return np.broadcast_to(self.table, (len(users), 3))

    model = Same(np.array([3.0, 2.0, 1.0]))
    ranks = rank_all(model, histories([[0], [1]]), histories([[2], [2]]), 3, 3)
    assert ranks.top.tolist() == [[1, 2, -1], [0, 2, -1]]
    assert model.table.tolist() == [3.0, 2.0, 1.0]


def test_an_empty_validation_part_is_a_user_error():
    """Two items each: one is tested, one trained on, and nothing is left to validate with."""
    data = Interactions.from_columns(
        [0, 0, 1, 1, 2, 2], [0, 1, 1, 2, 2, 0], None, [1, 2, 3, 4, 5, 6]
    )
    with pytest.raises(UserError, match="validation"):
        api.run("popular", data, validation=True)


def test_full_ranking_never_holds_users_times_items(monkeypatch):
    """Memory follows the size of a block and not the number of users."""
    monkeypatch.setattr(ranking, "BLOCK_CELLS", 1 << 16)
    n_users = 8_000
    n_items = 1_000
    model = Factors.start(n_users, n_items, 4, 0, 0.1)
    nothing = histories([[]] * n_users)
    wanted = histories([[5]] * n_users)
    tracemalloc.start()
    rank_all(model, nothing, wanted, n_items, 10)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n_users * n_items * 4 / 2  # half of a float32 for every user and item


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 50))
def test_the_best_items_of_one_user_are_the_top_of_the_ranking(seed, n_items, k):
    model, seen, wanted = random_case(6, n_items, seed)
    if not len(wanted.items):
        return
    ranks = rank_all(model, seen, wanted, n_items, k)
    for row, user in enumerate(ranks.users):
        best = best_items(model.table[user], seen.of(user), k)
        assert best.tolist() == [item for item in ranks.top[row].tolist() if item >= 0]


def test_threads_do_not_change_ranks(monkeypatch):
    model, seen, wanted = random_case(300, 50, seed=9)
    found = []
    for threads in ("1", "3"):
        monkeypatch.setenv("COTERIE_THREADS", threads)
        found.append(rank_all(model, seen, wanted, 50, 7))
    assert_same(*found)


def test_ranks_are_the_same_without_numba(monkeypatch):
    model, seen, wanted = random_case(60, 30, seed=2)
    compiled = rank_all(model, seen, wanted, 30, 7)
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.setattr(kernels, "_loaded", {})
    assert_same(rank_all(model, seen, wanted, 30, 7), compiled)
    assert kernels.load("ranking").__name__ == "coterie.kernels.fallback.ranking"


def test_scores_may_lie_in_any_order_and_be_of_double_precision():
    model, seen, wanted = random_case(20, 30, seed=3)
    other = Table(np.asfortranarray(model.table.astype(np.float64)))
    assert_same(rank_all(other, seen, wanted, 30, 7), rank_all(model, seen, wanted, 30, 7))


def test_a_user_who_is_not_served_has_no_candidates_and_an_empty_list():
    model, seen, wanted = random_case(40, 30, seed=5)
    whole = rank_all(model, seen, wanted, 30, 7)
    some = rank_all(Choosy(model.table, np.arange(40) % 3 > 0), seen, wanted, 30, 7)
    left_out = whole.users % 3 == 0
    assert 0 < left_out.sum() < len(left_out)
    assert some.served.tolist() == (~left_out).tolist()
    assert (some.top[left_out] == -1).all()
    assert (some.candidates[left_out] == 0).all()
    np.testing.assert_array_equal(some.top[~left_out], whole.top[~left_out])
    np.testing.assert_array_equal(some.candidates[~left_out], whole.candidates[~left_out])
    assert_same(
        rank_candidates(
            Choosy(model.table, np.arange(40) % 3 > 0), as_candidates(30, seen, wanted), 7
        ),
        some,
    )
