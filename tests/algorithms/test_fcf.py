"""FCF: kernels equal a slow twin, gradients are those of the cost, all paths give the same bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_federation import histories, play, play_locally, sha256, world_for

from coterie import api, kernels
from coterie.algorithms import fcf
from coterie.baselines import als
from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.federated import selection, trainer
from coterie.federated.engine import Engine
from coterie.federated.federation import Exchange, NodeData, PrivateState, World
from coterie.federated.validation import Reply
from coterie.types import SCALE, TOO_LARGE, Message, Rows

FEW = {
    "embedding_size": 5,
    "rounds": 4,
    "alpha": 3.0,
    "reg": 0.2,
    "start_scale": 0.4,
    "participation": 1.0,
}


def preferences(training: TrainingSet) -> np.ndarray:
    """p (users, items)"""
    found = np.zeros((training.n_users, training.n_items))
    found[training.users, training.positives.items] = 1
    return found


# The twin: one user at a time, whole matrices and double precision.


def confidence(p: np.ndarray, alpha: float, missing: float) -> np.ndarray:
    """c of every item: 1 + alpha for the user's own, `missing` for the rest"""
    return np.where(p > 0, 1 + alpha, missing)


def solve(
    Y: np.ndarray, p: np.ndarray, alpha: float, reg: float, missing: float = 1.0
) -> np.ndarray:
    """x = (Y^T C Y + lambda I)^-1 Y^T C p"""
    C = np.diag(confidence(p, alpha, missing))
    return np.linalg.solve(Y.T @ C @ Y + reg * np.eye(Y.shape[1]), Y.T @ C @ p)


def rows_sent(
    Y: np.ndarray, p: np.ndarray, x: np.ndarray, alpha: float, missing: float = 1.0
) -> np.ndarray:
    """f(u, i) of every item"""
    return np.outer(confidence(p, alpha, missing) * (p - Y @ x), x)


def twin(
    world: World, training: TrainingSet, state: fcf.FCFState, cohort: list[int]
) -> dict[str, np.ndarray]:
    s = world.settings
    P = preferences(training)
    Y = state.item_rows.astype(float)
    X = state.user_rows.astype(float)
    total = np.zeros(state.item_rows.shape)
    for u in cohort:
        X[u] = solve(Y, P[u], s.alpha, s.reg, s.missing_weight)
        total += rows_sent(Y, P[u], X[u], s.alpha, s.missing_weight)
    g = -2 * total + 2 * s.reg * Y
    if s.optimiser == "gradient":
        return {"item_rows": Y - s.learning_rate * g, "user_rows": X}
    m = s.beta1 * state.first_moment + (1 - s.beta1) * g
    v = s.beta2 * state.second_moment + (1 - s.beta2) * g**2
    t = state.steps + 1
    step = (m / (1 - s.beta1**t)) / (np.sqrt(v / (1 - s.beta2**t)) + 1e-8)
    return {
        "item_rows": Y - s.learning_rate * step,
        "user_rows": X,
        "first_moment": m,
        "second_moment": v,
    }


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"embedding_size": 8, "alpha": 0.0},
        {"embedding_size": 17, "alpha": 40.0, "reg": 2.0},
        {"embedding_size": 1, "participation": 0.4},
        {"beta1": 0.1, "beta2": 0.99, "learning_rate": 0.02},
        {"participation": 0.3, "client_dropout": 0.3, "beta1": 0.0},
        {"optimiser": "gradient", "alpha": 0.0},
        {"missing_weight": 0.3, "alpha": 2.0},
        {"optimiser": "gradient", "alpha": 0.0, "missing_weight": 0.0, "reg": 1.0},
    ],
)
def test_rounds_equal_the_twin(changes):
    """Every round from the state before it. Users whose updates were not accepted do not change."""
    training = histories(3, n_users=20, n_items=11)
    world = world_for("fcf", training, **(FEW | changes))
    absent = {
        t: selection._drops_out(world, fcf.fedavg.sample(world, None, t), t) for t in range(4)
    }
    states, all_costs = play("fcf", world, LocalEngine.over(world, training, 1))
    for t, (before, after, costs) in enumerate(zip(states, states[1:], all_costs, strict=False)):
        there = costs.users if absent[t] is None else costs.users[~absent[t]]
        assert costs.accepted == len(there)
        assert after.steps == t + 1
        expected = twin(world, training, before, there.tolist())
        for name, wanted in expected.items():
            size = max(float(np.abs(wanted).max()), 1.0)
            np.testing.assert_allclose(
                getattr(after, name), wanted, atol=2e-4 * size, rtol=0, err_msg=name
            )
        assert np.abs(after.item_rows - before.item_rows).max() > 0.01


