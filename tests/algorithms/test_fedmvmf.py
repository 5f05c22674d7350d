"""FedMVMF: rounds equal a slow twin, gradients are those of the cost, servers see their part."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_federation import histories, play, play_locally, sha256, world_for

from coterie import api
from coterie.algorithms import fcf, fedmvmf
from coterie.data import text_features
from coterie.data.synthetic import Synthetic, generate
from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.federated.federation import AGGREGATION, RECOMMENDATION, World
from coterie.federated.transcript import CLIENTS, Transcript
from coterie.types import TOO_LARGE, Rows

FEW = {
    "embedding_size": 5,
    "rounds": 3,
    "alpha": 3.0,
    "reg": 0.2,
    "side": 0.7,
    "start_scale": 0.4,
    "participation": 1.0,
    "inputs": 17,
}


def users_with_features(seed: int, n_users: int = 12, n_items: int = 15) -> TrainingSet:
    """Users with a region, one of a few ages, and a unique name."""
    made = histories(seed, n_users, n_items)
    ages = np.array([str(18 + 7 * (u % 5)) for u in range(n_users)], dtype=object)
    names = np.array([f"name {u}" for u in range(n_users)], dtype=object)
    return replace(made, user_features=dict(made.user_features) | {"age": ages, "name": names})


def without(training: TrainingSet, *names: str) -> TrainingSet:
    """The same users and items without some of the features."""
    return replace(training, **{name: {} if name == "user_features" else None for name in names})


# The twin: one user after the other, whole matrices and double precision.


class Problem:
    """R, X and Y as full matrices, the cost and its gradients."""

    def __init__(self, training: TrainingSet, world: World, most_values: int = 8) -> None:
        self.s = world.settings
        self.R = np.zeros((training.n_users, training.n_items))
        self.R[training.users, training.positives.items] = 1
        self.X = features_of_users(training, most_values)
        self.Y = features_of_items(training, self.s.inputs)

    def of(self, users: np.ndarray) -> Problem:
        """The optimal vector of some users; users without history never take part."""
        part = copy(self)
        part.R = self.R[users]
        part.X = self.X[users]
        return part

    def solve(self, Q: np.ndarray, U: np.ndarray, u: int) -> np.ndarray:
        C = np.diag(1 + self.s.alpha * self.R[u])
        side = self.s.side
        reg = self.s.reg
        left = Q.T @ C @ Q + side * U.T @ U + reg * np.eye(Q.shape[1])
        return np.linalg.solve(left, Q.T @ C @ self.R[u] + side * U.T @ self.X[u])

    def cost(self, P: np.ndarray, Q: np.ndarray, U: np.ndarray, V: np.ndarray) -> float:
        """J"""
        did = ((1 + self.s.alpha * self.R) * (self.R - P @ Q.T) ** 2).sum()
        views = ((self.X - P @ U.T) ** 2).sum() + ((self.Y - Q @ V.T) ** 2).sum()
        return float(
            did + self.s.side * views + self.s.reg * sum((part**2).sum() for part in (P, Q, U, V))
        )

    def best(self, Q: np.ndarray, U: np.ndarray, V: np.ndarray) -> float:
        """The cost after all users have solved."""
        return self.cost(np.array([self.solve(Q, U, u) for u in range(len(self.R))]), Q, U, V)

    def gradients(
        self, P: dict[int, np.ndarray], Q: np.ndarray, U: np.ndarray, V: np.ndarray
    ) -> list[np.ndarray]:
        """Gradients by Q, U and V over some users."""
        s = self.s
        of_items = self.s.side * (self.Y - Q @ V.T) @ V
        of_users = np.zeros_like(U)
        for u, p in P.items():
            of_items += np.outer((1 + s.alpha * self.R[u]) * (self.R[u] - Q @ p), p)
            of_users += s.side * np.outer(self.X[u] - U @ p, p)
        of_view = s.side * (self.Y - Q @ V.T).T @ Q
        return [
            -2 * total + 2 * s.reg * part
            for total, part in ((of_items, Q), (of_users, U), (of_view, V))
        ]


def features_of_users(training: TrainingSet, most_values: int) -> np.ndarray:
    """X: a column for every name and value, names in order, and values in order within."""
    columns = []
    for _, values in sorted(training.user_features.items()):
        distinct = sorted(set(values))
        if len(distinct) <= most_values:
            columns += [[float(value == one) for value in values] for one in distinct]
    return np.array(columns).T.reshape(training.n_users, len(columns))


def features_of_items(training: TrainingSet, n_inputs: int) -> np.ndarray:
    """Y"""
    if training.item_texts is None:
        return np.zeros((training.n_items, 0))
    bags = text_features.read(training, "bags", n_inputs, 0, "titles").items
    Y = np.zeros((training.n_items, n_inputs))
    assert bags is not None
    for item in range(training.n_items):
        Y[item, bags.rows.of(item)] = bags.weights[
            bags.rows.offsets[item] : bags.rows.offsets[item + 1]
        ]
    return Y / np.maximum(np.linalg.norm(Y, axis=1, keepdims=True), 1e-12)


NAMES = (
    ("item_rows", "first_moment", "second_moment"),
    ("user_view", "user_view_first", "user_view_second"),
    ("item_view", "item_view_first", "item_view_second"),
)


def as_doubles(state: fedmvmf.FedMVMFState) -> dict[str, np.ndarray]:
    return {name: getattr(state, name).astype(float) for name in ("user_rows", *sum(NAMES, ()))}


def twin(
    problem: Problem, before: dict[str, np.ndarray], cohort: list[int], t: int
) -> dict[str, np.ndarray]:
    """Round t = 1, 2, ..."""
    s = problem.s
    after = {name: values.copy() for name, values in before.items()}
    Q, U, V = (before[name] for name, _, _ in NAMES)
    P = {u: problem.solve(Q, U, u) for u in cohort}
    for u, p in P.items():
        after["user_rows"][u] = p
    for (rows, first, second), g in zip(NAMES, problem.gradients(P, Q, U, V), strict=True):
        after[first] = s.beta1 * before[first] + (1 - s.beta1) * g
        after[second] = s.beta2 * before[second] + (1 - s.beta2) * g**2
        mean = after[first] / (1 - s.beta1**t)
        square = after[second] / (1 - s.beta2**t)
        after[rows] = before[rows] - s.learning_rate * mean / (np.sqrt(square) + 1e-8)
    return after


def assert_near(found: fedmvmf.FedMVMFState, wanted: dict[str, np.ndarray], within: float) -> None:
    for name, values in wanted.items():
        size = max(float(np.abs(values).max(initial=0)), 1.0)
        np.testing.assert_allclose(
            getattr(found, name), values, atol=within * size, rtol=0, err_msg=name
        )


WAYS: list[dict[str, Any]] = [
    {},
    {"embedding_size": 8, "alpha": 0.0, "side": 4.0},
    {"embedding_size": 17, "alpha": 40.0, "reg": 2.0},
    {"embedding_size": 1, "participation": 0.4},
    {"beta1": 0.1, "beta2": 0.99, "learning_rate": 0.02, "inputs": 300},
    {"participation": 0.5, "beta1": 0.0, "nodes": 3},
]


@pytest.mark.parametrize("changes", WAYS)
def test_rounds_equal_the_twin(changes):
    """Every round from the state before it, and three rounds from the start."""
    training = users_with_features(3, n_users=20, n_items=11)
    world = world_for("fedmvmf", training, **(FEW | {"most_values": 8} | changes))
    problem = Problem(training, world)
    assert problem.X.shape == (20, 8)  # three regions and five ages; names have too many values
    states, all_costs = play(
        "fedmvmf", world, LocalEngine.over(world, training, world.settings.nodes or 1)
    )
    only_node = as_doubles(states[0])
    for t, (before, after, costs) in enumerate(zip(states, states[1:], all_costs, strict=False), 1):
        assert (after.steps, after.item_view_steps) == (t, t)
        assert_near(after, twin(problem, as_doubles(before), costs.users.tolist(), t), 1e-4)
        only_node = twin(problem, only_node, costs.users.tolist(), t)
    assert len(states) == 4
    assert_near(states[-1], only_node, 1e-3)
    for name, _, _ in NAMES:
        assert np.abs(getattr(states[-1], name) - getattr(states[0], name)).max() > 0.03


# The cost function.


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_gradients_are_those_of_the_cost(seed):
    """With beta1 = 0.5 a round leaves half of them in the first moments.

    Against central differences, for each of which users solve again.
    """
    training = users_with_features(seed, n_users=9, n_items=7)
    world = world_for(
        "fedmvmf",
        training,
        seed,
        **(FEW | {"rounds": 1, "beta1": 0.5, "learning_rate": 1e-9, "most_values": 8}),
    )
    (before, after), _ = play("fedmvmf", world, LocalEngine.over(world, training, 1))
    problem = Problem(training, world).of(world.members)
    whole = as_doubles(before)
    parts = [whole[name] for name, _, _ in NAMES]
    for number, (_, first, _) in enumerate(NAMES):
        numerical = np.empty(parts[number].shape)
        for at in np.ndindex(*numerical.shape):
            ahead, behind = ([part.copy() for part in parts] for _ in range(2))
            ahead[number][at] += 1e-5
            behind[number][at] -= 1e-5
            numerical[at] = (problem.best(*ahead) - problem.best(*behind)) / 2e-5
        np.testing.assert_allclose(getattr(after, first) / 0.5, numerical, atol=1e-3, rtol=1e-4)
        assert np.abs(numerical).max() > 0.5


def test_a_users_vector_is_optimal():
    """No other vector costs less: the system with both views is solved exactly."""
    training = users_with_features(4, n_users=15, n_items=9)
    rng = np.random.default_rng(0)
    world = world_for("fedmvmf", training, **(FEW | {"rounds": 1, "most_values": 8}))
    (before, after), _ = play("fedmvmf", world, LocalEngine.over(world, training, 1))
    problem = Problem(training, world)
    whole = as_doubles(before)
    Q, U, V = (whole[name] for name, _, _ in NAMES)
    P = after.user_rows.astype(float)
    least = problem.cost(P, Q, U, V)
    for u in np.flatnonzero(world.members):
        for _ in range(10):
            other = P.copy()
            other[u] += rng.normal(0, 0.05, 5)
            assert problem.cost(other, Q, U, V) > least


def test_the_federation_gets_as_low_as_alternating_least_squares():
    """All four parts solved exactly and in turn in one place, until convergence."""
    training = users_with_features(5, n_users=30, n_items=20)
    changes = {
        "rounds": 400,
        "learning_rate": 0.03,
        "alpha": 4.0,
        "reg": 1.0,
        "embedding_size": 4,
        "start_scale": 0.3,
    }
    world = world_for("fedmvmf", training, **(FEW | changes | {"most_values": 8}))
    problem = Problem(training, world).of(world.members)
    side = world.settings.side
    states, _ = play("fedmvmf", world, LocalEngine.over(world, training, 1))
    Q, U, V = (as_doubles(states[0])[name] for name, _, _ in NAMES)
    ridge = np.eye(4)
    for _ in range(100):
        P = np.array([problem.solve(Q, U, u) for u in range(len(problem.R))])
        for i, r in enumerate(problem.R.T):
            C = np.diag(1 + 4.0 * r)
            left = P.T @ C @ P + side * V.T @ V + ridge
            Q[i] = np.linalg.solve(left, P.T @ C @ r + side * V.T @ problem.Y[i])
        U = np.linalg.solve(side * P.T @ P + ridge, side * P.T @ problem.X).T
        V = np.linalg.solve(side * Q.T @ Q + ridge, side * Q.T @ problem.Y).T
    central = problem.best(Q, U, V)
    costs = [of_state(problem, state) for state in (states[1], states[-1])]
    assert costs[0] > 1.1 * central
    assert costs[1] < 1.02 * central


def of_state(problem: Problem, state: fedmvmf.FedMVMFState) -> float:
    return problem.best(*(as_doubles(state)[name] for name, _, _ in NAMES))


# Without features it is FCF.


@pytest.mark.parametrize(
    ("left_out", "side"),
    [((), 0.0), (("user_features", "item_texts"), 0.7), (("user_features",), 0.0)],
)
@pytest.mark.parametrize("nodes", [1, 3])
def test_without_features_it_is_fcf_bit_for_bit(left_out, side, nodes):
    """With weight 0, or without features: the same item and user rows, and moments of items."""
    training = without(users_with_features(6, n_users=25), *left_out)
    same = {key: value for key, value in FEW.items() if key in fcf.FCF.model_fields}
    plain, _ = play_locally("fcf", training, nodes, **same)
    views, _ = play_locally("fedmvmf", training, nodes, **(FEW | {"side": side}))
    for one, other in zip(plain, views, strict=True):
        for name in ("item_rows", "first_moment", "second_moment", "user_rows"):
            assert getattr(one, name).tobytes() == getattr(other, name).tobytes(), name
    assert sha256(plain[0]) != sha256(plain[-1])


@pytest.mark.parametrize("left_out", ["user_features", "item_texts"])
def test_one_view_alone_is_enough(left_out):
    """The other view is empty, and the rest equals the twin."""
    training = without(users_with_features(7, n_users=14), left_out)
    world = world_for("fedmvmf", training, **(FEW | {"most_values": 8}))
    states, all_costs = play("fedmvmf", world, LocalEngine.over(world, training, 2))
    empty = states[-1].user_view if left_out == "user_features" else states[-1].item_view
    assert empty.shape == (0, 5)
    wanted = twin(Problem(training, world), as_doubles(states[0]), all_costs[0].users.tolist(), 1)
    assert_near(states[1], wanted, 1e-4)
    plain, _ = play_locally(
        "fcf", training, **{key: FEW[key] for key in FEW if key in fcf.FCF.model_fields}
    )
    assert not np.array_equal(plain[1].item_rows, states[1].item_rows)


# Features.


def test_features_by_hand():
    did = Rows(np.array([0, 1, 2, 2]), np.array([0, 1], np.int32))
    training = TrainingSet(
        3,
        2,
        did,
        did,
        None,
        {
            "sex": np.array(["F", "m", "f"], object),
            "age": np.array([25, 1, 25]),
            "zip": np.array(["a", "b", "c"], object),
        },
        item_texts=np.array(["aaaa", "..."], object),
    )
    items, users = fedmvmf.content_of(
        training, fedmvmf.FedMVMF.of({"most_values": 2, "inputs": 1000})
    )
    assert users.users is not None
    assert [users.users.rows.of(u).tolist() for u in range(3)] == [
        [1, 2],
        [0, 3],
        [1, 2],
    ]  # ages 1, 25; f, m
    assert len(users.letters.counts) == 4
    assert items.items is not None
    assert items.items.rows.counts.tolist() == [3, 0]  # #aa, aaa twice, aa#; and no words
    np.testing.assert_allclose(
        np.sort(items.items.weights), np.array([1, 1, 2]) / np.sqrt(6), rtol=1e-6
    )


@pytest.mark.parametrize(("name", "expected"), [("ml-100k", 61 + 2 + 21), ("ml-1m", 7 + 2 + 21)])
def test_features_of_movielens_exclude_zip_codes(name, expected, real_data):
    import coterie
    from coterie.data.splits import split

    real_data(name)
    training = split(coterie.load(name), "temporal", 0.2, seed=0).training()
    assert set(training.user_features) == {"age", "gender", "occupation", "zip_code"}
    assert fedmvmf.one_hot(training, 100)[1] == expected


# All paths of a round.


@given(
    st.integers(0, 2**32),
    st.integers(3, 40),
    st.integers(4, 20),
    st.integers(1, 12),
    st.floats(0, 20),
    st.floats(0, 9),
)
@settings(deadline=None, max_examples=30)
def test_the_single_pass_equals_updates_and_their_sums(seed, n_users, n_items, d, alpha, side):
    """The same sums and vectors, bit for bit, unless an update is (almost) out of range."""
    training = users_with_features(seed, n_users, n_items)
    world = world_for(
        "fedmvmf", training, embedding_size=d, alpha=alpha, side=side, inputs=9, start_scale=0.3
    )
    node = LocalEngine.over(world, training, 1).nodes[0]
    users = np.flatnonzero(world.members).astype(np.int32)
    message = fedmvmf.broadcast(world, fedmvmf.init(world), users, 0)
    fused = fedmvmf.single_pass(world, message, node)
    updates, private_state = fedmvmf.client_update(world, message, node)  # type: ignore[misc]
    largest = max(np.abs(updates.item_rows).max(initial=0), np.abs(updates.dense).max(initial=0))
    if fused is None:
        assert largest > 0.9 * TOO_LARGE
        return
    apart = fedmvmf.add_up(world, message, updates)
    assert fused.sums.keys() == apart.keys() == {"items", "dense"}
    for name, total in apart.items():
        np.testing.assert_array_equal(fused.sums[name], total)
    assert fused.private_state["user_rows"].tobytes() == private_state["user_rows"].tobytes()
    assert fused.sums["items"].any()


def test_updates_out_of_range_by_features_alone_are_refused_on_every_path(monkeypatch):
    """Long feature rows of weight 0: p_u . u_d is far from x_ud, for some beyond fixed point."""
    training = users_with_features(8, n_users=40, n_items=13)
    world = world_for("fedmvmf", training, **(FEW | {"side": 1e-9, "rounds": 2}))
    before = play("fedmvmf", world, LocalEngine.over(world, training, 1))[0][0]
    before = replace(before, user_view=9 * before.user_view)
    outcomes = []
    for nodes in (1, 3):
        monkeypatch.setattr(fcf, "UPDATE_MEMORY", 1 << 27 if nodes == 1 else 5 * 4 * 13 * 6)
        states, all_costs = play("fedmvmf", world, LocalEngine.over(world, training, nodes), before)
        outcomes.append(
            (
                [sha256(state) for state in states],
                [(t.accepted, dict(t.refused)) for t in all_costs],
            )
        )
    assert outcomes[0] == outcomes[1]
    accepted, refused = outcomes[0][1][0]
    assert set(refused) == {"out of range"}
    assert accepted + refused["out of range"] == 39
    assert accepted > 5
    usual = replace(before, user_view=before.user_view / 9)
    assert play("fedmvmf", world, LocalEngine.over(world, training, 1), usual)[1][0].accepted == 39


def test_updates_hold_a_row_for_every_item_and_feature():
    """One sample for one item or all of them: the length of a history is not disclosed."""
    training = users_with_features(2, n_items=9)
    world = world_for("fedmvmf", training, **FEW)
    state = fedmvmf.init(world)
    users = np.flatnonzero(world.members).astype(np.int32)
    message = fedmvmf.broadcast(world, state, users, 0)
    updates, _ = fedmvmf.client_update(
        world, message, LocalEngine.over(world, training, 1).nodes[0]
    )  # type: ignore[misc]
    assert updates.samples.tolist() == [1] * 11
    assert np.diff(updates.offsets).tolist() == [9] * 11
    assert updates.dense.shape == (11, (3 + 5 + 12) * 5) == (11, fedmvmf.sizes(world, state).dense)
    assert fedmvmf.chunk_size(world, state) == (1 << 27) // (4 * (9 * 6 + 100))


# What each server sees.


def recorded(
    training: TrainingSet, nodes: int = 2, **changes: Any
) -> tuple[World, Transcript, list[Any]]:
    world = world_for("fedmvmf", training, **(FEW | changes))
    record = Transcript(LocalEngine.over(world, training, nodes))
    return world, record, play("fedmvmf", world, record)[0]


def test_messages_between_roles():
    _, record, _ = recorded(users_with_features(1))
    sent: dict[tuple[str, str], set[str]] = {
        (line.sender, line.receiver): set() for line in record.lines
    }
    for line in record.lines:
        sent[line.sender, line.receiver] |= {
            key for key, array in line.arrays.items() if array.size
        }
    columns = {"users", "samples", "offsets", "items", "item_rows", "dense"}
    assert sent == {
        (AGGREGATION, CLIENTS): {"item_rows", "dense"},
        (CLIENTS, AGGREGATION): columns,
        (AGGREGATION, RECOMMENDATION): {"item_rows"},
        (RECOMMENDATION, AGGREGATION): {"cut"},
    }
    assert len(record.lines) == 3 * (1 + 2 + 1 + 1)
    assert all(line.bytes > 0 for line in record.lines)


def test_the_server_of_items_receives_nothing_of_devices_or_user_features():
    """It receives one row for every item: Q."""
    training = users_with_features(1)
    _, record, states = recorded(training)
    lines = record.seen_by(RECOMMENDATION)
    assert {line.sender for line in lines} == {AGGREGATION}
    assert [set(line.arrays) for line in lines] == [{"item_rows"}] * 3
    for line, before in zip(lines, states, strict=False):
        np.testing.assert_array_equal(line.arrays["item_rows"], before.item_rows)


def test_the_aggregation_server_receives_no_features_of_items():
    """Other item texts change what it receives from I, but no shape and nothing else of round 1."""
    training = users_with_features(1)
    others = replace(training, item_texts=np.array([f"Other {n * n}" for n in range(15)], object))
    one, other = (recorded(t)[1].seen_by(AGGREGATION) for t in (training, others))
    assert [line.sender for line in one[:3]] == [CLIENTS, CLIENTS, RECOMMENDATION]
    for first, second in zip(one, other, strict=True):
        assert {name: a.shape for name, a in first.arrays.items()} == {
            name: a.shape for name, a in second.arrays.items()
        }
        assert 17 not in {n for array in first.arrays.values() for n in array.shape}
    for first, second in zip(one[:2], other[:2], strict=True):
        assert all(np.array_equal(array, second.arrays[n]) for n, array in first.arrays.items())
    assert not np.array_equal(one[2].arrays["cut"], other[2].arrays["cut"])


def test_roles_see_their_own_part_and_features_stay_where_they_are():
    training = users_with_features(1)
    world = world_for("fedmvmf", training, **FEW)
    state = fedmvmf.init(world)
    of_items = state.as_seen_by(RECOMMENDATION)
    of_devices = state.as_seen_by(AGGREGATION)
    assert (
        of_items.item_rows is of_items.user_view is of_items.item_sums is of_items.user_rows is None
    )
    assert of_devices.item_view is of_devices.answer is of_devices.user_rows is None
    assert of_devices.item_rows is state.item_rows
    assert of_items.item_view is state.item_view
    assert world.content is not None
    assert world.content.users is None
    assert world.seen_by(AGGREGATION).content is None
    assert (
        world.seen_by(AGGREGATION).client_content
        is world.seen_by(RECOMMENDATION).client_content
        is None
    )
    engine = LocalEngine.over(world, training, 3)
    assert engine.world.content is None
    for number, node in enumerate(engine.nodes):
        assert node.training.content is not None
        assert node.training.content.items is None
        assert node.training.content.users is not None
        assert world.client_content is not None
        assert world.client_content.users is not None
        own = world.client_content.users.take(node.users)
        np.testing.assert_array_equal(node.training.content.users.rows.items, own.rows.items)
        assert len(own) == len(range(number, 12, 3))


def test_between_rounds_the_state_holds_nothing_of_a_round():
    for state in play_locally("fedmvmf", users_with_features(2), **(FEW | {"client_dropout": 0.5}))[
        0
    ]:
        assert len(state.item_sums) == len(state.answer) == 0


# It learns.


def test_features_help_with_short_histories():
    """Planted groups that show in titles and regions, and seven clicks per user."""
    data = generate(Synthetic(n_users=300, n_items=200, n_groups=4, mean_interactions=7))

    def quality(side: float) -> float:
        same = {"protocol": "full", "rounds": 40, "inputs": 300, "side": side}
        return float(
            np.mean(
                [api.run("fedmvmf", data, seed=seed, **same).full["NDCG@10"] for seed in (1, 2)]
            )
        )

    assert quality(30.0) > 1.3 * quality(0.0)
