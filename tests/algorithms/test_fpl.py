"""FPL: readings equal a slow twin of Eqs. 3 to 7, all paths agree, private items are never sent."""

from __future__ import annotations

from dataclasses import replace
from math import exp
from typing import Any

import numpy as np
import pytest
from small_federation import histories, play, play_locally, sha256, world_for

from coterie import api
from coterie.algorithms import fpl
from coterie.core import streams
from coterie.data.training_set import PrivacyPreferences, TrainingSet
from coterie.engines.local import LocalEngine
from coterie.federated import trainer
from coterie.federated.engine import Engine
from coterie.federated.federation import NodeData, World
from coterie.types import Rows

MODES = ["sfpl", "sfpl+", "pfpl", "pfpl+"]
CLOSE = 2e-5
FEW = {
    "embedding_size": 6,
    "epochs": 2,
    "rounds_an_epoch": 4,
    "start_scale": 0.5,
    "learning_rate": 0.1,
}


# The twin: one user and one triple at a time, lists and double precision.


def triples_of(world: World, node: Any, u: int, t: int, pi: float) -> list[tuple[int, int, bool]]:
    """(i, j, whether i is sent), from the same random words: three for every triple."""
    liked = node.training.positives.of(u).tolist()
    unseen = [
        i for i in range(world.n_items) if i not in set(node.training.excluded.of(u).tolist())
    ]
    if not liked or not unseen:
        return []
    (key,) = streams.keys(node.seed, "triples", t, last=np.array([u]))
    preferences = node.training.preferences
    first = node.training.positives.offsets[u]
    found = []
    for s in range(fpl.triples(world)):
        words = [int(streams.words(np.array([key]), 3 * s + n)[0]) for n in range(3)]
        i = liked[((words[0] >> 32) * len(liked)) >> 32]
        j = unseen[((words[2] >> 32) * len(unseen)) >> 32]
        kept_back = preferences is not None and bool(preferences.hidden[first + liked.index(i)])
        found.append((i, j, (words[1] >> 11) * 2.0**-53 < pi and not kept_back))
    return found


def device(
    world: World, p: np.ndarray, Q: np.ndarray, b: np.ndarray, triples: list[tuple[int, int, bool]]
) -> Any:
    """Eqs. 3 to 6: the user's vector after the round, and its update."""
    s = world.settings
    reg_user, reg_positive, reg_negative = s.regularisation()
    p, start, dQ, db, own = p.copy(), p.copy(), np.zeros_like(Q), np.zeros_like(b), np.zeros_like(p)
    for i, j, sent in triples:
        now = start if s.reading == "literal" else p.copy()
        x = b[i] + now @ Q[i] - b[j] - now @ Q[j]
        e = exp(-x) / (1 + exp(-x))
        dQ[j] += -e * now - reg_negative * Q[j]
        db[j] += -e - s.reg_bias * b[j]
        if sent:
            dQ[i] += e * now - reg_positive * Q[i]
            db[i] += e - s.reg_bias * b[i]
        move = e * (Q[i] - Q[j]) - reg_user * now
        own += move
        if s.reading == "authors":
            p = p + s.learning_rate * move
    return (start + s.learning_rate * own if s.reading == "literal" else p), dQ, db


