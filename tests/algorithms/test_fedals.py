"""FedALS: rounds equal a slow twin, all clients together are ALS, all paths give the same bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hostile import HostileEngine
from slow_fedals import Twin
from small_federation import histories, play, play_locally, sha256, world_for

from coterie import api
from coterie.algorithms import fedals, registry
from coterie.algorithms.local import least_squares
from coterie.baselines import als
from coterie.core.progress import SILENT
from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.errors import ConfigError
from coterie.experiments.training import fit
from coterie.federated import selection, trainer
from coterie.federated.engine import Engine
from coterie.federated.federation import Accepted, Exchange, NodeData, PrivateState, World
from coterie.federated.validation import Reply
from coterie.models.factors import Factors
from coterie.models.new_user import NewUser
from coterie.models.private_factors import PrivateFactors
from coterie.types import SCALE, TOO_LARGE, Bools, Ints, Message, Rows

FEW: dict[str, Any] = {
    "embedding_size": 5,
    "rounds": 6,
    "alpha": 3.0,
    "reg": 0.1,
    "start_scale": 0.4,
    "participation": 1.0,
}


def all_active(seed: int, n_users: int = 20, n_items: int = 13) -> TrainingSet:
    """Random histories; every user has items."""
    rng = np.random.default_rng(seed)
    owned = rng.random((n_users, n_items)) < 0.35
    owned[np.arange(n_users), rng.integers(0, n_items, n_users)] = True
    users, items = (part.astype(np.int32) for part in np.nonzero(owned))
    rows = Rows.build(users, items, n_users)
    return TrainingSet(n_users, n_items, rows, rows, None)


def preferences(training: TrainingSet) -> np.ndarray:
    """p (users, items)"""
    found = np.zeros((training.n_users, training.n_items))
    found[training.users, training.positives.items] = 1
    return found


# A whole round against the twin.


class Some(Engine):
    """An engine whose clients reply in some rounds only."""

    def __init__(self, engine: LocalEngine, replies: Callable[[int, Ints], Bools]) -> None:
        self.engine = engine
        self.replies = replies

    def gather(self, make: Callable[[World, NodeData], PrivateState]) -> PrivateState:
        return self.engine.gather(make)

    def call(self, exchange: Exchange, message: Message) -> list[Reply]:
        there = self.replies(message.round, message.users)
        return self.engine.call(exchange, message.to(there))


def check_against_twin(
    world: World,
    training: TrainingSet,
    engine: Engine,
    replied: Callable[[int, Ints], Bools] = lambda t, users: np.ones(len(users), bool),
) -> None:
    """Every round from the state before it; sums of earlier rounds are the twin's own."""
    twin = Twin(world.settings, training)
    states, all_costs = play("fedals", world, engine)
    for t, ((before, after), costs) in enumerate(zip(pairwise(states), all_costs, strict=True)):
        dropped = selection._drops_out(world, costs.users, t)
        there = replied(t, costs.users) & (True if dropped is None else ~dropped)
        users = costs.users[there].tolist()
        assert costs.accepted == len(users)
        rows, bias = twin.round(before.item_rows, before.item_bias, users, t)
        np.testing.assert_allclose(after.item_rows, rows, atol=1e-4, rtol=1e-4, err_msg=f"{t}")
        np.testing.assert_allclose(after.item_bias, bias, atol=1e-4, rtol=0, err_msg=f"{t}")
        collects_ratings = world.rated and t == 0
        assert collects_ratings or np.abs(after.item_rows - before.item_rows).max() > 1e-3


IMPLICIT: list[dict[str, Any]] = [
    {},
    {"alpha": 0.0, "reg": 2.0, "reg_exponent": 0.0},
    {"alpha": 30.0, "reg_exponent": 0.5, "embedding_size": 17},
    {"embedding_size": 1},
    {"embedding_size": 8, "participation": 0.4},
    {"participation": 0.3, "client_dropout": 0.3, "reg_exponent": 0.5},
    {"block_size": 2},
    {"embedding_size": 6, "block_size": 2, "reg_exponent": 0.0, "reg": 1.0},
    {"block_size": 9},
    {"block_size": 1, "participation": 0.5, "rounds": 12},
    {"block_size": 2, "participation": 0.4, "client_dropout": 0.2, "rounds": 9},
]


