"""FedMF: rounds equal a slow twin, and the literal reading descends the cost function."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from drawn_samples import by_user
from small_federation import histories, play, play_locally, sha256, world_for

from coterie.algorithms import fedmf
from coterie.algorithms.local.samples import draw_from
from coterie.core import streams
from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.federated.federation import World
from coterie.models.new_user import NewUser
from coterie.models.private_factors import PrivateFactors
from coterie.testing import FederatedAlgorithmTests

FEW: dict[str, Any] = {
    "embedding_size": 3,
    "rounds": 3,
    "learning_rate": 0.02,
    "reg_user": 0.1,
    "reg_item": 0.2,
    "start_scale": 0.5,
}


class TestConformance(FederatedAlgorithmTests):
    algorithm = "fedmf"


class TestConformanceOfFullUpdates(FederatedAlgorithmTests):
    algorithm = "fedmf"
    settings: ClassVar[dict[str, Any]] = {"updates": "full", "reading": "literal"}


# Rounds


def twin_round(
    world: World, training: TrainingSet, state: fedmf.FedMFState, cohort: np.ndarray, t: int
) -> tuple[np.ndarray, np.ndarray]:
    """One round, client by client and rating by rating, in double precision."""
    s = world.settings
    (node,) = LocalEngine.over(world, training, 1).nodes
    keys = streams.keys(node.seed, "samples", t, last=cohort)
    samples = by_user(draw_from(training, cohort.astype(np.int64), s.negatives, 1, keys))
    P = state.user_rows.astype(float)
    Q = state.item_rows.astype(float)
    total = np.zeros_like(Q)
    for u, own in zip(cohort.tolist(), samples, strict=True):
        p = P[u].copy()
        if s.reading == "authors":
            for i, r in own:
                e = r - p @ Q[i]
                p = p - s.learning_rate * (-2 * e * Q[i] + 2 * s.reg_user * p)
                total[i] += s.learning_rate * (-2 * e * p + 2 * s.reg_item * Q[i])
        else:
            errors = [(i, r - p @ Q[i]) for i, r in own]
            for i, e in errors:
                total[i] += s.learning_rate * -2 * e * p
            step = sum((-2 * e * Q[i] for i, e in errors), 2 * s.reg_user * p)
            p = p - s.learning_rate * step
        P[u] = p
    if s.reading == "literal":
        total += s.learning_rate * 2 * s.reg_item * Q
    return P, Q - total


@pytest.mark.parametrize("rated", [True, False])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"reading": "literal"},
        {"updates": "full", "participation": 0.4},
        {"start": "constant", "reading": "literal", "embedding_size": 1},
    ],
)
def test_rounds_equal_the_twin(changes, rated):
    training = histories(4, n_users=14, n_items=11, rated=rated)
    world = world_for("fedmf", training, **(FEW | {"participation": 1.0} | changes))
    states, all_costs = play("fedmf", world, LocalEngine.over(world, training, 1))
    for t, costs in enumerate(all_costs):
        P, Q = twin_round(world, training, states[t], costs.users, t)
        np.testing.assert_allclose(states[t + 1].user_rows, P, atol=2e-5, rtol=0)
        np.testing.assert_allclose(states[t + 1].item_rows, Q, atol=2e-5, rtol=0)
        assert np.abs(Q - states[t].item_rows).max() > 0.01


def cost(training: TrainingSet, P: np.ndarray, Q: np.ndarray, s: fedmf.FedMF) -> float:
    """J"""
    errors = training.ratings - (P[training.users] * Q[training.positives.items]).sum(axis=1)
    rated = training.positives.counts > 0
    penalty = s.reg_user * (P[rated] ** 2).sum() + s.reg_item * (Q**2).sum()
    return float((errors**2).sum() + penalty)


def test_a_literal_round_of_all_users_is_a_gradient_step_of_the_cost():
    """Against central differences of J by every entry of P and Q."""
    training = histories(1, n_users=8, n_items=6, rated=True)
    world = world_for(
        "fedmf", training, **(FEW | {"reading": "literal", "rounds": 1, "participation": 1.0})
    )
    (before, after), _ = play("fedmf", world, LocalEngine.over(world, training, 1))
    s = world.settings
    P = before.user_rows.astype(float)
    Q = before.item_rows.astype(float)
    for values, moved in ((P, after.user_rows), (Q, after.item_rows)):
        for place in np.ndindex(*values.shape):
            kept = values[place]
            values[place] = kept + 1e-5
            ahead = cost(training, P, Q, s)
            values[place] = kept - 1e-5
            behind = cost(training, P, Q, s)
            values[place] = kept
            step = s.learning_rate * (ahead - behind) / 2e-5
            assert moved[place] == pytest.approx(kept - step, abs=2e-5)


def test_full_and_part_give_the_same_bits_and_other_costs():
    training = histories(6, n_users=18, n_items=15, rated=True)
    part, few = play_locally("fedmf", training, **FEW)
    full, many = play_locally("fedmf", training, **FEW, updates="full")
    assert [sha256(state) for state in part] == [sha256(state) for state in full]
    assert many[0].bytes_up > few[0].bytes_up
    wired, sent = play_locally("fedmf", training, wire=True, **FEW, updates="full")
    assert sha256(wired[-1]) == sha256(full[-1])
    assert sent[0].bytes_up == many[0].bytes_up


def test_part_updates_name_the_rated_items_and_full_ones_do_not():
    training = histories(6, n_users=5, n_items=9, rated=True)
    users = np.array([0, 2], np.int32)
    for updates in ("part", "full"):
        world = world_for("fedmf", training, **FEW, updates=updates)
        engine = LocalEngine.over(world, training, 1)
        own = engine.gather(fedmf.init_clients)["user_rows"][users]
        message = fedmf.broadcast(world, fedmf.init(world), users, 0)
        message.private_state["user_rows"] = own
        result = fedmf.client_update(world, message, engine.nodes[0])
        assert isinstance(result, tuple)
        sent = result[0]
        for k, user in enumerate(users.tolist()):
            items = sent.items[sent.offsets[k] : sent.offsets[k + 1]]
            rows = sent.item_rows[sent.offsets[k] : sent.offsets[k + 1]]
            rated = training.positives.of(user)
            wanted = rated if updates == "part" else np.arange(9)
            np.testing.assert_array_equal(items, wanted)
            np.testing.assert_array_equal(items[rows.any(axis=1)], rated)


def test_from_a_constant_all_coordinates_stay_equal():
    """What the authors' start values do: a hundred coordinates are one."""
    training = histories(2, n_users=12, n_items=10, rated=True)
    changes = FEW | {"embedding_size": 5, "start": "constant", "rounds": 6}
    state = play_locally("fedmf", training, **changes)[0][-1]
    for rows in (state.user_rows, state.item_rows):
        assert rows.std() > 0.01
        np.testing.assert_allclose(rows, np.repeat(rows[:, :1], 5, axis=1), atol=1e-5)


