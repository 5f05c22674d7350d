"""Item-to-item weights: histories in bits score as histories in lists do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.models.history_bits import packed, unpacked
from coterie.models.linear import ItemWeights, PrivateItemWeights
from coterie.types import Rows

HISTORIES = st.integers(1, 40).flatmap(
    lambda n_items: st.tuples(
        st.just(n_items), st.lists(st.sets(st.integers(0, n_items - 1)), min_size=1, max_size=9)
    )
)
"""A number of items, and the items of some users."""


def rows_of(histories: list[set[int]]) -> Rows:
    users = np.repeat(np.arange(len(histories)), [len(h) for h in histories]).astype(np.int32)
    items = np.array([i for h in histories for i in h], np.int32)
    return Rows.build(users, items, len(histories))


def both_models(n_items: int, histories: list[set[int]]) -> tuple[ItemWeights, PrivateItemWeights]:
    weights = np.random.default_rng(n_items).normal(size=(n_items, n_items)).astype(np.float32)
    rows = rows_of(histories)
    return ItemWeights(weights, rows.offsets, rows.items), PrivateItemWeights(
        weights, packed(rows, n_items)
    )


@given(HISTORIES)
@settings(deadline=None)
def test_packed_histories_come_back(case):
    """Users without items, and numbers of items that do not fill whole bytes."""
    n_items, histories = case
    rows = rows_of(histories)
    bits = packed(rows, n_items)
    assert (bits.shape, bits.dtype) == ((len(histories), (n_items + 7) // 8), np.uint8)
    assert np.unpackbits(bits).sum() == len(rows.items)
    back = unpacked(bits, n_items)
    np.testing.assert_array_equal(back.offsets, rows.offsets)
    np.testing.assert_array_equal(back.items, rows.items)
    assert (back.offsets.dtype, back.items.dtype) == (np.int64, np.int32)


def test_bits_by_hand():
    """The first item is the highest bit of the first byte."""
    bits = packed(rows_of([{0, 7, 8}, set(), {9}]), 10)
    assert bits.tolist() == [[0b10000001, 0b10000000], [0, 0], [0, 0b01000000]]


@given(HISTORIES, st.data())
@settings(deadline=None)
def test_private_histories_score_the_same_bits(case, data):
    """For any users in any order, for all items or for candidates of each user."""
    n_items, histories = case
    public, private = both_models(n_items, histories)
    some = st.lists(st.integers(0, len(histories) - 1), min_size=1, max_size=6)
    users = np.array(data.draw(some), np.int32)
    assert public.score(users).tobytes() == private.score(users).tobytes()
    candidates = np.random.default_rng(0).integers(0, n_items, (len(users), 3)).astype(np.int32)
    assert public.score(users, candidates).tobytes() == private.score(users, candidates).tobytes()
    np.testing.assert_array_equal(public.histories().items, private.histories().items)
    np.testing.assert_array_equal(public.histories().offsets, private.histories().offsets)


def test_scores_are_the_sum_of_the_rows_of_the_history():
    _, private = both_models(9, [{1, 4, 8}, set()])
    users = np.array([1, 0], np.int32)
    wanted = private.weights[[1, 4, 8]].sum(axis=0)
    scores = private.score(users)
    assert not scores[0].any()
    np.testing.assert_allclose(scores[1], wanted, rtol=1e-6)
    history = np.array([1, 4, 8], np.int32)
    np.testing.assert_allclose(private.score_new_user(history), wanted, rtol=1e-6)


@pytest.mark.parametrize("model", [ItemWeights, PrivateItemWeights])
def test_only_private_histories_are_private(model):
    assert ("history_bits" in model.private) == (model is PrivateItemWeights)
