"""FedALS under a privacy budget: sensitivity, noise, and the items that are solved from sums."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_federation import histories, play_locally, world_for

pytest.importorskip("dp_accounting")

from coterie import api
from coterie.algorithms import fedals, private_als, registry
from coterie.algorithms.local import least_squares
from coterie.algorithms.private_als import NoisyVectorSums, VectorScales
from coterie.core.settings import DataSize
from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.errors import ConfigError
from coterie.federated.federation import Sums, World
from coterie.federated.nodes import client_columns
from coterie.federated.privacy import noise
from coterie.federated.privacy.accountant import MAX_EPSILON
from coterie.federated.privacy.plan import NoisePlan, plan_for
from coterie.federated.secagg.session import SessionSlot
from coterie.types import SCALE, Floats, Rows, Updates

N_ITEMS = 40
BUDGET: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-5, "rounds": 2, "participation": 1.0}


def rows_of(*lists: list[int]) -> Rows:
    users = np.repeat(np.arange(len(lists)), [len(one) for one in lists]).astype(np.int32)
    items = np.array([item for one in lists for item in one], np.int32)
    return Rows.build(users, items, len(lists))


def norm(sums: Sums) -> float:
    """Of all sums as one vector, in exact integers."""
    return math.sqrt(sum(int(value) ** 2 for part in sums.values() for value in part.ravel()))


def plan_of(world: World) -> NoisePlan:
    plan = plan_for(world, fedals.PRIVATE_SUM)
    assert plan is not None
    return plan


def contribution(world: World, training: TrainingSet, Y: Floats, users: list[int]) -> Sums:
    """What some users add to the sums of a round, by the functions that clients run."""
    state = replace(fedals.init(world), item_rows=Y)
    message = fedals.EXCHANGE.broadcast(world, state, np.array(users, np.int32), 1)
    node = LocalEngine.over(world, training, 1).nodes[0]
    columns, _ = client_columns(world, fedals.EXCHANGE, message, node, SessionSlot())
    return fedals.EXCHANGE.aggregate(world, message, Updates(**columns))


def one_and_others(items: list[int]) -> TrainingSet:
    rows = rows_of(items, [0, 1], [2])
    return TrainingSet(3, N_ITEMS, rows, rows, None)


# Sensitivity


@settings(deadline=None, max_examples=60)
@given(
    items=st.one_of(
        st.lists(st.integers(0, N_ITEMS - 1), unique=True, max_size=N_ITEMS),
        st.sampled_from([[], [0], [N_ITEMS - 1], list(range(N_ITEMS))]),
    ),
    d=st.integers(1, 9),
    log_scale=st.floats(-30, 12),
    epsilon=st.sampled_from([0.5, 5.0, 50.0]),
    seed=st.integers(0, 5),
)
def test_no_user_adds_more_than_the_sensitivity(items, d, log_scale, epsilon, seed):
    """Whatever the history, and however long x is before it is divided by its length."""
    world = world_for(
        "fedals",
        one_and_others(items),
        **(BUDGET | {"epsilon": epsilon, "embedding_size": d, "reg": 1e-9}),
    )
    rng = np.random.default_rng(seed)
    Y = (rng.normal(size=(N_ITEMS, d)) * 10.0**log_scale).astype(np.float32)
    sums = contribution(world, one_and_others(items), Y, [0])
    assert norm(sums) <= plan_of(world).sensitivity


@settings(deadline=None)
@given(
    x=st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=12),
    length=st.integers(0, N_ITEMS),
    sensitivity=st.floats(1.0, 4e6),
)
def test_no_vector_adds_more_than_the_sensitivity(x, length, sensitivity):
    plan = NoisePlan(
        epsilon=1.0, delta=1e-5, releases=1, multiplier=(1 << 20) / sensitivity, log2_sigma=20
    )
    vectors = private_als.unit_vectors(np.array([x], np.float32))
    assert sum(int(entry) ** 2 for entry in vectors[0]) <= SCALE**2
    history = rows_of(list(range(length)))
    sums = private_als.private_sums(history, vectors, N_ITEMS, private_als.scales(plan))
    assert norm(sums) <= plan.sensitivity


@pytest.mark.parametrize("length", [1, 2, 7, N_ITEMS])
def test_the_bound_is_reached(length):
    """A bound that no history comes near would waste the budget."""
    training = one_and_others(list(range(length)))
    world = world_for("fedals", training, **(BUDGET | {"embedding_size": 6}))
    sums = contribution(world, training, fedals.init(world).item_rows, [0])
    assert norm(sums) > 0.99 * plan_of(world).sensitivity


def test_neighbours_differ_by_at_most_the_sensitivity():
    """Remove any one user, and nothing else changes in the sums."""
    training = histories(2, n_users=12)
    world = world_for("fedals", training, **BUDGET)
    Y = fedals.init(world).item_rows
    users = np.flatnonzero(world.members).tolist()
    whole = contribution(world, training, Y, users)
    for left_out in users:
        less = contribution(world, training, Y, [user for user in users if user != left_out])
        difference = {name: whole[name] - less[name] for name in whole}
        assert 0 < norm(difference) <= plan_of(world).sensitivity


def test_vectors_that_are_not_numbers_add_nothing():
    bad = np.array([[np.nan, 1], [np.inf, 1], [0, 0], [3, 4]], np.float32)
    vectors = private_als.unit_vectors(bad)
    assert not vectors[:3].any()
    assert vectors[3] / SCALE == pytest.approx([0.6, 0.8], abs=2e-6)


# What clients send


def test_sums_by_hand():
    vectors = np.array([[SCALE, 0], [3 * SCALE // 5, -(4 * SCALE // 5)]], np.int32)
    scale = VectorScales(counts=100, vectors=1000, gram=10_000)
    sums = private_als.private_sums(rows_of([0, 2], [2]), vectors, 3, scale)
    # Two items: 100 / sqrt 2 = 70, 1000 / sqrt 2 = 707. One item: 100, and 1000 (0.6, -0.8).
    assert sums["items"].tolist() == [[70, 707, 0], [0, 0, 0], [170, 707 + 599, -799]]
    # 0.6^2 + 1, -0.6 0.8 sqrt 2, 0.8^2; all of it rounded towards zero.
    assert sums["users"].tolist() == [3599 + 9999, -6788, 6399]


def test_sums_in_units_of_one():
    vectors = np.array([[0.6, -0.8], [1, 0], [0, 1]])
    scale = VectorScales(counts=1 << 20, vectors=1 << 20, gram=1 << 20)
    history = rows_of([0, 1, 2, 3], [3], [1])
    fixed = np.rint(vectors * SCALE).astype(np.int32)
    noisy = private_als.noisy_sums(
        private_als.private_sums(history, fixed, 4, scale), scale, sigma=2.0**19
    )
    assert pytest.approx([0.5, 1.5, 0.5, 1.5], abs=1e-5) == noisy.c
    assert noisy.B[3] == pytest.approx([1.3, -0.4], abs=1e-5)
    assert pytest.approx(vectors.T @ vectors, abs=1e-5) == noisy.G
    assert (noisy.c_noise, noisy.B_noise) == (0.5, 0.5)


MASKED: dict[str, Any] = {"secure_aggregation": "secagg", "colluders": 0}


@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_secure_aggregation_has_the_same_bits_and_central_noise_is_seeded(participation):
    pytest.importorskip("cryptography")
    training = histories(3, n_users=30)
    given_settings = BUDGET | {"participation": participation}
    plain = play_locally("fedals", training, **given_settings)[0][-1]
    secure = play_locally("fedals", training, **given_settings, **MASKED)[0][-1]
    on_nodes = play_locally("fedals", training, nodes=3, wire=True, **given_settings)[0][-1]
    other = play_locally("fedals", training, seed=1, **given_settings)[0][-1]
    assert (plain.item_rows == secure.item_rows).all()
    assert (plain.item_rows == on_nodes.item_rows).all()
    assert (plain.item_rows != other.item_rows).any()


@pytest.mark.parametrize("who", ["distributed", "local"])
def test_clients_can_draw_the_noise(who):
    pytest.importorskip("cryptography")
    training = histories(3, n_users=30)
    state = play_locally("fedals", training, noise=who, **BUDGET, **MASKED)[0][-1]
    assert np.isfinite(state.item_rows).all()
    assert state.item_rows.any()


# How items are solved


def taste_groups(seed: int = 0, n_users: int = 300) -> TrainingSet:
    """Four groups of users; a user of one mostly has items of the group."""
    rng = np.random.default_rng(seed)
    same = (np.arange(n_users) % 4)[:, None] == (np.arange(N_ITEMS) % 4)[None, :]
    owned = rng.random((n_users, N_ITEMS)) < np.where(same, 0.6, 0.1)
    owned[np.arange(n_users), np.arange(n_users) % 4] = True
    users, items = (part.astype(np.int32) for part in np.nonzero(owned))
    rows = Rows.build(users, items, n_users)
    return TrainingSet(n_users, N_ITEMS, rows, rows, None)


def no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "discrete_gaussian", lambda size, k, words: np.zeros(size, np.int64))


def test_without_noise_a_round_is_weighted_als(monkeypatch):
    """Close to the items that solve ALS with the users' weights, all of it in floating point."""
    no_noise(monkeypatch)
    monkeypatch.setattr(private_als, "ITEM_RIDGE", 1e-3)
    training = taste_groups()
    changes = BUDGET | {"epsilon": MAX_EPSILON, "embedding_size": 3, "rounds": 1, "alpha": 1.0}
    world = world_for("fedals", training, **changes)
    before, after = play_locally("fedals", training, **changes)[0]
    X = least_squares.solve(training.positives, before.item_rows, world.settings).astype(float)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    P = np.zeros((training.n_users, N_ITEMS))
    P[training.users, training.positives.items] = 1
    weight = 1 / np.sqrt(P.sum(axis=1))
    expected = np.empty((N_ITEMS, 3))
    for i in range(N_ITEMS):
        # sum over users of w (1 + p) (p - x . y)^2; alpha is 1.
        confidence = weight * (1 + P[:, i])
        expected[i] = np.linalg.solve((X.T * confidence) @ X, X.T @ (confidence * P[:, i]))
    scores = X @ after.item_rows.T
    assert np.corrcoef(scores.ravel(), (X @ expected.T).ravel())[0, 1] > 0.97
    assert scores.mean() == pytest.approx((X @ expected.T).mean(), rel=0.1)