@pytest.mark.parametrize("changes", IMPLICIT, ids=str)
def test_rounds_equal_the_twin(changes):
    training = histories(3, n_users=20, n_items=11)
    world = world_for("fedals", training, **(FEW | changes))
    check_against_twin(world, training, LocalEngine.over(world, training, 1))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"reg_exponent": 1.0, "reg": 0.3},
        {"block_size": 2},
        {"participation": 0.4},
        {"participation": 0.5, "client_dropout": 0.3, "block_size": 2, "rounds": 9},
    ],
    ids=str,
)
def test_rounds_with_ratings_equal_the_twin(changes):
    training = histories(4, n_users=20, n_items=11, rated=True)
    world = world_for(
        "fedals",
        training,
        **(FEW | {"reg": 2.0, "reg_exponent": 0.0, "start_scale": 0.8} | changes),
    )
    assert world.rated
    check_against_twin(world, training, LocalEngine.over(world, training, 1))


def few_after_all(t: int, users: Ints) -> Bools:
    """All reply in round 0, every other client in later ones."""
    return np.ones(len(users), bool) if t == 0 else np.arange(len(users)) % 2 == 0


@pytest.mark.parametrize("block_size", [0, 2])
def test_nothing_is_kept_after_a_round_with_all_clients(block_size):
    training = histories(3, n_users=20, n_items=11)
    world = world_for("fedals", training, **(FEW | {"embedding_size": 4, "block_size": block_size}))
    engine = Some(LocalEngine.over(world, training, 1), few_after_all)
    check_against_twin(world, training, engine, few_after_all)


def test_what_is_kept_of_a_block_is_all_or_nothing():
    """All clients reply to the first block, half of them to the second, and to the first again.

    With nothing kept, G is that of the half that replied, times two: the sums over users are those
    of one round, and so is their weight.
    """
    training = histories(3, n_users=20, n_items=11)
    world = world_for("fedals", training, **(FEW | {"embedding_size": 4, "block_size": 2}))
    engine = LocalEngine.over(world, training, 1)
    states, costs = play("fedals", world, Some(engine, few_after_all))
    assert [c.accepted for c in costs[:3]] == [19, 10, 10]
    before, after = states[2:4]
    users = costs[2].users[::2]
    message = fedals.broadcast(world, before, users, 2)
    alone = fedals.single_pass(world, message, engine.nodes[0])
    assert alone is not None
    of_one_round = alone.sums["users"] / SCALE**2
    kept_of_earlier = after.user_sums[0] - of_one_round
    weight_of_earlier = after.weights[0] - len(users)
    assert kept_of_earlier.any() == (weight_of_earlier > 0)


def test_kept_sums_by_hand():
    """Sums 4 of 2 of 8 clients, then 6 of 6: sqrt(1 - 6 / 8) of the 4 stays, for 1 client."""
    training = all_active(0, n_users=8, n_items=1)
    world = world_for("fedals", training, **(FEW | {"embedding_size": 1}))
    state = fedals.init(world)
    none = np.empty((0, 0), np.int32)
    for number, m in ((4, 2), (6, 6)):
        sums = {
            "items": np.array([[number * SCALE**2, number * SCALE**2, number]]),
            "users": np.array([number * SCALE**2]),
        }
        accepted = Accepted(np.arange(m, dtype=np.int32), np.ones(m, np.int64), none)
        state = fedals.solve_items(world, state, sums, accepted, 0)
    assert state.item_sums.tolist() == [[[8.0, 8.0, 8.0]]]
    assert state.user_sums.tolist() == [[8.0]]
    assert state.weights.tolist() == [7.0]
    # 8 / 7 of everything; alpha = 3, reg = 0.1 and nu = 1
    ridge = 0.1 * (8 * 8 / 7 + 8 / 3)
    y = 4 * 8 * 8 / 7 / (4 * 8 * 8 / 7 + ridge)
    assert float(state.item_rows[0, 0]) == pytest.approx(y, rel=1e-6)


# All clients in every round: ALS.