def test_a_new_user_by_hand():
    """One item, 2, and no other: target 1, so that p = 2 / (4 + ridge) and the score is 2 p."""
    model = PrivateFactors(
        np.zeros((1, 1), np.float32), np.full((1, 1), 2, np.float32), np.zeros(1, np.float32)
    )
    user = NewUser(items=np.zeros(1, np.int32))
    found = fedmf.score_new_user(model, user, fedmf.FedMF(reg_user=1.0))
    assert float(found[0]) == pytest.approx(4 / 5)


# Virtual ratings (FedRec)


def virtual_samples(
    training: TrainingSet, t: int, s: fedmf.FedMF, P: np.ndarray, Q: np.ndarray, drawn: Any
) -> list[list[tuple[int, float]]]:
    """The samples of every user, as the paper has them: r' of y r + (1 - y) r'."""
    found = []
    for u, own in enumerate(drawn):
        rated = dict(zip(training.positives.of(u).tolist(), ratings_of(training, u), strict=True))
        mean = np.mean(list(rated.values())) if rated else 0.0
        predict = s.virtual_ratings == "hybrid" and t >= s.hybrid_from
        found.append([(i, rated.get(i, P[u] @ Q[i] if predict else mean)) for i, _ in own])
    return found


def ratings_of(training: TrainingSet, user: int) -> list[float]:
    assert training.ratings is not None
    offsets = training.positives.offsets
    return training.ratings[offsets[user] : offsets[user + 1]].tolist()