def test_without_noise_groups_are_told_apart(monkeypatch):
    no_noise(monkeypatch)
    training = taste_groups()
    changes = BUDGET | {"epsilon": MAX_EPSILON, "embedding_size": 8}
    assert group_share(training, changes) > 0.8


def test_with_noise_groups_are_told_apart():
    training = taste_groups(n_users=3000)
    assert group_share(training, BUDGET | {"epsilon": 8.0, "embedding_size": 8}) > 0.8


def group_share(training: TrainingSet, changes: dict[str, Any]) -> float:
    """How often the items with the highest scores are those of the user's group; 0.25 by chance."""
    world = world_for("fedals", training, **changes)
    state = play_locally("fedals", training, **changes)[0][-1]
    X = least_squares.solve(training.positives, state.item_rows, world.settings)
    best = np.argsort(-(X @ state.item_rows.T), axis=1)[:, : N_ITEMS // 4]
    return float((best % 4 == (np.arange(len(X)) % 4)[:, None]).mean())


def drawn(
    n_items: int, size: float, B_noise: float, seed: int = 0
) -> tuple[NoisyVectorSums, Floats]:
    """Noisy sums of items whose rests have the covariance `size` c_i in two directions."""
    rng = np.random.default_rng(seed)
    c = rng.pareto(1.5, n_items) * 10 + 1
    mean = np.array([0.6, 0, 0, 0])
    rest = np.zeros((n_items, 4))
    rest[:, 1:3] = rng.normal(size=(n_items, 2)) * np.sqrt(size * c)[:, None]
    B = np.outer(c, mean) + rest
    noisy = NoisyVectorSums(
        c=c + rng.normal(size=n_items),
        c_noise=1.0,
        B=B + rng.normal(size=B.shape) * B_noise,
        B_noise=B_noise,
        G=np.eye(4) * 250,
    )
    return noisy, B.astype(np.float32)


def test_shrinkage_is_closer_than_what_was_released():
    noisy, B = drawn(2000, size=1.0, B_noise=3.0)
    _, found = private_als.denoised(noisy)
    released = float(((noisy.B - B) ** 2).sum())
    assert float(((found - B) ** 2).sum()) < 0.5 * released


def test_rests_of_noise_alone_are_dropped():
    rest = np.random.default_rng(0).normal(size=(2000, 4)) * 3
    found = private_als.shrunk(rest, np.ones(2000), 3.0)
    assert np.linalg.norm(found) < 0.1 * np.linalg.norm(rest)


@pytest.mark.parametrize("c", [0.0, -5.0])
def test_sums_without_signal_give_rows_of_zero(c):
    rng = np.random.default_rng(0)
    noisy = NoisyVectorSums(np.full(30, c), 1.0, rng.normal(size=(30, 4)), 1.0, -np.eye(4))
    Y = private_als.solve_items(noisy, 10, 5.0)
    assert Y.dtype == np.float32
    assert (Y == 0).all()


# Settings


def test_blocks_are_refused():
    with pytest.raises(ConfigError, match=r"'block_size' is 2.*expected 0.*Set block_size=0"):
        api.run("fedals", epsilon=1.0, block_size=2)


def test_ratings_are_refused():
    training = histories(0, rated=True)
    world = world_for("fedals", training, **BUDGET)
    with pytest.raises(ConfigError, match=r"'feedback' is 'explicit'.*expected 'implicit'"):
        fedals.init(world)


def test_defaults_under_a_budget():
    chosen = registry.algorithm("fedals")
    plain = chosen.settings.of({})
    private = chosen.settings.of({"epsilon": 1.0})
    assert (plain.rounds, plain.embedding_size) == (10, 64)
    assert (private.rounds, private.embedding_size) == (2, 16)
    given_values = chosen.settings.of({"epsilon": 1.0, "rounds": 5, "reg": 0.2})
    assert (given_values.rounds, given_values.embedding_size, given_values.reg) == (5, 16, 0.2)
    assert chosen.settings.of(private.model_dump()) == private
    assert chosen.kernels_for(private)[-1] == "discrete_gaussian"


def test_reg_does_not_depend_on_interactions():
    private = fedals.FedALS.of({"epsilon": 1.0})
    few = DataSize(users=100, items=50, interactions=200, rated=False)
    many = few._replace(interactions=4000)
    assert private.for_data(few) == private.for_data(many)
    assert private.for_data(few).reg == private_als.REG
    plain = fedals.FedALS.of({})
    assert plain.for_data(few).reg != plain.for_data(many).reg


def test_the_plan_counts_every_round():
    world = world_for("fedals", histories(0), **(BUDGET | {"rounds": 3}))
    plan = plan_of(world)
    assert plan.releases == 3
    assert plan.sigma / plan.sensitivity == pytest.approx(plan.multiplier)