def central(training: TrainingSet, **changes: Any) -> list[np.ndarray]:
    """Item rows of `als` before the first sweep and after every sweep."""
    known = {key: value for key, value in changes.items() if key in als.ALS.model_fields}
    settings = als.ALS(**known)
    model = als.start(training, settings, trainer.Context(0, SILENT))
    found = [model.item_rows]
    for n in range(changes["rounds"]):
        model = als.sweep(model, n, training, settings, trainer.Context(0, SILENT))
        found.append(model.item_rows)
    return found


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"reg_exponent": 0.0, "reg": 1.0, "alpha": 8.0},
        {"reg_exponent": 0.5, "embedding_size": 12, "start_scale": 0.1},
    ],
    ids=str,
)
def test_all_clients_together_compute_als(changes):
    training = all_active(5, n_users=60, n_items=40)
    same = FEW | {"rounds": 10, "reg_exponent": 1.0} | changes
    wanted = central(training, **same)
    states, _ = play_locally("fedals", training, **same)
    assert (states[0].item_rows == wanted[0]).all()
    for state, rows in zip(states, wanted, strict=True):
        np.testing.assert_allclose(state.item_rows, rows, atol=1e-4)
    assert np.abs(wanted[-1] - wanted[0]).max() > 0.3


def test_users_without_a_history_make_no_difference_to_als():
    training = histories(5, n_users=20, n_items=11)
    same = FEW | {"reg_exponent": 1.0}
    states, _ = play_locally("fedals", training, **same)
    np.testing.assert_allclose(states[-1].item_rows, central(training, **same)[-1], atol=1e-4)


def als_with_last_users(**settings: Any) -> Callable[[TrainingSet, int], Factors]:
    """`als`, and then users once more: FedALS solves for users with the latest items."""
    chosen = als.ALS(**settings)

    def train(training: TrainingSet, seed: int) -> Factors:
        model = fit(als.ALGORITHM, training, chosen, trainer.Context(seed, SILENT))
        last = least_squares.solve(training.positives, model.item_rows, chosen)
        return replace(model, user_rows=last)

    return train


def test_as_good_as_als_on_planted_groups(people):
    same = {"alpha": 5.0, "reg": 0.05, "reg_exponent": 1.0, "embedding_size": 8}
    found = api.run("fedals", people, protocol="full", seed=1, rounds=10, **same)
    wanted = api.run(als_with_last_users(epochs=10, **same), people, protocol="full", seed=1)
    np.testing.assert_allclose(found.model.item_rows, wanted.model.item_rows, atol=1e-4)
    assert found.full["NDCG@10"] == pytest.approx(wanted.full["NDCG@10"], abs=1e-3)
    popular = api.run("popular", people, protocol="full", seed=1)
    assert found.full["NDCG@10"] > 1.3 * popular.full["NDCG@10"]


@pytest.mark.slow
def test_equal_to_als_on_movielens(real_data):
    real_data("ml-100k", "u.data")
    same = {"alpha": 10.0, "reg": 0.03, "reg_exponent": 1.0, "embedding_size": 32}
    found = api.run("fedals", "ml-100k", seed=0, rounds=10, **same)
    wanted = api.run(als_with_last_users(epochs=10, **same), "ml-100k", seed=0)
    np.testing.assert_allclose(found.model.item_rows, wanted.model.item_rows, atol=1e-4)
    assert found.metrics["NDCG@10"] == pytest.approx(wanted.metrics["NDCG@10"], abs=1e-3)
    assert found.metrics["NDCG@10"] > 0.5


@pytest.mark.slow
def test_ratings_of_movielens(real_data):
    real_data("ml-100k", "u.data")
    found = api.run("fedals", "ml-100k", feedback="explicit", seed=0, rounds=3)
    assert np.isfinite(found.metrics["RMSE"])


# The objective.


def ridges(P: np.ndarray, world: World) -> tuple[np.ndarray, np.ndarray]:
    """Of users and of items: lambda (count + others / alpha)^nu."""
    s = world.settings
    users = s.reg * (P.sum(axis=1) + P.shape[1] / s.alpha) ** s.reg_exponent
    items = s.reg * (P.sum(axis=0) + world.n_users / s.alpha) ** s.reg_exponent
    return users, items


def best_users(P: np.ndarray, Y: np.ndarray, world: World) -> np.ndarray:
    users, _ = ridges(P, world)
    C = 1 + world.settings.alpha * P
    one = np.eye(Y.shape[1])
    return np.array(
        [
            np.linalg.solve(Y.T @ (c[:, None] * Y) + ridge * one, Y.T @ (c * p))
            for c, p, ridge in zip(C, P, users, strict=True)
        ]
    )


