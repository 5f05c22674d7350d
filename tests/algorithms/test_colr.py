"""CoLR: rounds equal a slow twin, full rank is matrix factorisation, and rank sets the bytes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pytest
from drawn_samples import by_user
from pydantic import ValidationError
from slow_colr import local_training, server_step
from small_federation import histories, play, play_locally, sha256, world_for

from coterie import kernels
from coterie.algorithms import colr
from coterie.algorithms.local.samples import draw
from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.federated.federation import World
from coterie.kernels.fallback import colr as without_numba
from coterie.testing import FederatedAlgorithmTests

FEW: dict[str, Any] = {
    "embedding_size": 5,
    "rank": 2,
    "rounds": 3,
    "participation": 0.5,
    "learning_rate": 0.3,
    "reg": 0.05,
    "start_scale": 0.5,
}


class TestConformance(FederatedAlgorithmTests):
    algorithm = "colr"


class TestConformanceOfOneBasis(FederatedAlgorithmTests):
    algorithm = "colr"
    settings: ClassVar[dict[str, Any]] = {
        "basis": "once",
        "directions": "gaussian",
        "average": "all",
        "batch_size": 8,
    }


# Rounds


def rounds_of_the_twin(world: World, training: TrainingSet, states: list[Any], cohorts: list[Any]):
    """Item rows and user rows after every round, each from the state before it."""
    s = world.settings
    (node,) = LocalEngine.over(world, training, 1).nodes
    for t, cohort in enumerate(cohorts):
        P = states[t].user_rows.astype(float)
        Q = colr.model(world, states[t]).item_rows.astype(float)
        B = colr.draw_basis(world, t).astype(float)
        samples = by_user(draw(world, cohort, t, node))
        sent = []
        for k, own in zip(cohort.tolist(), samples, strict=True):
            P[k], A = local_training(P[k], Q, B, own, s)
            sent.append(A)
        yield P, server_step(Q, B, sent, samples, s.average)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"basis": "once"},
        {"directions": "gaussian", "average": "all"},
        {"batch_size": 7, "scaled_steps": False},
        {"batch_size": 1000, "basis": "once", "rank": 5},
    ],
)
def test_rounds_equal_the_twin(changes):
    training = histories(4, n_users=14, n_items=11)
    world = world_for("colr", training, **FEW | changes)
    states, all_costs = play("colr", world, LocalEngine.over(world, training, 1))
    cohorts = [costs.users for costs in all_costs]
    twin = rounds_of_the_twin(world, training, states, cohorts)
    for t, (P, Q) in enumerate(twin):
        after = colr.model(world, states[t + 1])
        np.testing.assert_allclose(after.user_rows, P, atol=2e-5, rtol=0)
        np.testing.assert_allclose(after.item_rows, Q, atol=2e-5, rtol=0)
        assert np.abs(Q - colr.model(world, states[t]).item_rows).max() > 0.01


@pytest.mark.parametrize("batch_size", [1, 6])
def test_the_fallback_equals_the_kernel(batch_size):
    training = histories(3, n_users=14, n_items=11)
    world = world_for("colr", training, **FEW)
    (node,) = LocalEngine.over(world, training, 1).nodes
    samples = draw(world, np.arange(14, dtype=np.int32), 0, node)
    rng = np.random.default_rng(0)
    P = rng.normal(0, 0.5, (14, 5)).astype(np.float32)
    Q = rng.normal(0, 0.5, (11, 5)).astype(np.float32)
    found = []
    for module in (kernels.load("colr"), without_numba):
        after = np.full_like(P, 9)
        factors = np.full((len(samples.items), 2), 9, np.int32)
        module.train(
            samples.offsets,
            samples.items,
            samples.starts,
            samples.places,
            samples.targets,
            P,
            Q,
            colr.draw_basis(world, 0),
            0.3,
            0.2,
            0.05,
            batch_size,
            0,
            14,
            after,
            factors,
        )
        found.append((after, factors / 2**20))
    for by_kernel, by_fallback in zip(*found, strict=True):
        np.testing.assert_allclose(by_kernel, by_fallback, atol=1e-5, rtol=0)
    assert np.abs(found[0][1]).max() > 0.01


# B


def test_directions_are_orthonormal_and_anew_in_every_round():
    world = world_for("colr", histories(1), embedding_size=9, rank=4)
    first = colr.draw_basis(world, 0)
    np.testing.assert_allclose(first @ first.T, 9 / 4 * np.eye(4), atol=1e-6)
    np.testing.assert_array_equal(first, colr.draw_basis(world, 0))
    assert np.abs(first - colr.draw_basis(world, 1)).max() > 0.1
    once = world_for("colr", histories(1), embedding_size=9, rank=4, basis="once")
    np.testing.assert_array_equal(colr.draw_basis(once, 0), colr.draw_basis(once, 7))


def test_gaussian_directions_have_the_variance_of_the_rank():
    world = world_for("colr", histories(1), embedding_size=400, rank=25, directions="gaussian")
    assert colr.draw_basis(world, 0).var() == pytest.approx(1 / 25, rel=0.05)


def test_at_full_rank_any_directions_give_matrix_factorisation():
    """An update is then A B with B a rotation, so that rounds do not depend on B."""
    training = histories(5, n_users=14, n_items=11)
    full = FEW | {"rank": 5}
    world = world_for("colr", training, **full)
    other = world_for("colr", training, **full | {"basis": "once"})
    found = [
        colr.model(w, play("colr", w, LocalEngine.over(w, training, 1))[0][-1])
        for w in (world, other)
    ]
    np.testing.assert_allclose(found[0].item_rows, found[1].item_rows, atol=1e-4)
    np.testing.assert_allclose(found[0].user_rows, found[1].user_rows, atol=1e-4)


def test_updates_of_all_clients_have_the_rank_together():
    """What lets the server add up: the change of the whole table is of that rank too."""
    training = histories(5, n_users=14, n_items=11)
    states, _ = play_locally("colr", training, **FEW)
    changes = [b.item_rows - a.item_rows for a, b in pairwise(states)]
    for change in changes:
        assert np.linalg.matrix_rank(change, tol=1e-5) == 2
    assert np.linalg.matrix_rank(np.concatenate(changes, axis=0), tol=1e-4) > 2
    once, _ = play_locally("colr", training, **FEW, basis="once")
    assert np.linalg.matrix_rank(once[-1].factors, tol=1e-5) == 2


# What leaves a client


def test_the_rank_sets_the_bytes_up_and_with_one_basis_down():
    training = histories(6, n_users=18, n_items=15)
    sent = {
        (rank, basis): play_locally("colr", training, **FEW | {"rank": rank, "basis": basis})[1][0]
        for rank in (1, 5)
        for basis in ("anew", "once")
    }
    few, many = sent[1, "anew"], sent[5, "anew"]
    n_rows = (many.bytes_up - few.bytes_up) / 4 / 4
    assert n_rows == int(n_rows) > 0
    assert few.bytes_down == many.bytes_down
    assert sent[1, "once"].bytes_up == few.bytes_up
    assert few.bytes_down - sent[1, "once"].bytes_down >= 15 * 4 * 4


@pytest.mark.parametrize("basis", ["anew", "once"])
def test_secure_aggregation_gives_the_same_bits_and_costs_by_rank(basis):
    training = histories(6, n_users=30, n_items=40)
    changes = FEW | {"participation": 1.0, "basis": basis}
    secure = {"secure_aggregation": "secagg", "colluders": 0, "group_size": 20}
    plain, _ = play_locally("colr", training, wire=True, **changes)
    masked, costs = play_locally("colr", training, wire=True, **changes, **secure)
    assert sha256(plain[-1]) == sha256(masked[-1])
    _, more = play_locally("colr", training, wire=True, **changes | {"rank": 5}, **secure)
    # Three numbers more for each of 40 items, in words of 32 bits, from each of 29 clients.
    assert more[0].bytes_up - costs[0].bytes_up == 29 * 40 * 3 * 4


def test_user_rows_are_in_no_update():
    training = histories(3)
    world = world_for("colr", training, **FEW)
    engine = LocalEngine.over(world, training, 1)
    users = np.arange(4, dtype=np.int32)
    own = engine.gather(colr.init_clients)["user_rows"][users]
    message = colr.broadcast(world, colr.init(world), users, 0)
    updates, private = colr.client_update(
        world, replace(message, private_state={"user_rows": own}), engine.nodes[0]
    )
    assert updates.user_rows.shape == (4, 0)
    assert updates.item_rows.shape[1] == 2
    assert (updates.samples == 1).all()
    assert not np.array_equal(private["user_rows"], own)


def test_a_rank_above_the_size_is_refused():
    with pytest.raises(ValidationError, match=r"'rank' is 9.*Set rank=8 or less"):
        colr.CoLR(rank=9, embedding_size=8)
