"""NeuMF's scores against the written-out formula, and the row of a new user."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import api
from coterie.models import neumf
from coterie.models.neumf import NeuMF, score_gradients, unpack_dense

layers = st.lists(st.integers(1, 9), min_size=1, max_size=3)


def made(d: int, layers: list[int], n_users: int = 5, n_items: int = 7, seed: int = 0) -> NeuMF:
    """Nothing is zero, biases included."""
    start = NeuMF.start(n_users, n_items, d, layers, seed, 1.0)
    dense = start.dense + np.random.default_rng(seed).normal(0, 0.3, len(start.dense)).astype(
        np.float32
    )
    return NeuMF(start.user_rows, start.item_rows, dense, start.sizes)


def by_formula(model: NeuMF, user: int, item: int) -> float:
    """He et al. 2017, Eq. 12, term by term from the flat `dense`."""
    numbers = iter(model.dense.astype(float).tolist())
    d = int(model.sizes[0]) // 2
    p = model.user_rows[user].astype(float)
    q = model.item_rows[item].astype(float)
    x = [*p[d:], *q[d:]]
    for m in model.sizes[1:].tolist():
        sums = [sum(next(numbers) * xi for xi in x) for _ in range(m)]
        x = [max(s + next(numbers), 0.0) for s in sums]
    y = (
        sum(next(numbers) * xi for xi in x)
        + sum(next(numbers) * p[f] * q[f] for f in range(d))
        + next(numbers)
    )
    assert next(numbers, None) is None
    return y


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 6), layers, st.integers(0, 99))
def test_scores_are_those_of_the_formula(d, layers, seed):
    model = made(d, layers, seed=seed)
    expected = [[by_formula(model, u, i) for i in range(7)] for u in range(5)]
    np.testing.assert_allclose(
        model.score(np.arange(5, dtype=np.int32)), expected, rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("pairs", [1, 3, 7, 10, 30])
def test_blocks_change_nothing(pairs, monkeypatch):
    model = made(3, [6, 4], 8, 11)
    rng = np.random.default_rng(1)
    users = rng.permutation(8).astype(np.int32)
    items = rng.integers(0, 11, (8, 5)).astype(np.int32)
    whole = model.score(users)
    some = model.score(users, items)
    monkeypatch.setattr(neumf, "PAIRS", pairs)
    np.testing.assert_allclose(model.score(users), whole, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model.score(users, items), some, rtol=1e-5, atol=1e-6)


def test_scoring_takes_little_more_memory_than_the_scores():
    """30 users and 20,000 items: a layer of 64 neurons for every pair at once would be 150 MB."""
    model = NeuMF.start(30, 20_000, 8, (64, 8), 0, 0.1)
    tracemalloc.start()
    scores = model.score(np.arange(30, dtype=np.int32))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < scores.nbytes + 4 * 2**20


def test_what_is_counted_as_parameters():
    """(943 + 1,682) x 2 x 8 in rows; layers 16 x 32 + 32, 32 x 16 + 16, 16 x 8 + 8; h 8 + 8; b."""
    expected = 2_625 * 16 + 544 + 528 + 136 + 16 + 1
    assert NeuMF.start(943, 1_682, 8, (32, 16, 8), 0, 0.1).n_parameters == expected


def test_start_values():
    """Relu layers preserve the variance, biases are zero, and the GMF part is plain MF."""
    model = NeuMF.start(50, 60, 100, (400, 300), 3, 0.1)
    net = unpack_dense(model.dense, model.sizes)
    assert [w.shape for w, _ in net.layers] == [(400, 200), (300, 400)]
    assert net.layers[0][0].std() == pytest.approx((2 / 200) ** 0.5, rel=0.02)
    assert net.layers[1][0].std() == pytest.approx((2 / 400) ** 0.5, rel=0.02)
    assert not any(b.any() for _, b in net.layers)
    assert (net.gmf == 1).all()
    assert net.bias == 0
    assert model.user_rows.std() == pytest.approx(0.1, rel=0.05)


# New users.


def test_gradients_by_the_row_are_those_of_small_differences():
    model = made(3, [7, 5], seed=4)
    net = unpack_dense(model.dense, model.sizes)
    p = model.user_rows[0]
    tiny = 1e-3
    y, gradients = score_gradients(net, p, model.item_rows)
    np.testing.assert_allclose(y, model.score(np.array([0], np.int32))[0], rtol=1e-5)
    for f in range(6):
        moved = [
            score_gradients(net, p + np.eye(6, dtype=np.float32)[f] * s, model.item_rows)[0]
            for s in (tiny, -tiny)
        ]
        np.testing.assert_allclose((moved[0] - moved[1]) / (2 * tiny), gradients[:, f], atol=5e-3)


@pytest.fixture(scope="module")
def trained(people):
    return api.run("neumf", people, epochs=15, embedding_size=6, layers=(8, 4), learning_rate=0.05)


def test_a_new_user_is_served_as_well_as_those_who_were_in_training(trained, people):
    """Training users treated as new users: their items rank as high as in their own scores."""
    model = trained.model
    own = []
    new = []
    for user in range(0, 200, 10):
        history = people.rows.of(user)
        scores = model.score(np.array([user], np.int32))[0], model.score_new_user(history, 4, 0.01)
        for ranks, y in zip((own, new), scores, strict=True):
            chosen = np.isin(np.arange(len(y)), history)
            ranks.append((y[chosen][:, None] > y[~chosen][None, :]).mean())
    assert np.mean(new) > 0.8
    assert np.mean(new) > np.mean(own) - 0.02


def test_the_row_of_a_new_user_is_a_better_one_than_the_average(trained, people):
    history = people.rows.of(3)
    fitted = trained.model.score_new_user(history, 4, 0.01)
    average = trained.model.score_new_user(history[:0], 4, 0.01)
    others = np.setdiff1d(np.arange(people.n_items), history)
    assert (
        fitted[history].mean() - fitted[others].mean()
        > average[history].mean() - average[others].mean()
    )


def test_a_new_user_without_history_gets_the_average_row(trained):
    model = trained.model
    no_items = np.empty(0, np.int32)
    one = NeuMF(
        model.user_rows.mean(axis=0, keepdims=True), model.item_rows, model.dense, model.sizes
    )
    np.testing.assert_allclose(
        model.score_new_user(no_items, 4, 0.01), one.score(np.zeros(1, np.int32))[0], rtol=1e-5
    )