def objective(P: np.ndarray, Y: np.ndarray, world: World) -> float:
    """Rendle et al. 2022 with the best users for these items."""
    Y = Y.astype(float)
    X = best_users(P, Y, world)
    users, items = ridges(P, world)
    errors = (1 + world.settings.alpha * P) * (P - X @ Y.T) ** 2
    return float(errors.sum() + users @ (X**2).sum(axis=1) + items @ (Y**2).sum(axis=1))


@pytest.mark.parametrize("block_size", [0, 1, 2, 4])
@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_the_objective_never_rises(block_size, exponent):
    training = histories(6, n_users=30, n_items=17)
    changes = {"block_size": block_size, "reg_exponent": exponent, "rounds": 15}
    world = world_for("fedals", training, **(FEW | changes))
    states, _ = play("fedals", world, LocalEngine.over(world, training, 1))
    P = preferences(training)
    values = [objective(P, state.item_rows, world) for state in states]
    assert all(after <= before * (1 + 1e-6) for before, after in pairwise(values))
    assert values[-1] < 0.9 * values[0]


@pytest.fixture(scope="module")
def stationary() -> tuple[TrainingSet, np.ndarray]:
    """A point that dense ALS in double precision no longer moves."""
    training = histories(7, n_users=30, n_items=17)
    world = world_for("fedals", training, **FEW)
    P = preferences(training)[world.members]
    Y = fedals.init(world).item_rows.astype(float)
    _, items = ridges(P, world)
    for _ in range(1500):
        X = best_users(P, Y, world)
        for i, p in enumerate(P.T):
            c = 1 + world.settings.alpha * p
            Y[i] = np.linalg.solve(X.T @ (c[:, None] * X) + items[i] * np.eye(5), X.T @ (c * p))
    return training, Y


@pytest.mark.parametrize("block_size", [0, 1, 2, 3])
def test_a_stationary_point_stays_where_it_is(block_size, stationary):
    """Whichever block a round solves for."""
    training, Y = stationary
    world = world_for("fedals", training, **(FEW | {"block_size": block_size}))
    engine = LocalEngine.over(world, training, 1)
    start = fedals.init(world)
    still, _ = play("fedals", world, engine, replace(start, item_rows=Y.astype(np.float32)))
    for state in still:
        np.testing.assert_allclose(state.item_rows, Y, atol=1e-4)
    assert np.abs(Y).max() > 0.3
    moved, _ = play("fedals", world, engine, replace(start, item_rows=Y.astype(np.float32) * 1.1))
    assert np.abs(moved[1].item_rows - moved[0].item_rows).max() > 0.01


def test_blocks_get_as_low_as_whole_rounds():
    training = histories(8, n_users=30, n_items=17)
    P = preferences(training)

    def last(block_size: int, rounds: int) -> float:
        changes = {"block_size": block_size, "rounds": rounds}
        world = world_for("fedals", training, **(FEW | changes))
        states, _ = play("fedals", world, LocalEngine.over(world, training, 1))
        return objective(P, states[-1].item_rows, world)

    assert last(2, 900) == pytest.approx(last(0, 300), rel=1e-4)


# Blocks.


@pytest.mark.parametrize(
    ("d", "size", "expected"),
    [
        (5, 0, [(0, 5)]),
        (5, 2, [(0, 2), (2, 4), (3, 5)]),
        (6, 3, [(0, 3), (3, 6)]),
        (5, 9, [(0, 5)]),
        (1, 1, [(0, 1)]),
    ],
)
def test_blocks_by_hand(d, size, expected):
    assert fedals.blocks(fedals.FedALS(embedding_size=d, block_size=size)) == expected


def test_a_round_changes_the_coordinates_of_its_block_only():
    states, _ = play_locally("fedals", all_active(1), **(FEW | {"block_size": 2}))
    changed = [
        np.flatnonzero((after.item_rows != before.item_rows).any(axis=0)).tolist()
        for before, after in pairwise(states)
    ]
    assert changed == [[0, 1], [2, 3], [3, 4]] * 2


# All paths of a round.


