"""PFedRec: rounds equal a slow twin with whole tables, and what leaves a client is what it says."""

from __future__ import annotations

from math import exp
from typing import Any

import numpy as np
import pytest
from drawn_batches import batches_of
from slow_pfedrec import Client, aggregate, aggregate_touched, client_update
from small_federation import histories, play, play_locally, world_for

from coterie.algorithms import pfedrec, registry
from coterie.algorithms.local import item_tables
from coterie.algorithms.local.samples import draw
from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.errors import ConfigError
from coterie.models.new_user import NewUser
from coterie.types import SCALE, TOO_LARGE, Rows

FEW: dict[str, Any] = {
    "rounds": 4,
    "learning_rate": 0.5,
    "item_rate": 2.0,
    "batch_size": 8,
    "local_epochs": 2,
}


@pytest.mark.parametrize("embedding_size", [3, 8, 13])
@pytest.mark.parametrize(("participation", "average"), [(1.0, "all"), (0.4, "touched")])
def test_rounds_equal_the_slow_twin(
    embedding_size: int, participation: float, average: str
) -> None:
    training = histories(3)
    changes = FEW | {"embedding_size": embedding_size, "participation": participation}
    changes |= {"average": average}
    world = world_for("pfedrec", training, **changes)
    states, costs = play("pfedrec", world, LocalEngine.over(world, training, 1))
    q = states[0].item_rows.astype(float)
    clients = [Client(w[:-1].astype(float), float(w[-1]), q) for w in states[0].score_functions]
    for t, (after, cost) in enumerate(zip(states[1:], costs, strict=True)):
        uploaded = []
        batches = batches_of(world, cost.users, t, training)
        for u, own in zip(cost.users.tolist(), batches, strict=True):
            clients[u] = client_update(
                Client(clients[u].w, clients[u].b, q),
                own,
                world.settings.learning_rate,
                world.settings.item_learning_rate(world.n_items),
            )
            uploaded.append(clients[u].q)
        touched = [{item for batch in own for item, _ in batch} for own in batches]
        q = aggregate(uploaded) if average == "all" else aggregate_touched(q, uploaded, touched)
        np.testing.assert_allclose(after.item_rows, q, atol=3e-4)
        for u, client in enumerate(clients):
            np.testing.assert_allclose(after.score_functions[u, :-1], client.w, atol=3e-4)
            np.testing.assert_allclose(after.scores[u], client.scores(), atol=2e-3)


def test_one_sample_by_hand() -> None:
    """One client, one item, which it has: no negative can be drawn."""
    rows = Rows(np.array([0, 1]), np.array([0], np.int32))
    training = TrainingSet(1, 1, rows, rows, None)
    settings: dict[str, Any] = {"embedding_size": 1, "learning_rate": 0.5, "item_rate": 4.0}
    world = world_for("pfedrec", training, rounds=1, participation=1.0, **settings)
    (before, after), _ = play("pfedrec", world, LocalEngine.over(world, training, 1))
    (q,) = before.item_rows[0].tolist()
    w, b = before.score_functions[0].tolist()
    error = 1 / (1 + exp(-(w * q + b))) - 1
    w, b = w - 0.5 * error * q, b - 0.5 * error
    error = 1 / (1 + exp(-(w * q + b))) - 1
    q = q - 0.5 * 1 * 4.0 * error * w
    np.testing.assert_allclose(after.score_functions[0], [w, b], rtol=1e-5)
    np.testing.assert_allclose(after.item_rows[0], [q], rtol=1e-5)
    np.testing.assert_allclose(after.scores[0], [w * q + b], rtol=1e-5)


def test_updates_have_rows_of_trained_items_alone() -> None:
    training = histories(0)
    world = world_for("pfedrec", training, participation=1.0)
    engine = LocalEngine.over(world, training, 1)
    state, _ = play("pfedrec", world, engine)
    cohort = np.flatnonzero(world.members).astype(np.int32)
    message = pfedrec.broadcast(world, state[0], cohort, 0)
    message.private_state.update(score_functions=state[0].score_functions[cohort])
    updates, private = pfedrec.client_update(world, message, engine.nodes[0])
    drawn = draw(world, cohort, 0, engine.nodes[0])
    np.testing.assert_array_equal(updates.items, drawn.items)
    assert updates.user_rows.size == updates.dense.size == 0
    assert set(private) == {"score_functions", "scores"}
    assert list(message.common) == ["item_rows"]


