"""What sums over a ring reveal, on hand-made rings."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.attacks.ring_sums import (
    ItemSums,
    lone_items,
    lone_vectors,
    pair_histories,
    unmix,
    up_to_sign,
)

# Items 0 and 3 are lone: user 0 has item 0, user 2 has item 3. User 1 has no lone item.
HISTORIES = np.array([[1, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 1, 1, 1, 0]], bool)
VECTORS = np.array([[0.5, -0.25, 1.0], [0.125, 0.75, 0.0], [-1.0, 0.5, 0.25]])


def sums_of(histories: np.ndarray, X: np.ndarray) -> ItemSums:
    products = np.stack([X[has].T @ X[has] for has in histories.T])
    vectors = histories.T.astype(float) @ X
    return ItemSums(histories.sum(axis=0), products, vectors, X.T @ X)


def pairs_of(histories: np.ndarray, weights: np.ndarray) -> np.ndarray:
    h = histories.astype(np.int64)
    return (h * weights[:, None]).T @ h


def test_counts_say_which_items_are_lone():
    assert lone_items(HISTORIES.sum(axis=0)).tolist() == [0, 3]


def test_the_product_of_a_lone_item_is_its_users_vector_up_to_sign():
    sums = sums_of(HISTORIES, VECTORS)
    for item, user in ((0, 0), (3, 2)):
        x = up_to_sign(sums.products[item])
        sign = np.sign(x @ VECTORS[user])
        np.testing.assert_allclose(sign * x, VECTORS[user], atol=1e-12)
    shared = up_to_sign(sums.products[2])  # of users 1 and 2 together: of neither
    for user in (1, 2):
        assert np.abs(np.abs(shared) - np.abs(VECTORS[user])).max() > 0.1


def test_the_sum_of_vectors_tells_the_sign_too():
    found = lone_vectors(sums_of(HISTORIES, VECTORS))
    by_items = {tuple(lone.items): lone.x for lone in found}
    assert set(by_items) == {(0,), (3,)}
    np.testing.assert_array_equal(by_items[0,], VECTORS[0])
    np.testing.assert_array_equal(by_items[3,], VECTORS[2])


def test_two_lone_items_of_one_user_are_one_vector():
    histories = np.array([[1, 1, 1], [0, 0, 1]], bool)
    (lone,) = lone_vectors(sums_of(histories, VECTORS[:2]))
    assert lone.items.tolist() == [0, 1]
    np.testing.assert_array_equal(lone.x, VECTORS[0])


def test_a_ring_without_lone_items_reveals_no_vector_by_them():
    assert lone_vectors(sums_of(np.ones((3, 4), bool), VECTORS)) == []


def test_few_members_are_told_apart():
    """User 1 has no lone item, and is found too."""
    members = unmix(sums_of(HISTORIES, VECTORS), 3)
    assert members is not None
    order = [int(np.flatnonzero((own == HISTORIES).all(axis=1))[0]) for own in members.histories]
    assert sorted(order) == [0, 1, 2]
    np.testing.assert_allclose(np.abs(members.vectors), np.abs(VECTORS[order]), atol=1e-9)


def test_members_without_any_lone_item_are_told_apart():
    """Every item has at least two users among eight; eight members, eight coordinates."""
    rng = np.random.default_rng(3)
    histories = rng.random((8, 60)) < 0.6
    assert histories.sum(axis=0).min() > 1
    members = unmix(sums_of(histories, rng.normal(size=(8, 8))), 8)
    assert members is not None
    assert {own.tobytes() for own in members.histories} == {own.tobytes() for own in histories}


def test_more_members_than_coordinates_are_not_told_apart():
    rng = np.random.default_rng(3)
    histories = rng.random((9, 60)) < 0.6
    assert unmix(sums_of(histories, rng.normal(size=(9, 8))), 9) is None


@pytest.mark.parametrize("weights", [[1, 1, 1], [500, 333, 250]])
def test_pairs_of_a_lone_item_are_a_history_and_then_those_of_others(weights):
    """Items 1 and 2 are lone once users 0 and 2 are taken off."""
    found = dict(pair_histories(pairs_of(HISTORIES, np.array(weights))))
    assert [found[item].tolist() for item in (0, 3)] == [[0, 1], [1, 2, 3]]
    assert sorted(items.tolist() for items in found.values()) == [[0, 1], [1, 2], [1, 2, 3]]


def test_pairs_without_a_lone_item_reveal_no_history():
    histories = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]], bool)
    assert list(pair_histories(pairs_of(histories, np.ones(3, np.int64)))) == []


def test_users_with_the_same_history_are_found_together():
    histories = np.array([[1, 1, 0], [1, 1, 0], [0, 1, 1]], bool)
    found = [items.tolist() for _, items in pair_histories(pairs_of(histories, np.ones(3, int)))]
    assert sorted(found) == [[0, 1], [1, 2]]