class Apart(Engine):
    """The local engine without fast paths."""

    def __init__(self, engine: LocalEngine) -> None:
        self.engine = engine

    def gather(self, make: Callable[[World, NodeData], PrivateState]) -> PrivateState:
        return self.engine.gather(make)

    def call(self, exchange: Exchange, message: Message) -> list[Reply]:
        return self.engine.call(exchange, message)


PATHS: list[dict[str, Any]] = [
    {},
    {"block_size": 2, "participation": 0.5},
    {"client_dropout": 0.3},
    {"block_size": 2, "client_dropout": 0.2},
]


@pytest.mark.parametrize("rated", [False, True])
@pytest.mark.parametrize("changes", PATHS, ids=str)
def test_all_paths_give_the_same_bits(changes, rated, monkeypatch):
    training = histories(7, n_users=40, n_items=13, rated=rated)
    world = world_for("fedals", training, **(FEW | {"reg": 3.0, "reg_exponent": 0.0} | changes))

    def digests(engine: Engine) -> list[str]:
        return [sha256(state) for state in play("fedals", world, engine)[0]]

    single = digests(LocalEngine.over(world, training, 1))
    assert len(set(single)) == 7
    assert digests(Apart(LocalEngine.over(world, training, 1))) == single
    for nodes, wired in ((1, True), (3, None)):
        assert digests(LocalEngine.over(world, training, nodes, wired)) == single
    monkeypatch.setenv("COTERIE_THREADS", "3")
    assert digests(LocalEngine.over(world, training, 1)) == single


@pytest.mark.parametrize("rated", [False, True])
@pytest.mark.parametrize("changes", PATHS, ids=str)
def test_secure_aggregation_gives_the_same_bits(changes, rated):
    pytest.importorskip("cryptography")
    training = histories(9, n_users=26, n_items=9, rated=rated)
    same = FEW | {"reg": 3.0, "reg_exponent": 0.0, "rounds": 4} | changes
    protocol = {"secure_aggregation": "ring"}
    if "client_dropout" in changes:
        # Dropouts after the upload abort rings, and groups that lose nearly half of their clients.
        same["client_dropout"] = 0.2
        protocol = {"secure_aggregation": "secagg", "colluders": 0, "smallest_group": 3}
    plain, costs = play_locally("fedals", training, **same)
    secure, secure_costs = play_locally("fedals", training, **protocol, **same)
    assert [c.accepted for c in secure_costs] == [c.accepted for c in costs]
    assert [sha256(state) for state in secure] == [sha256(state) for state in plain]
    assert len({sha256(state) for state in plain}) == 5


def test_hostile_updates_change_nothing():
    training = histories(7, n_users=40, n_items=13)
    world = world_for("fedals", training, **(FEW | {"participation": 0.8}))

    def run(attacking: bool, nodes: int) -> tuple[list[str], int]:
        engine = LocalEngine.over(world, training, nodes)
        hostile = HostileEngine(engine, 13, fedals.EXCHANGE, 15, 8, attacking)
        states, costs = play("fedals", world, hostile)
        refused = sum(sum(c.refused.values()) for c in costs)
        assert refused == sum(hostile.sent.values())
        return [sha256(state) for state in states], refused

    digests, refused = run(True, 3)
    assert (digests, 0) == run(False, 1)
    assert refused == 6 * 23


def test_vectors_out_of_range_are_refused_on_every_path():
    """Tiny item rows and almost no regularisation give huge vectors of some users."""
    training = histories(8, n_users=40, n_items=13)
    changes = {"start_scale": 0.03, "reg": 1e-4, "alpha": 1.0, "reg_exponent": 0.0, "rounds": 2}
    world = world_for("fedals", training, **(FEW | changes))
    states, costs = play("fedals", world, LocalEngine.over(world, training, 1))
    assert set(costs[0].refused) == {"out of range"}
    assert 0 < costs[0].refused["out of range"] < 39
    for engine in (
        LocalEngine.over(world, training, 3),
        Apart(LocalEngine.over(world, training, 1)),
    ):
        again, more = play("fedals", world, engine)
        assert [sha256(state) for state in again] == [sha256(state) for state in states]
        assert [c.refused for c in more] == [c.refused for c in costs]


# What travels, and what does not.