@pytest.mark.parametrize("virtual_ratings", ["average", "hybrid"])
@pytest.mark.parametrize("reading", ["authors", "literal"])
def test_rounds_with_virtual_ratings_equal_the_twin(virtual_ratings, reading, monkeypatch):
    training = histories(4, n_users=14, n_items=11, rated=True)
    changes = {"participation": 1.0, "virtual": 2, "hybrid_from": 1, "reading": reading}
    world = world_for("fedmf", training, **FEW | changes, virtual_ratings=virtual_ratings)
    s = world.settings
    states, all_costs = play("fedmf", world, LocalEngine.over(world, training, 1))
    (node,) = LocalEngine.over(world, training, 1).nodes
    everybody = np.arange(14)
    keys = streams.keys(node.seed, "virtual items", last=everybody.astype(np.int32))
    implicit = TrainingSet(14, 11, training.positives, training.excluded, None)
    drawn = by_user(draw_from(implicit, everybody, 2, 1, keys))
    for t, costs in enumerate(all_costs):
        P, Q = (a.astype(float) for a in (states[t].user_rows, states[t].item_rows))
        samples = virtual_samples(training, t, s, P, Q, drawn)
        chosen = [samples[u] for u in costs.users.tolist()]
        monkeypatch.setattr("test_fedmf.by_user", lambda _, found=chosen: found)
        P, Q = twin_round(world, training, states[t], costs.users, t)
        np.testing.assert_allclose(states[t + 1].user_rows, P, atol=3e-5, rtol=0)
        np.testing.assert_allclose(states[t + 1].item_rows, Q, atol=3e-5, rtol=0)
    assert max(len(own) for own in drawn) > max(len(training.positives.of(u)) for u in range(13))


def test_virtual_ratings_have_the_same_bits_on_nodes_and_under_secure_aggregation():
    training = histories(6, n_users=30, n_items=20, rated=True)
    virtual = {"virtual": 2, "virtual_ratings": "hybrid", "hybrid_from": 1, "participation": 1.0}
    secure = {"secure_aggregation": "secagg", "colluders": 0, "group_size": 20}
    one, _ = play_locally("fedmf", training, **FEW | virtual)
    three, _ = play_locally("fedmf", training, nodes=3, wire=True, **FEW | virtual)
    masked, _ = play_locally("fedmf", training, wire=True, **FEW | virtual, **secure)
    assert sha256(one[-1]) == sha256(three[-1]) == sha256(masked[-1])


def sent(training: TrainingSet, t: int, users: np.ndarray, **changes: Any) -> Any:
    world = world_for("fedmf", training, **FEW | changes)
    engine = LocalEngine.over(world, training, 1)
    own = engine.gather(fedmf.init_clients)["user_rows"][users]
    message = fedmf.broadcast(world, fedmf.init(world), users, t)
    message.private_state["user_rows"] = own
    result = fedmf.client_update(world, message, engine.nodes[0])
    assert isinstance(result, tuple)
    return result[0]


def test_virtual_items_hide_the_rated_ones_in_one_round_and_fixed_ones_in_two():
    training = histories(6, n_users=5, n_items=60, rated=True)
    users = np.array([0, 1, 2], np.int32)
    items = {
        (way, t): [
            set(u.items[u.offsets[k] : u.offsets[k + 1]].tolist()) for k in range(len(users))
        ]
        for way in ("fixed", "anew")
        for t in range(8)
        for u in [sent(training, t, users, virtual=2, virtual_items=way)]
    }
    for k, user in enumerate(users.tolist()):
        rated = set(training.positives.of(user).tolist())
        assert rated < items["fixed", 0][k]
        assert len(items["fixed", 0][k]) > 1.5 * len(rated)
        assert items["fixed", 0][k] == items["fixed", 7][k]
        # Those that come back are the rated ones, and few others.
        common = set.intersection(*(items["anew", t][k] for t in range(8)))
        assert rated <= common
        assert len(common - rated) < 0.4 * len(items["fixed", 0][k] - rated)


def test_predictions_as_virtual_ratings_give_themselves_away():
    """Their error is zero: in the literal reading so is the row, which no rated item has."""
    training = histories(6, n_users=5, n_items=60, rated=True)
    users = np.array([0, 1, 2], np.int32)
    hybrid = {"virtual": 2, "virtual_ratings": "hybrid", "hybrid_from": 3, "reading": "literal"}
    for t, shows in ((2, False), (3, True)):
        updates = sent(training, t, users, **hybrid)
        for k, user in enumerate(users.tolist()):
            own = slice(updates.offsets[k], updates.offsets[k + 1])
            moved = updates.items[own][np.abs(updates.item_rows[own]).max(axis=1) > 1]
            assert np.array_equal(moved, training.positives.of(user)) == shows
