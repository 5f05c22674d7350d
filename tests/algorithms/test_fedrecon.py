"""FedRecon: rounds equal a slow twin, halves are halves, and rows depend on histories alone."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from drawn_samples import by_user
from slow_fedrecon import reconstruct, server_update, update
from small_federation import histories, play, play_locally, sha256, world_for

from coterie.algorithms import fedrecon
from coterie.algorithms.local.samples import draw_from
from coterie.algorithms.server_optimiser import Optimised, server_step
from coterie.core import streams
from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.federated.federation import World
from coterie.models.new_user import NewUser
from coterie.testing import FederatedAlgorithmTests
from coterie.types import Rows

FEW: dict[str, Any] = {
    "embedding_size": 3,
    "participation": 0.5,
    "batch_size": 3,
    "learning_rate": 0.3,
    "reconstruction_epochs": 2,
    "start_scale": 0.4,
}


class TestConformance(FederatedAlgorithmTests):
    algorithm = "fedrecon"


class TestConformanceOfThePapersSettings(FederatedAlgorithmTests):
    algorithm = "fedrecon"
    settings: ClassVar[dict[str, Any]] = {
        "average": "all",
        "weights": "samples",
        "biases": False,
        "support_split": "fixed",
        "user_start": "random",
        "server_optimizer": "adam",
    }


# Rounds


def twin_round(
    world: World, training: TrainingSet, g: np.ndarray, cohort: np.ndarray, t: int
) -> np.ndarray:
    """One round, client by client, on the halves and the samples that clients drew."""
    s = world.settings
    (node,) = LocalEngine.over(world, training, 1).nodes
    rated = training.ratings is not None
    history = training.of_users(cohort)

    def keys(purpose: str, t: int) -> np.ndarray:
        return streams.keys(node.seed, purpose, t, last=cohort)

    support = query = history
    if s.support_split != "none":
        drawn_in = t if s.support_split == "anew" else 0
        support, query = fedrecon.halves(history, keys("support and query", drawn_in))
    everyone = np.arange(len(cohort))
    to_reconstruct = keys("reconstruct", t)
    first = by_user(
        draw_from(support, everyone, s.negatives, s.reconstruction_epochs, to_reconstruct)
    )
    then = by_user(draw_from(query, everyone, s.negatives, s.local_epochs, keys("samples", t)))
    starts = fedrecon.start_rows(s, to_reconstruct)
    copies = []
    for k in range(len(cohort)):
        local = reconstruct(first[k], starts[k], g, s, rated)
        copies.append(update(then[k], local, g, s, rated))
    touched = [{item for item, _ in samples} for samples in then]
    n = [len(samples) if s.weights == "samples" else 1 for samples in then]
    return server_update(g, copies, touched, n, s)


@pytest.mark.parametrize(
    ("rated", "changes"),
    [
        (False, {}),
        (True, {}),
        (
            True,
            {"biases": False, "support_split": "fixed", "user_start": "random", "average": "all"},
        ),
        (False, {"support_split": "none", "weights": "samples", "local_epochs": 2, "reg": 0.1}),
        (True, {"reconstruction_steps": 2, "update_steps": 1, "server_learning_rate": 0.5}),
    ],
)
def test_rounds_equal_the_twin(rated, changes):
    training = histories(4, n_users=11, n_items=9, rated=rated)
    world = world_for("fedrecon", training, rounds=2, **(FEW | changes))
    states, all_costs = play("fedrecon", world, LocalEngine.over(world, training, 1))
    for t, costs in enumerate(all_costs):
        g = states[t].global_rows.astype(float)
        expected = twin_round(world, training, g, costs.users, t)
        np.testing.assert_allclose(states[t + 1].global_rows, expected, atol=2e-5, rtol=0)
        assert np.abs(expected - g).max() > 0.01


def test_the_server_moves_by_adam():
    """By hand: delta 2, then m = 0.2, v = 0.04 and a step of eta 0.2 / (0.2 + 0.001)."""
    settings = fedrecon.FedRecon(server_optimizer="adam", server_learning_rate=0.5)
    before = Optimised.begin(np.ones((1, 1), np.float32))
    after = server_step(settings, before, np.full((1, 1), 2.0))
    assert float(after.values[0, 0]) == pytest.approx(1 + 0.5 * 0.2 / 0.201)
    assert float(after.first_moment[0, 0]) == pytest.approx(0.2)
    assert float(after.second_moment[0, 0]) == pytest.approx(0.04)


def test_a_reconstruction_by_hand():
    """Item (1; 0), rating 3, from zero: errors -3 and -1.8, steps of 0.2 on the row and bias."""
    settings = fedrecon.FedRecon(
        embedding_size=1, reconstruction_epochs=2, batch_size=1, reconstruction_rate=0.2, reg=0
    )
    rows = Rows(np.array([0, 1]), np.zeros(1, np.int32))
    support = TrainingSet(1, 1, rows, rows, np.array([3.0], np.float32))
    g = np.array([[1.0, 0.0]], np.float32)
    found = fedrecon.reconstruct(support, g, settings, np.zeros(1, np.uint64))
    np.testing.assert_allclose(found, [[0.6 + 0.36, 0.6 + 0.36]], rtol=1e-6)


# Support and query sets


def test_halves_are_disjoint_and_complete():
    training = histories(1, n_users=30, n_items=14, rated=True)
    support, query = fedrecon.halves(training, streams.keys(5, "x", last=np.arange(30)))
    for user in range(30):
        own = training.positives.of(user).tolist()
        first = support.positives.of(user).tolist()
        second = query.positives.of(user).tolist()
        if len(own) == 1:
            assert first == second == own
        else:
            assert sorted(first + second) == own
            assert len(first) == (len(own) + 1) // 2
    table = ratings_table(training)
    for part in (support, query):
        assert (ratings_table(part) == table)[ratings_table(part) > 0].all()


def ratings_table(part: TrainingSet) -> np.ndarray:
    """(users, items) ratings, 0 where there is none"""
    table = np.zeros((part.n_users, part.n_items))
    table[part.users, part.positives.items] = part.ratings
    return table


def test_halves_are_random_and_do_not_depend_on_other_users():
    """Every item of a history of six is in the support set of half of 400 draws, about."""
    training = histories(2, n_users=4, n_items=6)
    all_items = training.of_users(np.array([3]))
    counts = np.zeros(6)
    for seed in range(400):
        keys = streams.keys(seed, "x", last=np.arange(4))
        support, _ = fedrecon.halves(training, keys)
        alone, _ = fedrecon.halves(all_items, keys[3:])
        np.testing.assert_array_equal(support.positives.of(3), alone.positives.of(0))
        counts[alone.positives.items] += 1
    assert counts.sum() == 400 * 3
    assert np.abs(counts - 200).max() < 50


def test_negatives_of_a_half_exclude_the_other_half():
    training = histories(3, n_users=10, n_items=15)
    keys = streams.keys(1, "x", last=np.arange(10))
    _, query = fedrecon.halves(training, keys)
    samples = by_user(draw_from(query, np.arange(10), 4, 3, keys))
    for user in range(10):
        own = set(training.positives.of(user).tolist())
        assert not own & {item for item, target in samples[user] if target == 0}


# Nothing is stored, and new users are served as members are


def test_no_user_row_is_in_the_state_or_in_a_message():
    training = histories(3)
    states, _ = play_locally("fedrecon", training, **FEW)
    assert set(states[-1].arrays()) == {"global_rows", "first_moment", "second_moment"}
    assert not states[-1].private


@pytest.mark.parametrize("user_start", ["zero", "random"])
def test_a_new_user_gets_the_scores_of_a_member_with_the_same_history(user_start):
    """Bit for bit: both are reconstructed from the history alone."""
    training = histories(5, n_users=20, n_items=15)
    world = world_for("fedrecon", training, **FEW, user_start=user_start)
    engine = LocalEngine.over(world, training, 1)
    state = play("fedrecon", world, engine)[0][-1]
    model = fedrecon.model(world, state)
    (node,) = engine.nodes
    rows = fedrecon.own_rows(world, state, node)["user_rows"]
    for user in range(18):
        new = NewUser(items=training.positives.of(user))
        member = model.score_row(rows[user])
        np.testing.assert_array_equal(fedrecon.score_new_user(model, new, world.settings), member)


def test_a_fixed_split_repeats_and_a_new_one_does_not():
    training = histories(6, n_users=20, n_items=15)
    first = sha256(play_locally("fedrecon", training, **FEW, support_split="fixed")[0][-1])
    assert first == sha256(play_locally("fedrecon", training, **FEW, support_split="fixed")[0][-1])
    assert first != sha256(play_locally("fedrecon", training, **FEW, support_split="anew")[0][-1])