def updates_of(training: TrainingSet, **changes: Any) -> Any:
    world = world_for("fedals", training, **(FEW | changes))
    users = np.flatnonzero(world.members).astype(np.int32)
    message = fedals.broadcast(world, fedals.init(world), users, 0)
    node = LocalEngine.over(world, training, 1).nodes[0]
    return fedals.client_update(world, message, node)


def test_an_update_is_a_vector_and_the_ids_of_items():
    training = histories(2, n_users=12, n_items=9)
    updates = updates_of(training)
    assert updates.samples.tolist() == [1] * 11
    assert updates.dense.shape == (11, 5)
    assert np.abs(updates.dense).max() < TOO_LARGE
    assert updates.item_rows.shape == (len(training.positives.items), 0)
    assert updates.items.tolist() == training.positives.items.tolist()


def test_ratings_travel_in_fixed_point():
    training = histories(2, n_users=12, n_items=9, rated=True)
    updates = updates_of(training, reg=2.0)
    assert training.ratings is not None
    np.testing.assert_array_equal(updates.item_rows[:, 0], training.ratings * fedals.RATING_SCALE)


@pytest.mark.parametrize("rated", [False, True])
def test_the_world_knows_whether_clients_have_ratings(rated):
    training = histories(2, rated=rated)
    world = world_for("fedals", training, **FEW)
    assert world.rated is rated
    state = fedals.init(world)
    assert fedals.sizes(world, state).item_width == int(rated)
    message = fedals.broadcast(world, state, np.arange(2, dtype=np.int32), 0)
    assert set(message.common) == ({"item_rows", "item_bias"} if rated else {"item_rows"})


def test_a_ridge_that_grows_needs_alpha():
    with pytest.raises(ConfigError, match="alpha is 0"):
        fedals.FedALS.of({"alpha": 0.0})


# Ratings.


def without_item(training: TrainingSet, item: int) -> TrainingSet:
    stays = training.positives.items != item
    users = training.users[stays]
    rows = Rows.build(users, training.positives.items[stays], training.n_users)
    assert training.ratings is not None
    return TrainingSet(training.n_users, training.n_items, rows, rows, training.ratings[stays])


@pytest.mark.parametrize("exponent", [0.5, 1.0])
def test_items_without_ratings_have_finite_rows(exponent):
    training = without_item(histories(3, n_users=20, n_items=11, rated=True), 7)
    states, _ = play_locally("fedals", training, **(FEW | {"reg": 2.0, "reg_exponent": exponent}))
    assert np.isfinite(states[-1].item_rows).all()


def test_users_without_ratings_have_finite_rows():
    training = histories(3, n_users=20, n_items=11, rated=True)
    model = trained(training, **(FEW | {"reg": 2.0, "reg_exponent": 1.0}))
    assert np.isfinite(model.user_rows).all()


# New users.


def trained(training: TrainingSet, **changes: Any) -> PrivateFactors:
    world = world_for("fedals", training, **changes)
    engine = LocalEngine.over(world, training, 1)
    federation = registry.algorithm("fedals").train
    work = trainer.federated_trainer(
        federation,  # type: ignore[arg-type]
        world,
        engine,
        trainer.Context(0, SILENT),
    )
    states, _ = play("fedals", world, engine)
    model = work.model(states[-1])
    assert isinstance(model, PrivateFactors)
    return model


@pytest.mark.parametrize("changes", [{}, {"block_size": 2}, {"reg_exponent": 0.5}], ids=str)
def test_a_person_of_the_training_data_gets_the_scores_of_training(changes):
    training = all_active(3)
    model = trained(training, **(FEW | changes))
    settings = fedals.FedALS.of(FEW | changes)
    scores = model.score(np.arange(20, dtype=np.int32))
    for user in range(20):
        person = NewUser(items=training.positives.of(user))
        found = fedals.score_new_user(model, person, settings)
        np.testing.assert_allclose(found, scores[user], atol=1e-6)
    assert np.abs(np.diff(scores, axis=0)).max() > 0.1


def test_without_items_a_new_user_gets_the_average_row():
    model = trained(all_active(3), **FEW)
    nobody = NewUser(items=np.empty(0, np.int32))
    wanted = model.item_rows @ model.user_rows.mean(axis=0)
    found = fedals.score_new_user(model, nobody, fedals.FedALS.of(FEW))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