def twin(
    world: World, node: Any, state: Any, cohort: list[int], t: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A round: all users from the same items, then Eq. 7."""
    P, Q, b = (
        getattr(state, name).astype(float) for name in ("user_rows", "item_rows", "item_bias")
    )
    total = np.zeros_like(Q)
    bias = np.zeros_like(b)
    after = P.copy()
    for u in cohort:
        (pi,) = fpl.disclosed(world, node, np.array([u], np.int32), np.array([t])).tolist()
        after[u], dQ, db = device(world, P[u], Q, b, triples_of(world, node, u, t, pi))
        total = total + dQ
        bias = bias + db
    return after, Q + world.settings.learning_rate * total, b + world.settings.learning_rate * bias


@pytest.mark.parametrize("reading", ["authors", "literal"])
@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("disclosure", [0.0, 0.4, 1.0])
def test_rounds_equal_the_twin(name, reading, disclosure):
    """T > 1 and few items: an item occurs several times, both as i and as j."""
    training = histories(3, n_users=10, n_items=9)
    triples = {} if name in ("sfpl", "pfpl") else {"triples": 7}
    world = world_for(
        name,
        training,
        **(
            FEW
            | triples
            | {"reading": reading, "disclosure": disclosure, "epochs": 4, "rounds_an_epoch": 1}
        ),
    )
    engine = LocalEngine.over(world, training, 1)
    states, all_costs = play(name, world, engine)
    moved = 0.0
    for t, (before, after, costs) in enumerate(zip(states, states[1:], all_costs, strict=False)):
        expected = twin(world, engine.nodes[0], before, costs.users.tolist(), t)
        for found, wanted in zip(
            (after.user_rows, after.item_rows, after.item_bias), expected, strict=True
        ):
            np.testing.assert_allclose(found, wanted, atol=CLOSE, rtol=0)
        moved = max(moved, float(np.abs(after.item_rows - before.item_rows).max()))
    assert moved > 100 * CLOSE


@pytest.mark.parametrize("name", ["sfpl+", "pfpl+"])
def test_rounds_with_regularised_biases_equal_the_twin(name):
    training = histories(3, n_users=10, n_items=9)
    biased = {"reg_bias": 0.2, "bias_start_scale": 0.5, "triples": 7, "rounds_an_epoch": 1}
    world = world_for(name, training, **(FEW | biased | {"epochs": 3}))
    engine = LocalEngine.over(world, training, 1)
    states, all_costs = play(name, world, engine)
    for t, costs in enumerate(all_costs):
        _, _, bias = twin(world, engine.nodes[0], states[t], costs.users.tolist(), t)
        np.testing.assert_allclose(states[t + 1].item_bias, bias, atol=CLOSE, rtol=0)


def test_biases_start_at_zero_or_at_the_authors_scale():
    world = world_for("pfpl+", histories(0), bias_start_scale=0.1)
    assert not fpl.start_biases(world_for("pfpl+", histories(0))).any()
    drawn = fpl.start_biases(replace(world, n_items=20_000))
    assert float(drawn.std()) == pytest.approx(0.1, rel=0.02)
    assert float(drawn.mean()) == pytest.approx(0.0, abs=0.003)


class OneByOne(Engine):
    """The local engine without fast paths: every round runs by itself."""

    def __init__(self, engine: LocalEngine) -> None:
        self.gather = engine.gather
        self.call = engine.call


@pytest.mark.parametrize("reading", ["authors", "literal"])
@pytest.mark.parametrize(("name", "triples"), [("sfpl", 1), ("sfpl+", 5)])
def test_sequential_rounds_in_one_call_equal_rounds_one_by_one(name, triples, reading):
    training = histories(5, n_users=14, n_items=12)
    changes = FEW | {
        "reading": reading,
        "triples": triples,
        "rounds_an_epoch": 30,
        "disclosure": 0.5,
        "reg_bias": 0.05,
    }
    world = world_for(name, training, **changes)
    engine = LocalEngine.over(world, training, 1)
    fused, costs = play(name, world, engine)
    single, same_costs = play(name, world, OneByOne(engine))  # type: ignore[arg-type]
    assert [sha256(state) for state in fused] == [sha256(state) for state in single]
    for one, other in zip(costs, same_costs, strict=True):
        assert one.users.tolist() == other.users.tolist()
        assert (one.accepted, one.dropped, one.refused, one.bytes_up, one.bytes_down) == (
            other.accepted,
            other.dropped,
            other.refused,
            other.bytes_up,
            other.bytes_down,
        )
    assert sum(cost.dropped for cost in costs) > 0  # a user with all items sends no update


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("nodes", [3, 7, 20])
def test_the_number_of_nodes_does_not_change_a_run(name, nodes):
    training = histories(6, n_users=14, n_items=12)
    ends = {sha256(play_locally(name, training, nodes=n, **FEW)[0][-1]) for n in (1, nodes)}
    assert len(ends) == 1


def test_sequential_with_everything_disclosed_is_bpr():
    """One user, one triple, pi = 1: an SGD step on items and user (Rendle et al. 2009)."""
    training = histories(2, n_users=12, n_items=10)
    world = world_for("sfpl", training, **(FEW | {"rounds_an_epoch": 200, "epochs": 1}))
    engine = LocalEngine.over(world, training, 1)
    (begin, end), (costs,) = play("sfpl", world, engine)
    P, Q, b = (
        getattr(begin, name).astype(float) for name in ("user_rows", "item_rows", "item_bias")
    )
    rate = 0.1
    (reg_user, reg_positive, reg_negative) = world.settings.regularisation()
    for t, u in enumerate(costs.users.tolist()):
        for i, j, _ in triples_of(world, engine.nodes[0], u, t, 1.0):
            x = P[u] @ (Q[i] - Q[j]) + b[i] - b[j]
            g = 1 / (1 + exp(x))
            p = P[u].copy()
            q_i = Q[i].copy()
            q_j = Q[j].copy()
            P[u] += rate * (g * (q_i - q_j) - reg_user * p)
            Q[i] += rate * (g * p - reg_positive * q_i)
            Q[j] += rate * (-g * p - reg_negative * q_j)
            b[i] += rate * g
            b[j] -= rate * g
    np.testing.assert_allclose(end.user_rows, P, atol=1e-4, rtol=0)
    np.testing.assert_allclose(end.item_rows, Q, atol=1e-4, rtol=0)
    np.testing.assert_allclose(end.item_bias, b, atol=1e-4, rtol=0)


# The modes of Section 5.2.


def small_world(name: str, n_users: int, n_positives: int, **changes: Any) -> World:
    """The sizes of Foursquare-Italy, without its data."""
    chosen = world_for(name, histories(0), rounds_an_epoch=0, **changes).settings
    return World(chosen, 0, n_users, 50_000, np.ones(n_users, bool), {}, n_positives)


@pytest.mark.parametrize(
    ("name", "users", "triples", "per_epoch"),
    [("sfpl", 1, 1, 54_088), ("sfpl+", 1, 39, 1353), ("pfpl", 1353, 1, 39), ("pfpl+", 1353, 39, 1)],
)
def test_the_modes_on_foursquare_italy_have_the_numbers_of_the_paper(
    name, users, triples, per_epoch
):
    world = small_world(name, 1353, 54_088)
    assert (fpl.users_per_round(world), fpl.triples(world), fpl.rounds_an_epoch(world)) == (
        users,
        triples,
        per_epoch,
    )


@pytest.mark.parametrize(
    ("name", "per_epoch"), [("sfpl", 54_088), ("sfpl+", 54_088), ("pfpl", 39), ("pfpl+", 39)]
)
def test_the_authors_schedule_does_not_depend_on_triples(name, per_epoch):
    """int(54088 / 1353) = 39: a plus mode trains on 38 to 39 times as many triples an epoch."""
    assert fpl.rounds_an_epoch(small_world(name, 1353, 54_088, schedule="authors")) == per_epoch


def test_the_authors_schedule_with_a_share_of_the_users():
    """int(54088 / 270) = 200 rounds of 270 users, for any T."""
    world = small_world("pfpl+", 1353, 54_088, schedule="authors", users_per_round=270, triples=5)
    assert fpl.rounds_an_epoch(world) == 200


BRAZIL = [  # Table 4: pi, epochs to the best, TCC in 10^12
    ("sfpl", 0.1, 45, 1.27623),
    ("sfpl", 1.0, 45, 1.27625),
    ("sfpl+", 0.1, 50, 1.41913),
    ("sfpl+", 0.9, 50, 1.41996),
    ("pfpl", 0.5, 45, 1.27624),
    ("pfpl+", 0.1, 35, 0.99339),
    ("pfpl+", 0.8, 35, 0.99390),
]


def brazil(name: str, pi: float, schedule: str) -> World:
    """The sizes of Table 1, without the data."""
    chosen = {"rounds_an_epoch": 0, "disclosure": pi, "schedule": schedule}
    settings = world_for(name, histories(0), **chosen).settings
    return World(settings, 0, 17_473, 47_270, np.ones(17_473, bool), {}, 599_958)


@pytest.mark.parametrize(("name", "pi", "epochs", "printed"), BRAZIL)
def test_table_4_counts_the_authors_schedule(name, pi, epochs, printed):
    """X+ (|I| + T (1 + pi)) in 45, 50 and 35 epochs gives its figures to five digits.

    Whole rounds of all users are 34 an epoch where X+ / |U| is 34.34. With the equal-triples
    schedule the plus modes would need 34 times as many epochs: 1,200 and more, of 50 explored.
    """
    T = 1 if name in ("sfpl", "pfpl") else 599_958 / 17_473
    assert 599_958 * (47_270 + T * (1 + pi)) * epochs == pytest.approx(printed * 1e12, rel=1e-5)
    node = NodeData(np.arange(17_473, dtype=np.int32), histories(0), 0)
    world = brazil(name, pi, "authors")
    whole_rounds = 1.0 if name in ("sfpl", "sfpl+") else 34 * 17_473 / 599_958
    assert fpl.vectors_per_epoch(world, node) * epochs == pytest.approx(
        whole_rounds * printed * 1e12, rel=3e-5
    )
    equal_triples = fpl.vectors_per_epoch(brazil(name, pi, "triples"), node)
    needed = printed * 1e12 / equal_triples
    assert needed == pytest.approx(epochs * (1 if T == 1 else 34.34), rel=0.011)


def test_the_default_regularisation_is_a_share_of_the_learning_rate():
    settings = fpl.FPL.of({"learning_rate": 0.1})
    assert settings.regularisation() == pytest.approx((0.005, 0.005, 0.0005))
    assert fpl.FPL.of(
        {"learning_rate": 0.1, "reg_user": 0.0, "reg_negative": 1}
    ).regularisation() == (0.0, 0.005, 1.0)


# Disclosure.


def sent_items(
    training: TrainingSet, disclosure: float, seed: int = 0
) -> list[tuple[set[int], set[int]]]:
    """For every user: the positive items it sent in a round, and the other items."""
    world = world_for("pfpl+", training, seed, **(FEW | {"disclosure": disclosure, "triples": 40}))
    engine = LocalEngine.over(world, training, 1)
    state, _ = trainer.federated_trainer(
        fpl.FEDERATION, world, engine, trainer.Context(seed, None)
    ).start()  # type: ignore[arg-type]
    users = np.flatnonzero(world.members).astype(np.int32)
    message = fpl.broadcast(world, state, users, 0)
    updates, _ = fpl.client_update(
        world,
        replace(message, private_state={n: getattr(state, n)[users] for n in state.private}),
        engine.nodes[0],
    )  # type: ignore[misc]
    found = []
    for k, u in enumerate(updates.users.tolist()):
        items = set(updates.items[updates.offsets[k] : updates.offsets[k + 1]].tolist())
        liked = set(training.positives.of(u).tolist())
        found.append((items & liked, items - liked))
    return found


def test_with_disclosure_0_no_positive_item_is_sent():
    assert all(not liked and others for liked, others in sent_items(histories(1, 20, 30), 0.0))


def test_the_coin_is_tossed_for_every_triple():
    """With forty triples a positive item is in several: at pi = 1 all are sent, at 0.05 few."""
    all_of_it, little = (
        sum(len(liked) for liked, _ in sent_items(histories(1, 20, 30), pi)) for pi in (1.0, 0.05)
    )
    assert 0 < little < all_of_it / 2


def mixed(training: TrainingSet) -> TrainingSet:
    """Every user has its own rate, which changes in epoch 3; every third interaction is private."""
    epochs = np.tile([1, 3], training.n_users)
    rates = streams.normal(streams.keys(5, "rates", last=np.arange(training.n_users)), 2)
    since = Rows(np.arange(training.n_users + 1) * 2, epochs.astype(np.int32))
    hidden = np.arange(len(training)) % 3 == 0
    return replace(
        training,
        preferences=PrivacyPreferences(
            since, np.clip(rates.reshape(-1) / 4 + 0.5, 0, 1).astype(np.float32), hidden
        ),
    )


@pytest.mark.parametrize("name", ["pfpl+", "sfpl+"])
def test_rounds_equal_the_twin_with_different_preferences_of_users(name):
    training = mixed(histories(3))
    world = world_for(
        name,
        training,
        **(FEW | {"triples": 6, "epochs": 4, "rounds_an_epoch": 1, "disclosure": "beta(1, 2)"}),
    )
    engine = LocalEngine.over(world, training, 1, through_the_wire=True)
    states, _ = play(name, world, engine)
    for t in range(4):
        cohort = fpl.sample(world, states[t], t).tolist()
        for ours, theirs in zip(
            (states[t + 1].user_rows, states[t + 1].item_rows, states[t + 1].item_bias),
            twin(world, engine.nodes[0], states[t], cohort, t),
            strict=True,
        ):
            np.testing.assert_allclose(ours, theirs, atol=2e-5)


@pytest.mark.parametrize("name", MODES)
def test_preferences_give_the_same_run_on_any_number_of_nodes_and_in_one_call(name):
    training = mixed(histories(4, n_users=14))
    few = FEW | {"epochs": 4, "rounds_an_epoch": 4}
    one, three = (play_locally(name, training, nodes=n, **few)[0][-1] for n in (1, 3))
    assert sha256(one) == sha256(three)
    assert sha256(one) != sha256(
        play_locally(name, replace(training, preferences=None), **few)[0][-1]
    )


def test_a_private_item_is_never_sent():
    training = mixed(histories(1, 20, 30))
    hidden = training.preferences.hidden
    for u, (liked, _) in enumerate(
        sent_items(
            replace(
                training,
                preferences=replace(
                    training.preferences,
                    since=Rows(np.zeros(21, np.int64), np.empty(0, np.int32)),
                    rates=np.empty(0, np.float32),
                ),
            ),
            1.0,
        )
    ):
        first, last = training.positives.offsets[u : u + 2]
        private = set(training.positives.items[first:last][hidden[first:last]].tolist())
        assert liked
        assert not liked & private


def test_results_are_broken_down_by_disclosure(people):
    run = api.run(
        "pfpl+", people, epochs=2, embedding_size=4, disclosure="choice(0, 1)", protocol="holdout"
    )
    rows = run.result["by_disclosure"]
    assert [row["from"] for row in rows] == [0, 1]
    assert sum(row["users"] for row in rows) == run.result["tested_users"]
    P = run.result["headline"][0]
    whole = sum(row["users"] * row[P] for row in rows) / run.result["tested_users"]
    assert whole == pytest.approx(run.result["metrics"][P])
    assert (
        "by_disclosure"
        not in api.run("pfpl+", people, epochs=1, embedding_size=4, disclosure=0.5).result
    )
