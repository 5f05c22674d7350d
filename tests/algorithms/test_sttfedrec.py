"""STTFedRec: the split is exact, each role sees its own part, and devices draw as in the paper."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from small_federation import few_settings, histories, play, play_locally, sha256, world_for

pytest.importorskip("torch")

from coterie.algorithms import registry, sttfedrec
from coterie.algorithms.two_tower import item_requests, requests
from coterie.algorithms.two_tower.settings import TwoTowers
from coterie.core import streams
from coterie.core.progress import SILENT
from coterie.data.splits import split
from coterie.data.training_set import TrainingSet
from coterie.engines import select
from coterie.engines.local import LocalEngine
from coterie.federated.engine import Engine
from coterie.federated.federation import (
    AGGREGATION,
    RECOMMENDATION,
    Exchange,
    Federation,
    PrivateState,
    World,
)
from coterie.federated.trainer import Context
from coterie.federated.transcript import CLIENTS, Transcript
from coterie.federated.validation import Reply
from coterie.types import TOO_LARGE, Message, Rows

TOWERS = ("dssm", "clsm")
SPLIT = [f"sttfedrec-{tower}" for tower in TOWERS]
PARTS = ("user_tower", "item_tower", "user_mean", "item_mean")


@pytest.fixture(scope="module")
def choices(people) -> TrainingSet:
    return split(people, "temporal", 0.2, seed=0).training()


def near(one: Any, other: Any, within: float = 1e-5) -> bool:
    return all(np.abs(getattr(one, name) - getattr(other, name)).max() < within for name in PARTS)


# The split is exact.


@pytest.mark.parametrize("tower", TOWERS)
@pytest.mark.parametrize("person", ["features", "titles"])
@pytest.mark.parametrize("share", [0.9, 0.5])
def test_a_round_of_the_split_is_a_round_of_the_naive_model(tower, person, share, choices):
    changes = {"person": person, "negative_share": share, "inputs": 300, "embedding_size": 32}
    naive, split_ = (
        play_locally(f"{kind}-{tower}", choices, rounds=1, **changes)[0]
        for kind in ("fl", "sttfedrec")
    )
    assert near(naive[0], split_[0], 1e-12)
    assert near(naive[1], split_[1])
    for name in ("user_tower", "item_tower"):  # both towers took a step
        moved = np.abs(getattr(split_[1], name) - getattr(split_[0], name))
        assert (moved > 5e-5).mean() > 0.1


@pytest.mark.parametrize("name", ["fl-dssm", "fl-clsm", *SPLIT])
def test_a_batch_of_devices_equals_the_devices_one_by_one(name, choices):
    """Single pass, one node through the wire, seven nodes: equal within 1e-5, with equal costs."""
    changes = {"inputs": 60, "embedding_size": 8, "users_per_round": 20}
    runs = [
        play_locally(name, choices, nodes, wire, rounds=1, **changes)
        for nodes, wire in [(1, False), (1, True), (7, None)]
    ]
    fused, wired, apart = (states[-1] for states, _ in runs)
    assert near(fused, wired)
    assert near(wired, apart)
    assert len({(t.accepted, t.bytes_up, t.bytes_down) for _, (t,) in runs}) == 1


@pytest.mark.parametrize("name", SPLIT)
def test_devices_need_no_item_texts(name, choices):
    world = world_for(name, choices)
    assert world.client_content is not None
    assert world.client_content.items is None
    engine = LocalEngine.over(world, choices, 3)
    assert engine.world.content is None
    assert all(
        node.training.content is not None and node.training.content.items is None
        for node in engine.nodes
    )


@pytest.mark.parametrize("name", SPLIT)
def test_requesting_the_whole_catalogue_trains_the_same_model(name, choices):
    """Devices with all vectors train on the same items; only batches of the item tower differ."""
    some, everything = (
        play_locally(name, choices, rounds=1, requests=mode, inputs=60, embedding_size=8)[0]
        for mode in ("resampled", "whole")
    )
    assert near(some[-1], everything[-1])
    wired = play_locally(name, choices, 3, rounds=1, requests="whole", inputs=60, embedding_size=8)[
        0
    ]
    assert near(everything[-1], wired[-1])


def test_sticky_decoys_are_outside_the_history_and_the_same_in_every_round(choices):
    world = world_for("sttfedrec-dssm", choices, requests="sticky")
    (node,) = LocalEngine.over(world, choices, 1).nodes
    users = np.flatnonzero(choices.positives.counts > 2)[:20].astype(np.int32)
    decoys_of = {user: set() for user in users.tolist()}
    for t in range(60):
        drawn = item_requests.draw_requests(world, node, users, t)
        for user, items, clicked in zip(users.tolist(), drawn.items, drawn.clicked, strict=True):
            assert set(items[clicked]) <= set(choices.positives.of(user).tolist())
            assert not set(items[~clicked & (items >= 0)]) & set(choices.excluded.of(user).tolist())
            decoys_of[user] |= set(items[~clicked & (items >= 0)].tolist())
    for user, decoys in decoys_of.items():
        free = choices.n_items - len(choices.excluded.of(user))
        assert len(decoys) <= min(9 * len(choices.positives.of(user)), free)


# What each role sees.


def transcript(
    name: str, training: TrainingSet, **changes: Any
) -> tuple[World, Transcript, list[Any]]:
    world = world_for(name, training, **changes)
    record = Transcript(LocalEngine.over(world, training, 2))
    return world, record, play(name, world, record)[0]


@pytest.mark.parametrize("name", SPLIT)
def test_messages_between_roles(name, choices):
    _, record, _ = transcript(name, choices, rounds=2, users_per_round=9)
    sent = {(line.sender, line.receiver): set() for line in record.lines}
    for line in record.lines:
        sent[line.sender, line.receiver] |= {
            key for key, array in line.arrays.items() if array.size
        }
    columns = {"users", "samples", "offsets", "items"}
    assert sent == {
        (RECOMMENDATION, CLIENTS): {"embeddings", "slots"},
        (CLIENTS, RECOMMENDATION): columns,
        (AGGREGATION, CLIENTS): {"tower"},
        (CLIENTS, AGGREGATION): columns | {"item_rows", "dense"},
        (RECOMMENDATION, AGGREGATION): {"slots"},
        (AGGREGATION, RECOMMENDATION): {"cut", "samples"},
    }
    assert all(line.bytes > 0 for line in record.lines)


@pytest.mark.parametrize("name", SPLIT)
def test_the_recommendation_server_receives_item_indices_and_no_labels(name, choices):
    world, record, _ = transcript(name, choices, rounds=2, users_per_round=9)
    received = [line for line in record.seen_by(RECOMMENDATION) if line.sender == CLIENTS]
    assert sum(len(line.arrays["users"]) for line in received) == 18
    for line in received:
        rows = Rows(line.arrays["offsets"], line.arrays["items"])
        assert (rows.counts == world.settings.compared).all()
        assert all(
            (np.diff(rows.of(k)) > 0).all() for k in range(len(rows.counts))
        )  # in the order of their numbers
        clicked = [
            np.isin(rows.of(k), choices.positives.of(u)).sum()
            for k, u in enumerate(line.arrays["users"])
        ]
        assert clicked == [1] * len(clicked)
        assert line.arrays["item_rows"].size == line.arrays["dense"].size == 0


@pytest.mark.parametrize("name", SPLIT)
def test_the_sum_of_a_single_ring_is_never_forwarded(name, choices):
    """The returned gradients of items are the same with and without rings."""
    handed = []
    for changes in ({}, {"secure_aggregation": "ring", "ring_size": 5}):
        _, record, _ = transcript(
            name, choices, rounds=2, users_per_round=18, inputs=20, embedding_size=4, **changes
        )
        handed.append(
            [line.arrays["cut"] for line in record.seen_by(RECOMMENDATION) if "cut" in line.arrays]
        )
    for plain, ring in zip(*handed, strict=True):
        assert plain.shape == ring.shape
        np.testing.assert_array_equal(np.sort(plain, axis=0), np.sort(ring, axis=0))


@pytest.mark.parametrize("name", SPLIT)
def test_requests_for_the_whole_catalogue_disclose_nothing(name, choices):
    _, record, _ = transcript(
        name, choices, rounds=2, users_per_round=9, requests="whole", secure_aggregation="ring"
    )
    assert all(
        not line.arrays["items"].size
        for line in record.seen_by(RECOMMENDATION)
        if line.sender == CLIENTS
    )
    of_devices = [line for line in record.seen_by(AGGREGATION) if line.sender == CLIENTS]
    assert not {"items", "slots"} & {key for line in of_devices for key in line.arrays}


@pytest.mark.parametrize("name", SPLIT)
def test_the_aggregation_server_receives_slots_and_no_items(name, choices):
    """Gradients of a slot are summed over users, and the item of a slot changes every round."""
    _, record, _ = transcript(name, choices, rounds=3, users_per_round=9)
    of_devices = [line for line in record.seen_by(AGGREGATION) if line.sender == CLIENTS]
    slots = [line.arrays["items"] for line in of_devices]
    assert max(map(np.max, slots)) < 90
    assert {key for line in of_devices for key in line.arrays} <= {
        "users",
        "samples",
        "offsets",
        "items",
        "item_rows",
        "user_rows",
        "dense",
    }
    requests_of = [line.arrays for line in record.seen_by(RECOMMENDATION) if line.sender == CLIENTS]
    items = np.concatenate([arrays["items"] for arrays in requests_of])
    assert not np.array_equal(np.sort(np.concatenate(slots)), np.sort(items))


def test_a_role_sees_its_own_part_of_the_state(choices):
    world = world_for("sttfedrec-dssm", choices)
    state = sttfedrec.init(world)
    recommendation = state.as_seen_by(RECOMMENDATION)
    aggregation = state.as_seen_by(AGGREGATION)
    assert recommendation.user_tower is None
    assert recommendation.cut is None
    assert recommendation.item_tower is state.item_tower
    assert aggregation.item_tower is None
    assert aggregation.requested is None
    assert aggregation.user_tower is state.user_tower
    assert world.seen_by(AGGREGATION).content is None
    assert world.seen_by(RECOMMENDATION).content is world.content
    assert world.seen_by(RECOMMENDATION).client_content is None
    meddling = replace(
        aggregation, user_tower=aggregation.user_tower + 1, item_tower=np.zeros(3, np.float32)
    )
    after = state.with_part_of(AGGREGATION, meddling)
    assert after.item_tower is state.item_tower
    assert np.array_equal(after.user_tower, state.user_tower + 1)


# Draws of devices.


def test_the_cache_of_requests_is_not_used_after_a_change(choices):
    world = world_for("sttfedrec-dssm", choices)
    others = world_for("sttfedrec-dssm", choices, compared=4)
    (node,) = LocalEngine.over(world, choices, 1).nodes
    users = np.array([1, 5, 7], np.int32)

    def drawn(world: World, users: Any, t: int) -> np.ndarray:
        return item_requests.draw_requests(world, node, users, t).items

    first = drawn(world, users, 0)
    assert drawn(world, users, 0) is first
    assert drawn(others, users, 0).shape == (3, 4)
    assert (drawn(world, users, 1) != first).any()
    np.testing.assert_array_equal(drawn(world, users[:2], 0), first[:2])
    np.testing.assert_array_equal(drawn(world, users, 0), first)


@pytest.mark.parametrize(("titles", "share"), [(5, 0.9), (3, 0.5), (20, 0.7)])
def test_requests_are_clicks_and_others_and_profiles_never_hold_the_target(titles, share, choices):
    chosen = TwoTowers.of({"titles": titles, "negative_share": share})
    people = np.arange(choices.n_users)
    own = set()
    for t in range(5):
        drawn = requests.draw(choices, people, chosen, streams.keys(0, "request", t, last=people))
        for k in people:
            history = set(choices.positives.of(k).tolist())
            clicked = set(drawn.items[k][drawn.clicked[k]])
            others = set(drawn.items[k][~drawn.clicked[k] & drawn.valid[k]])
            profile = [item for item in drawn.profiles[k].tolist() if item >= 0]
            assert clicked <= history
            assert len(clicked) == min(chosen.clicks, len(history))
            assert not others & history
            assert len(others) == 10 - chosen.clicks
            assert (
                len(set(profile))
                == len(profile)
                == min(titles, max(len(history) - chosen.clicks, 0))
            )
            assert set(profile) <= history - clicked
            own.add((k, *sorted(clicked)))
    assert len(own) > 2 * len(people)  # other rounds, other clicks


def test_users_with_too_few_clicks_or_decoys_request_fewer_items():
    small = histories(3, n_users=8, n_items=6)
    drawn = requests.draw(
        small, np.arange(8), TwoTowers.of({}), streams.keys(0, "r", last=np.arange(8))
    )
    for k in range(8):
        history = small.positives.of(k)
        wanted = min(1, len(history)) + min(9, 6 - len(history))
        assert drawn.valid[k].sum() == wanted
        assert (np.diff(drawn.items[k][drawn.valid[k]]) > 0).all()
        assert drawn.clicked[k].sum() == min(1, len(history))


# Devices that send invalid updates, or none.


class Lying(Engine):
    """The first user of every cohort sends the aggregation server an invalid gradient."""

    def __init__(self, engine: LocalEngine, silent: bool) -> None:
        self.engine = engine
        self.silent = silent

    def gather(self, make: Any) -> PrivateState:
        return self.engine.gather(make)

    def call(self, exchange: Exchange, message: Message) -> list[Reply]:
        if exchange.role != AGGREGATION:
            return self.engine.call(exchange, message)
        honest = self.engine.call(exchange, message.to(np.arange(1, len(message.users))))
        if self.silent:
            return honest
        (lie,) = self.engine.call(exchange, message.to(np.arange(1)))
        assert lie.columns is not None
        rows = lie.columns["item_rows"].copy()
        rows[0, 0] = TOO_LARGE
        return [*honest, replace(lie, columns=lie.columns | {"item_rows": rows})]


@pytest.mark.parametrize("name", SPLIT)
def test_a_refused_update_equals_a_missing_one(name, choices):
    world = world_for(name, choices, rounds=2, users_per_round=6, embedding_size=32)
    engine = LocalEngine.over(world, choices, 1)
    (lied, costs), (silent, _) = (
        play(name, world, Lying(engine, quiet)) for quiet in (False, True)
    )
    assert [sha256(state) for state in lied] == [sha256(state) for state in silent]
    assert [dict(costs.refused) for costs in costs] == [{"out of range": 1}] * 2


@pytest.mark.parametrize("name", SPLIT)
def test_between_rounds_the_state_holds_no_requests(name, choices):
    for state in play_locally(name, choices, rounds=3, client_dropout=0.5)[0]:
        assert len(state.requesters) == len(state.requested) == len(state.cut) == 0


# Eqs. 13 and 15.


def test_fedadam_by_hand():
    from coterie.algorithms.two_tower.gradients import UNIT
    from coterie.algorithms.two_tower.optimiser import TowerState, fedadam

    chosen = TwoTowers.of({"beta1": 0.9, "beta2": 0.99, "tau": 0.5})
    zeros = np.zeros(2, np.float32)
    once = fedadam(
        TowerState(np.ones(2, np.float32), zeros, zeros),
        np.array([4, -8], np.float32),
        2,
        chosen,
        0.1,
    )
    np.testing.assert_allclose(once.mean, [0.2, -0.4], rtol=1e-6)
    np.testing.assert_allclose(once.square, [0.04, 0.16], rtol=1e-6)
    np.testing.assert_allclose(
        once.parameters, [1 - 0.1 * 0.2 / 0.7, 1 + 0.1 * 0.4 / 0.9], rtol=1e-6
    )
    twice = fedadam(once, np.array([UNIT, UNIT]), 1, chosen, 0.1)
    np.testing.assert_allclose(twice.mean, [0.28, -0.26], rtol=1e-6)
    np.testing.assert_allclose(twice.square, [0.0496, 0.1684], rtol=1e-6)


def test_the_loss_by_hand():
    import torch

    from coterie.algorithms.two_tower.matching import losses

    people = torch.tensor([[3.0, 4.0]])
    items = torch.tensor([[[6.0, 8.0], [-8.0, 6.0], [-3.0, -4.0]]])
    clicked = torch.tensor([[True, False, False]])
    there = torch.tensor([[True, True, True]])
    chances = np.exp([1, 0, -1]) / np.exp([1, 0, -1]).sum()
    assert losses(people, items, clicked, there, 1.0).item() == pytest.approx(
        -np.log(chances[0]) / 3
    )
    chances = np.exp([5, 0]) / np.exp([5, 0]).sum()
    there = torch.tensor([[True, True, False]])
    assert losses(people, items, clicked, there, 5.0).item() == pytest.approx(
        -np.log(chances[0]) / 2
    )


@pytest.mark.parametrize("name", SPLIT)
def test_training_lowers_the_loss(name, choices):
    """Sixty rounds on users whose titles show their group: clicks rank above other items."""
    chosen = registry.algorithm(name)
    assert isinstance(chosen.train, Federation)
    wanted = few_settings(
        name,
        rounds=60,
        inputs=200,
        embedding_size=16,
        learning_rate=0.01,
        smoothing=5.0,
        decay="none",
        person="titles",
    )
    work = select.trainer(chosen.train, choices, wanted, Context(0, SILENT))
    state, _ = work.start()
    before = margin(work.model(state), choices)
    for n in range(1, 61):
        state, _ = work.step(state, n)
    assert margin(work.model(state), choices) > before + 0.03


def margin(model: Any, training: TrainingSet) -> float:
    """The mean score of clicks minus that of other items."""
    scores = model.score(np.arange(training.n_users, dtype=np.int32))
    clicked = np.zeros(scores.shape, bool)
    clicked[training.users, training.positives.items] = True
    return float(scores[clicked].mean() - scores[~clicked].mean())