def test_a_plain_step_by_hand():
    """y = 1, reg = 0.5, sum 3: the gradient 2 (0.5 y - 3) is -5, and a tenth of it is the step."""
    world = world_for(
        "fcf", histories(0), alpha=1.0, reg=0.5, learning_rate=0.1, optimiser="gradient"
    )
    one = np.ones((1, 1), np.float32)
    before = fcf.AdamRows.begin(one)
    total = np.array([[3 * SCALE // 2]])  # in units of 1 + alpha = 2
    after = fcf.descend_rows(world, before, total, fcf.unit_of_rows(world), 1)
    assert float(after.rows[0, 0]) == pytest.approx(1.5)
    assert not after.first_moment.any()


def test_without_weight_for_missing_items_only_own_items_are_sent():
    training = histories(2, n_users=12, n_items=9)
    world = world_for("fcf", training, **(FEW | {"missing_weight": 0.0}))
    users = np.flatnonzero(world.members).astype(np.int32)
    message = fcf.broadcast(world, fcf.init(world), users, 0)
    node = LocalEngine.over(world, training, 1).nodes[0]
    updates, _ = fcf.client_update(world, message, node)  # type: ignore[misc]
    sent = updates.item_rows.reshape(len(users), 9, -1).any(axis=2)
    np.testing.assert_array_equal(sent, preferences(training)[users] > 0)


# The cost function.


def cost(P: np.ndarray, X: np.ndarray, Y: np.ndarray, alpha: float, reg: float) -> float:
    """J"""
    return float(((1 + alpha * P) * (P - X @ Y.T) ** 2).sum() + reg * ((X**2).sum() + (Y**2).sum()))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_gradient_is_that_of_the_cost(seed):
    """With beta1 = 0 a round leaves it in the first moment; against central differences.

    Users solve again for every difference.
    """
    training = histories(seed, n_users=9, n_items=7)
    world = world_for(
        "fcf", training, seed, **(FEW | {"rounds": 1, "beta1": 0.5, "learning_rate": 1e-9})
    )
    (before, after), _ = play("fcf", world, LocalEngine.over(world, training, 1))
    P = preferences(training)
    Y = before.item_rows.astype(float)
    s = world.settings
    found = after.first_moment / 0.5
    numerical = np.empty(Y.shape)

    def best(Y: np.ndarray) -> float:
        return cost(P, np.array([solve(Y, p, s.alpha, s.reg) for p in P]), Y, s.alpha, s.reg)

    for at in np.ndindex(*Y.shape):
        ahead = Y.copy()
        behind = Y.copy()
        ahead[at] += 1e-5
        behind[at] -= 1e-5
        numerical[at] = (best(ahead) - best(behind)) / 2e-5
    np.testing.assert_allclose(found, numerical, atol=1e-3, rtol=1e-4)
    assert np.abs(numerical).max() > 1


def test_a_users_vector_is_optimal():
    """No other vector costs less, for any user: the system is solved exactly."""
    training = histories(4, n_users=15, n_items=9)
    world = world_for("fcf", training, **(FEW | {"rounds": 1}))
    (before, after), _ = play("fcf", world, LocalEngine.over(world, training, 1))
    P = preferences(training)
    Y = before.item_rows.astype(float)
    rng = np.random.default_rng(0)
    s = world.settings
    for p, x in zip(P, after.user_rows.astype(float), strict=True):
        least = cost(p[None], x[None], Y, s.alpha, s.reg)
        for _ in range(20):
            assert cost(p[None], x[None] + rng.normal(0, 0.05, (1, 5)), Y, s.alpha, s.reg) > least


def test_the_federation_gets_as_low_as_alternating_least_squares():
    """The paper's claim: nothing is lost against the centralised solution of the same problem."""
    training = histories(5, n_users=30, n_items=20)
    P = preferences(training)
    reg = 1.0
    same = {"embedding_size": 4, "alpha": 4.0, "reg": reg}
    model = als.start(training, als.ALS(**same), trainer.Context(0, None))  # type: ignore[arg-type]
    for n in range(60):
        model = als.sweep(model, n, training, als.ALS(**same), None)  # type: ignore[arg-type]
    states, _ = play_locally(
        "fcf", training, rounds=300, learning_rate=0.03, participation=1.0, start_scale=0.3, **same
    )
    costs = [cost(P, s.user_rows, s.item_rows, 4.0, reg) for s in states[1::60]]
    central = cost(P, model.user_rows, model.item_rows, 4.0, reg)
    assert costs[0] > 1.2 * central
    assert costs[-1] < 1.02 * central


# Adam.


def test_two_steps_of_adam_by_hand():
    """y = 1, reg = 0.5, sums 3 and -1: gradients 2 (0.5 y - sum) are -5, then about 3.1."""
    training = TrainingSet(
        1,
        1,
        Rows(np.array([0, 1]), np.array([0], np.int32)),
        Rows(np.zeros(2, int), np.empty(0, np.int32)),
        None,
    )
    world = world_for(
        "fcf",
        training,
        embedding_size=1,
        alpha=1.0,
        reg=0.5,
        learning_rate=0.1,
        beta1=0.9,
        beta2=0.99,
    )
    one = np.ones((1, 1), np.float32)
    state = fcf.FCFState(one, 0 * one, 0 * one, 0, None)  # type: ignore[arg-type]
    for total in (3, -1):  # in units of 1 + alpha = 2
        state = fcf.descend(world, state, {"items": np.array([[total * SCALE // 2]])}, None, 0)  # type: ignore[arg-type]
    # g = -5, and the first step of Adam always has the full size.
    m1 = -0.5
    v1 = 0.25
    y1 = 1.1
    g = 2 * (0.5 * y1 + 1)
    m2 = 0.9 * m1 + 0.1 * g
    v2 = 0.99 * v1 + 0.01 * g**2
    assert state.steps == 2
    assert state.first_moment[0, 0] == pytest.approx(m2, rel=1e-6)
    assert state.second_moment[0, 0] == pytest.approx(v2, rel=1e-6)
    assert state.item_rows[0, 0] == pytest.approx(
        y1 - 0.1 * (m2 / 0.19) / np.sqrt(v2 / 0.0199), rel=1e-6
    )


class Deaf(Engine):
    """An engine without replies in some rounds."""

    def __init__(self, engine: LocalEngine, rounds: set[int]) -> None:
        self.engine = engine
        self.rounds = rounds

    def gather(self, make: Callable[[World, NodeData], PrivateState]) -> PrivateState:
        return self.engine.gather(make)

    def call(self, exchange: Exchange, message: Message) -> list[Reply]:
        return [] if message.round in self.rounds else self.engine.call(exchange, message)


def test_a_round_without_replies_is_not_a_step():
    training = histories(1)
    world = world_for("fcf", training, **FEW)
    states, _ = play("fcf", world, Deaf(LocalEngine.over(world, training, 1), {0, 2}))
    assert [state.steps for state in states] == [0, 0, 1, 1, 2]


# Kernels.


@given(
    st.integers(0, 2**32),
    st.integers(1, 600),
    st.integers(1, 30),
    st.integers(1, 20),
    st.floats(0, 50),
)
@settings(deadline=None, max_examples=60)
def test_sums_are_those_of_the_rows_for_any_cut(seed, n, n_items, d, alpha):
    """Users beyond one block, any width, and items in two ranges; within two units of the twin."""
    rng = np.random.default_rng(seed)
    X, Y = (rng.normal(0, 0.3, (size, d)).astype(np.float32) for size in (n, n_items))
    P = rng.random((n, n_items)) < rng.random()
    users, items = (a.astype(np.int32) for a in np.nonzero(P))
    history = Rows.build(users, items, n)
    likers = Rows.build(items, users, n_items)
    wide = fcf.pad_to_lanes(X)
    many = fcf.pad_to_lanes(Y)
    unit = 1 / (1 + alpha)
    kernel = kernels.load("fcf")
    sent = np.empty((n, n_items, d), np.int32)
    kernel.changes(wide, many, history.offsets, history.items, unit, 0, n, sent)
    for k in rng.integers(0, n, 5):
        expected = (
            rows_sent(Y.astype(float), P[k].astype(float), X[k].astype(float), alpha) * unit * SCALE
        )
        np.testing.assert_allclose(
            sent[k], expected, atol=1.01 + 2e-6 * np.abs(expected).max(), rtol=0
        )
    total = np.zeros((n_items, d), np.int64)
    cut = int(rng.integers(0, n_items + 1))
    for low, high in ((0, cut), (cut, n_items)):
        assert kernel.add_up(
            wide,
            np.abs(wide).max(axis=1),
            many,
            likers.offsets,
            likers.items,
            unit,
            low,
            high,
            total,
        )
    np.testing.assert_array_equal(total, sent.sum(axis=0, dtype=np.int64))


@pytest.mark.parametrize("worst", [np.nan, np.inf, 8.0, -9.0, 1e20])
def test_the_sum_kernel_reports_values_out_of_range(worst):
    """For every user, at any position in a block."""
    for k in (0, 3, 251, 252, 259):
        X = np.full((260, 8), 0.25, np.float32)
        Y = np.zeros((4, 8), np.float32)
        X[k, 5] = worst  # y = 0: a liked item's row is x itself
        likers = Rows.build(np.zeros(260, np.int32), np.arange(260, dtype=np.int32), 4)
        given = np.abs(X).max(axis=1), Y, likers.offsets, likers.items, 0.5
        assert not kernels.load("fcf").add_up(X, *given, 0, 4, np.zeros((4, 8), np.int64))
        assert kernels.load("fcf").add_up(X, *given, 1, 4, np.zeros((4, 8), np.int64)) == bool(
            np.isfinite(worst)
        )


# All paths of a round: single pass, whole, in chunks, on several nodes, through the wire.


class Apart(Engine):
    """The local engine without fast paths. It records how many clients each call has."""

    def __init__(self, engine: LocalEngine) -> None:
        # type: ignore[var-annotated]
        self.gather = engine.gather
        self.engine = engine
        self.chunks = []

    def call(self, exchange: Exchange, message: Message) -> list[Reply]:
        self.chunks.append(len(message.users))
        return self.engine.call(exchange, message)


def outcome(played: tuple[list[Any], list[Any]]) -> tuple[list[str], list[Any]]:
    """Digests of all states, and the costs of all rounds."""
    states, all_costs = played
    costs = [
        (t.users.tolist(), t.accepted, t.dropped, dict(t.refused), t.bytes_up, t.bytes_down)
        for t in all_costs
    ]
    return [sha256(state) for state in states], costs


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"client_dropout": 0.4},
        {"participation": 0.5, "embedding_size": 9, "client_dropout": 0.2},
    ],
)
def test_all_paths_give_the_same_bits_and_costs(changes, monkeypatch):
    training = histories(7, n_users=40, n_items=13)
    world = world_for("fcf", training, **(FEW | changes))
    fused_calls = []
    kernel = kernels.load("fcf")
    honest = kernel.add_up
    with monkeypatch.context() as patch:
        patch.setattr(kernel, "add_up", lambda *given: fused_calls.append(1) or honest(*given))
        fused = outcome(play("fcf", world, LocalEngine.over(world, training, 1)))
        assert len(fused_calls) >= 4
        fused_calls.clear()
        whole = Apart(LocalEngine.over(world, training, 1))
        assert outcome(play("fcf", world, whole)) == fused
        monkeypatch.setattr(fcf, "UPDATE_MEMORY", 3 * 4 * 13 * (1 + world.settings.embedding_size))
        for nodes, wired in ((1, False), (1, True), (3, None), (50, None)):
            parts = Apart(LocalEngine.over(world, training, nodes, wired))
            assert outcome(play("fcf", world, parts)) == fused
            assert max(parts.chunks) == 3
            assert sum(parts.chunks) == sum(whole.chunks)
    assert len(whole.chunks) == 4
    assert not fused_calls
    assert all(cost[1] > 0 and cost[4] > 0 for cost in fused[1])


def test_updates_out_of_range_are_refused_on_every_path(monkeypatch):
    """Some vectors are too long for fixed point: the single pass gives up, others are accepted."""
    training = histories(8, n_users=40, n_items=13)
    world = world_for("fcf", training, **(FEW | {"start_scale": 0.03, "reg": 1e-3, "alpha": 1.0}))
    played = play("fcf", world, LocalEngine.over(world, training, 1))
    refused = played[1][0].refused
    assert set(refused) == {"out of range"}
    assert 0 < refused["out of range"] < 20
    first, second = played[0][:2]
    still = [u for u in range(40) if (first.user_rows[u] == second.user_rows[u]).all()]
    assert len(still) == refused["out of range"] + 1  # one user has no history
    monkeypatch.setattr(fcf, "UPDATE_MEMORY", 5 * 4 * 13 * 6)
    for nodes in (1, 3):
        assert outcome(
            play("fcf", world, Apart(LocalEngine.over(world, training, nodes)))
        ) == outcome(played)


def test_updates_of_foursquare_italy_are_aggregated_in_chunks():
    """1,353 users with 25,522 rows of 50 would be seven gigabytes."""
    world = replace(world_for("fcf", histories(0), embedding_size=50), n_items=25_522)
    rows = np.empty((25_522, 50), np.float32)
    at_once = fcf.chunk_size(world, fcf.FCFState(rows, rows, rows, 0, rows))
    assert at_once == 25
    assert at_once * 25_522 * 51 * 4 < 1 << 27
    assert (
        fcf.chunk_size(replace(world, n_items=100_000_000), fcf.FCFState(rows, rows, rows, 0, rows))
        == 1
    )


# Private.


def test_updates_do_not_disclose_the_length_of_a_history():
    """One item or all of them: a row for every item, and one sample."""
    training = histories(2, n_users=12, n_items=9)
    world = world_for("fcf", training, **FEW)
    users = np.flatnonzero(world.members).astype(np.int32)
    message = fcf.broadcast(world, fcf.init(world), users, 0)
    updates, private_state = fcf.client_update(
        world, message, LocalEngine.over(world, training, 1).nodes[0]
    )  # type: ignore[misc]
    assert updates.samples.tolist() == [1] * 11
    assert np.diff(updates.offsets).tolist() == [9] * 11
    assert private_state["user_rows"].shape == (11, 5)
    assert np.abs(updates.item_rows).max() < TOO_LARGE


def test_a_user_without_history_has_a_zero_vector():
    states, _ = play_locally("fcf", histories(0), **FEW)
    assert not states[0].user_rows.any()
    assert not states[-1].user_rows[10].any()
    assert np.abs(states[-1].user_rows).max(axis=1).tolist().count(0.0) == 1


# It learns.


def test_better_than_popular_on_planted_groups(people):
    scores = {
        name: api.run(name, people, protocol="full", seed=1).full["NDCG@10"]
        for name in ("fcf", "popular")
    }
    assert scores["fcf"] > 1.3 * scores["popular"]


def test_quality_on_movielens(real_data):
    real_data("ml-100k", "u.data")
    found = api.run("fcf", "ml-100k", seed=0, evaluate_every=50)
    assert found.metrics["HR@10"] > 0.78
    assert found.metrics["NDCG@10"] > 0.48
