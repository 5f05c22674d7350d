"""A curious server changes no bit of a run and sees only what a server sees."""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise

import numpy as np
import pytest
from small_federation import histories, play, sha256, world_for

from coterie.algorithms import fpl
from coterie.attacks import attackers
from coterie.attacks.eavesdropper import Eavesdropper, Observation, observe
from coterie.attacks.evidence import EvidenceCollector
from coterie.attacks.replay import knowledge_of
from coterie.attacks.scores import score
from coterie.engines.local import LocalEngine
from coterie.types import TOO_LARGE, Message, Updates

FEW = {"embedding_size": 6, "start_scale": 0.5, "learning_rate": 0.1}


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("name", ["sfpl", "sfpl+", "pfpl", "pfpl+", "fcf"])
def test_observing_changes_no_bits(name, nodes):
    training = histories(5, n_users=14, n_items=12)
    world = world_for(name, training, rounds=3, **(FEW if name != "fcf" else {}))
    engine = LocalEngine.over(world, training, nodes)
    rounds = []
    states, costs = play(name, world, engine)
    same_states, same_costs = play(name, world, Eavesdropper(engine, rounds.append))
    assert [sha256(state) for state in states] == [sha256(state) for state in same_states]
    assert [(c.accepted, c.bytes_up, c.bytes_down) for c in costs] == [
        (c.accepted, c.bytes_up, c.bytes_down) for c in same_costs
    ]
    assert (
        sum(len(observation.users) for observation in rounds) == sum(c.accepted for c in costs) > 0
    )


def test_observations_hold_what_was_sent():
    """The sum of the rows that users sent is the change from one message to the next."""
    training = histories(7, n_users=14, n_items=12)
    world = world_for("pfpl+", training, rounds=1, **(FEW | {"triples": 5, "disclosure": 0.5}))
    rounds: list[Observation] = []
    play("pfpl+", world, Eavesdropper(LocalEngine.over(world, training, 1), rounds.append))
    assert [observation.t for observation in rounds] == [0, 1, 2, 3, 4]
    for before, after in pairwise(rounds):
        sums = np.zeros((12, 7))
        np.add.at(sums, before.items, before.item_rows / 2**20)
        step = after.sent["item_rows"] - before.sent["item_rows"]
        np.testing.assert_allclose(step, 0.1 * sums[:, :6], atol=1e-6)
        assert (before.samples == 5).all()


def test_observations_hold_no_private_state():
    training = histories(7, n_users=14, n_items=12)
    rounds = []
    world = world_for("pfpl+", training, rounds=1, **FEW)
    states, _ = play(
        "pfpl+", world, Eavesdropper(LocalEngine.over(world, training, 1), rounds.append)
    )
    assert {f.name for f in fields(Observation)} == {
        "t",
        "users",
        "samples",
        "n_bytes",
        "offsets",
        "items",
        "item_rows",
        "sent",
        "dense",
    }
    everything = b"".join(
        np.ascontiguousarray(array).tobytes()
        for observation in rounds
        for array in (
            observation.users,
            observation.samples,
            observation.offsets,
            observation.items,
            observation.item_rows,
            observation.dense,
            *observation.sent.values(),
        )
    )
    assert set(rounds[0].sent) == {"item_rows", "item_bias"}
    assert states[0].item_rows.tobytes() in everything
    assert not any(row.tobytes() in everything for state in states for row in state.user_rows)


def test_users_without_valid_rows_are_not_observed():
    rows = np.array([[1, 2], [3, 4], [5, -TOO_LARGE], [7, 8], [9, -(1 << 31)]], np.int32)
    none = np.empty((4, 0), np.int32)
    updates = Updates(
        np.array([1, 4, 6, 9], np.int32),
        np.ones(4, np.int64),
        np.array([0, 2, 2, 4, 5]),
        np.array([0, 3, 1, 2, 5], np.int32),
        rows,
        none,
        none,
    )
    observation = observe(Message(3, updates.users, {}, {}), updates)
    assert observation.t == 3
    assert observation.users.tolist() == [1]
    assert observation.items.tolist() == [0, 3]
    assert observation.offsets.tolist() == [0, 2]


# Attackers on real rounds: forty users, histories of one to nineteen of forty items


def attack_counts(name: str, n_rounds: int, **changes):
    training = histories(11, n_users=42, n_items=40)
    world = world_for(
        name, training, **({"epochs": n_rounds, "rounds_an_epoch": 1} | FEW | changes)
    )
    collector = EvidenceCollector(knowledge_of(world), attackers.ON_FPL)
    play(name, world, Eavesdropper(LocalEngine.over(world, training, 1), collector.add))
    observed = collector.observed
    assert observed.sum() > 10
    if name in ("pfpl", "pfpl+"):
        assert observed.sum() == 40
    scores = {
        name: score(claims, training.positives, 40) for name, claims in collector.claims().items()
    }
    return {
        name: (result.claims[observed], result.hits[observed], result.liked[observed])
        for name, result in scores.items()
    }


@pytest.mark.parametrize("reading", ["authors", "literal"])
@pytest.mark.parametrize("name", ["pfpl+", "pfpl", "sfpl+"])
def test_with_everything_disclosed_signs_reveal_the_histories(name, reading):
    found = attack_counts(name, 200 if name == "sfpl+" else 30, disclosure=1.0, reading=reading)
    claims, hits, liked = found["bias-sign"]
    assert (claims == hits).all()
    assert hits.sum() > (0.95 if name == "pfpl+" else 0.6) * liked.sum()
    claims, hits, _ = found["factor-sign"]
    assert hits.sum() > 0.95 * claims.sum() > 0


@pytest.mark.parametrize("reading", ["authors", "literal"])
def test_the_two_rows_of_a_triple_are_opposite_in_both_readings(reading):
    counts = attack_counts("pfpl+", 20, disclosure=1.0, reading=reading, triples=6)
    claims, hits, liked = counts["pairing"]
    assert hits.sum() > 0.99 * claims.sum()
    assert hits.sum() > 0.7 * liked.sum()


def test_with_nothing_disclosed_the_complement_reveals_the_histories():
    found = attack_counts("pfpl+", 100, disclosure=0.0)
    for name in ("bias-sign", "factor-sign", "pairing", "frequency"):
        assert found[name][1].sum() == 0, name
    assert found["bias-sign"][0].sum() == found["pairing"][0].sum() == 0
    for name in ("complement", "never-down"):
        claims, hits, liked = found[name]
        assert (hits == liked).all()
        assert hits.sum() > 0.99 * claims.sum()


def test_a_low_disclosure_rate_protects_only_for_some_rounds():
    """pi = 0.1: after 100 rounds nearly every liked item was disclosed once, with its sign."""
    few, many = (attack_counts("pfpl+", n, disclosure=0.1)["bias-sign"] for n in (5, 100))
    assert (few[0] == few[1]).all()
    assert few[1].sum() < 0.5 * few[2].sum()
    assert many[1].sum() > 0.95 * many[2].sum()
    assert many[0].tolist() == many[1].tolist()


def test_a_server_knows_the_regularisation_and_no_disclosure_rate():
    world = world_for("pfpl+", histories(1), learning_rate=0.2, disclosure=0.3)
    assert isinstance(world.settings, fpl.FPL)
    server = knowledge_of(world)
    assert (server.reg_positive, server.reg_negative) == pytest.approx((0.01, 0.001))
    assert not any("disclosure" in f.name for f in fields(server))