@pytest.mark.parametrize("embedding_size", [5, 16])
def test_the_single_pass_equals_updates_and_their_sums(embedding_size: int) -> None:
    training = histories(4)
    world = world_for("pfedrec", training, participation=1.0, embedding_size=embedding_size)
    (node,) = LocalEngine.over(world, training, 1).nodes
    cohort = np.flatnonzero(world.members).astype(np.int32)
    message = pfedrec.broadcast(world, pfedrec.init(world), cohort, 0)
    initial = pfedrec.init_clients(world, node)
    message.private_state.update({name: rows[cohort] for name, rows in initial.items()})
    updates, private = pfedrec.client_update(world, message, node)
    single = pfedrec.single_pass(world, message, node)
    assert single is not None
    summed = item_tables.add_up(world, message, updates)
    for name in ("items", "touched"):
        np.testing.assert_array_equal(single.sums[name], summed[name])
    np.testing.assert_array_equal(single.n_rows, np.diff(updates.offsets))
    for name, rows in private.items():
        np.testing.assert_array_equal(single.private_state[name], rows)


def test_updates_out_of_range_are_refused_one_by_one() -> None:
    """Item rows of a hundred move the score function so far that changes leave the range."""
    training = histories(4)
    changes: dict[str, Any] = {"start_scale": 100.0, "learning_rate": 3.0, "item_rate": 0.01}
    _, costs = play_locally("pfedrec", training, participation=1.0, rounds=1, **changes)
    assert costs[0].refused["out of range"] > 0
    assert costs[0].accepted > 0


def test_a_diverging_client_does_not_affect_others() -> None:
    """Five dimensions: rows are padded, and the padding of a diverging client is not a number."""
    training = histories(4)
    world = world_for("pfedrec", training, participation=1.0, embedding_size=5)
    (node,) = LocalEngine.over(world, training, 1).nodes
    cohort = np.flatnonzero(world.members).astype(np.int32)
    message = pfedrec.broadcast(world, pfedrec.init(world), cohort, 0)
    initial = pfedrec.init_clients(world, node)
    message.private_state.update({name: rows[cohort] for name, rows in initial.items()})
    usual, private = pfedrec.client_update(world, message, node)
    message.private_state["score_functions"][0] = 1e30
    with np.errstate(invalid="ignore"):
        found, after = pfedrec.client_update(world, message, node)
    first = slice(*usual.offsets[:2])
    assert (np.abs(found.item_rows[first].astype(np.int64)) >= TOO_LARGE).any()
    np.testing.assert_array_equal(found.item_rows[first.stop :], usual.item_rows[first.stop :])
    for name, rows in private.items():
        np.testing.assert_array_equal(after[name][1:], rows[1:])
    assert pfedrec.single_pass(world, message, node) is None


def test_clients_that_did_not_take_part_are_as_before() -> None:
    states, costs = play_locally("pfedrec", histories(1), participation=0.3)
    others = np.setdiff1d(np.arange(12), costs[0].users)
    assert len(others)
    for name in ("scores", "score_functions"):
        before, after = (getattr(state, name) for state in states[:2])
        np.testing.assert_array_equal(before[others], after[others])
        assert (before[costs[0].users] != after[costs[0].users]).any(axis=1).all()


@pytest.mark.parametrize(("item_rate", "wanted"), [(0.0, 1.0), (0.001, 1.0), (80.0, 8.0)])
def test_the_unit_of_updates_follows_the_item_learning_rate(
    item_rate: float, wanted: float
) -> None:
    """0.1 * 15 items * 80 = 120; 120 / 16 = 7.5, and 8 is the next power of two."""
    world = world_for("pfedrec", histories(0), learning_rate=0.1, item_rate=item_rate)
    assert pfedrec.unit(world) == wanted
    assert wanted * item_tables.STEPS_IN_RANGE * SCALE >= 0.1 * 15 * item_rate * SCALE


def test_scores_of_many_users_and_items_are_refused_by_name() -> None:
    world = world_for("pfedrec", histories(0), max_memory=1e-9)
    with pytest.raises(ConfigError, match=r"15 items .* 12 users; max_memory allows 1e-09"):
        pfedrec.init(world)


def test_a_new_user_gets_the_items_of_users_alike() -> None:
    """Two groups of users with items of their own; a new user has two items of the first."""
    group = np.repeat(np.arange(20), 5)
    items = (group % 2) * 6 + np.tile(np.arange(5), 20)
    rows = Rows.build(group.astype(np.int32), items.astype(np.int32), 20)
    training = TrainingSet(20, 12, rows, rows, None)
    changes: dict[str, Any] = {"learning_rate": 0.3, "item_rate": 0.5, "average": "all"}
    states, _ = play_locally(
        "pfedrec", training, participation=1.0, rounds=150, start_scale=0.3, **changes
    )
    model = pfedrec.model(world_for("pfedrec", training), states[-1])
    chosen = registry.algorithm("pfedrec")
    assert chosen.score_new_user is not None
    history = np.array([0, 1], np.int32)
    scores = chosen.score_new_user(model, NewUser(items=history), chosen.settings.of({}))
    assert scores[2:5].min() > scores[6:11].max()
