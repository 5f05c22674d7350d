"""Item-based models: contributions by hand, and that they sum to the score."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.models.history_bits import packed
from coterie.models.item_based import ItemBased
from coterie.models.linear import ItemWeights
from coterie.models.neighbours import ItemNeighbours, PrivateItemNeighbours
from coterie.types import Rows


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def weights_model(weights: np.ndarray, histories: Rows) -> ItemWeights:
    return ItemWeights(weights.astype(np.float32), histories.offsets, histories.items)


def neighbours_model(weights: np.ndarray, histories: Rows) -> ItemNeighbours:
    """Row j holds the weights of item j on the items that follow it."""
    rows, columns = np.nonzero(weights)
    followers = Rows.build(rows.astype(np.int32), columns.astype(np.int32), len(weights))
    similarities = weights[rows, columns].astype(np.float32)
    return ItemNeighbours(
        followers.offsets, followers.items, similarities, histories.offsets, histories.items
    )


def private_neighbours_model(weights: np.ndarray, histories: Rows) -> PrivateItemNeighbours:
    public = neighbours_model(weights, histories)
    bits = packed(histories, len(weights))
    return PrivateItemNeighbours(public.offsets, public.followers, public.similarities, bits)


MODELS = pytest.mark.parametrize(
    "make", [weights_model, neighbours_model, private_neighbours_model]
)
WEIGHTS = np.array([[0, 1, 2], [3, 0, 4], [5, 6, 0]])
HISTORIES = Rows.build(ints(0, 0, 1), ints(0, 2, 1), 3)
"""Items 0 and 2; item 1; none."""


@MODELS
def test_contributions_by_hand(make):
    """Entry (i, j) is the weight of item j of the history on item i."""
    model: ItemBased = make(WEIGHTS, HISTORIES)
    assert [model.histories().of(user).tolist() for user in range(3)] == [[0, 2], [1], []]
    assert model.contributions(ints(0, 2), ints(1, 0, 2)).tolist() == [[1, 6], [0, 5], [2, 0]]
    assert model.contributions(ints(1), ints(2)).tolist() == [[4]]


@MODELS
def test_without_history_or_items_there_are_no_contributions(make):
    model: ItemBased = make(WEIGHTS, HISTORIES)
    assert model.contributions(ints(), ints(1, 2)).shape == (2, 0)
    assert model.contributions(ints(0, 2), ints()).shape == (0, 2)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 12), st.integers(0, 2**32 - 1), st.data())
@MODELS
def test_contributions_sum_to_the_score(make, n_items, seed, data):
    """Weights may be negative; users may have no item or all of them."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(n_items, n_items)) * (rng.random((n_items, n_items)) < 0.6)
    users, owned = np.nonzero(rng.random((5, n_items)) < data.draw(st.floats(0, 1)))
    model = make(weights, Rows.build(users.astype(np.int32), owned.astype(np.int32), 5))
    items = np.arange(n_items, dtype=np.int32)
    for user in range(5):
        history = model.histories().of(user)
        summed = model.contributions(history, items).sum(axis=1)
        scores = model.score(np.array([user], np.int32))[0]
        np.testing.assert_allclose(summed, scores, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(summed, model.score_new_user(history), rtol=1e-4, atol=1e-5)
