"""A curious server changes no bit of a run, sees what a server sees and nothing else, and reads it right."""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise

import numpy as np
import pytest
from small_federation import histories, play, sha256, world_for

from coterie.algorithms import fpl
from coterie.attacks import attackers
from coterie.attacks.eavesdropper import Listening, Overheard, overheard
from coterie.attacks.evidence import Dossier
from coterie.attacks.replay import server_of
from coterie.attacks.scores import judge
from coterie.engines.local import LocalEngine
from coterie.types import TOO_LARGE, Message, Updates

FEW = {"embedding_size": 6, "start_scale": 0.5, "learning_rate": 0.1}


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("name", ["sfpl", "sfpl+", "pfpl", "pfpl+", "fcf"])
def test_listening_changes_no_bits(name, nodes):
    training = histories(5, n_users=14, n_items=12)
    world = world_for(name, training, rounds=3, **(FEW if name != "fcf" else {}))
    engine = LocalEngine.over(world, training, nodes)
    rounds = []
    states, costs = play(name, world, engine)
    same_states, same_costs = play(name, world, Listening(engine, rounds.append))
    assert [sha256(state) for state in states] == [sha256(state) for state in same_states]
    assert [(c.accepted, c.bytes_up, c.bytes_down) for c in costs] == [
        (c.accepted, c.bytes_up, c.bytes_down) for c in same_costs
    ]
    assert sum(len(heard.users) for heard in rounds) == sum(c.accepted for c in costs) > 0


def test_what_is_heard_is_what_was_sent():
    """The rows that users sent, added up, are what the next message is off from the one before."""
    training = histories(7, n_users=14, n_items=12)
    world = world_for("pfpl+", training, rounds=1, **(FEW | {"triples": 5, "disclosure": 0.5}))
    rounds: list[Overheard] = []
    play("pfpl+", world, Listening(LocalEngine.over(world, training, 1), rounds.append))
    assert [heard.t for heard in rounds] == [0, 1, 2, 3, 4]
    for before, after in pairwise(rounds):
        sums = np.zeros((12, 7))
        np.add.at(sums, before.items, before.item_rows / 2**20)
        step = after.sent["item_rows"] - before.sent["item_rows"]
        np.testing.assert_allclose(step, 0.1 * sums[:, :6], atol=1e-6)
        assert (before.samples == 5).all()


def test_nothing_of_a_device_is_among_what_is_heard():
    training = histories(7, n_users=14, n_items=12)
    rounds = []
    world = world_for("pfpl+", training, rounds=1, **FEW)
    states, _ = play("pfpl+", world, Listening(LocalEngine.over(world, training, 1), rounds.append))
    assert {f.name for f in fields(Overheard)} == {
        "t",
        "users",
        "samples",
        "offsets",
        "items",
        "item_rows",
        "sent",
    }
    everything = b"".join(
        np.ascontiguousarray(array).tobytes()
        for heard in rounds
        for array in (
            heard.users,
            heard.samples,
            heard.offsets,
            heard.items,
            heard.item_rows,
            *heard.sent.values(),
        )
    )
    assert set(rounds[0].sent) == {"item_rows", "item_bias"}
    assert states[0].item_rows.tobytes() in everything
    assert not any(row.tobytes() in everything for state in states for row in state.user_rows)


def test_who_sent_nothing_or_nonsense_is_not_heard():
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
    heard = overheard(Message(3, updates.users, {}, {}), updates)
    assert (heard.t, heard.users.tolist(), heard.items.tolist(), heard.offsets.tolist()) == (
        3,
        [1],
        [0, 3],
        [0, 2],
    )


# Attackers on real rounds: forty people, histories of one to nineteen of forty items


def outcomes(name: str, n_rounds: int, **changes):
    training = histories(11, n_users=42, n_items=40)
    world = world_for(
        name, training, **({"epochs": n_rounds, "rounds_an_epoch": 1} | FEW | changes)
    )
    dossier = Dossier(server_of(world), attackers.ON_FPL)
    play(name, world, Listening(LocalEngine.over(world, training, 1), dossier.hear))
    heard = dossier.heard
    assert heard.sum() == (40 if name in ("pfpl", "pfpl+") else heard.sum()) > 10
    found = {
        name: judge(claims, training.positives, 40) for name, claims in dossier.claims().items()
    }
    return {name: (o.claims[heard], o.hits[heard], o.liked[heard]) for name, o in found.items()}


@pytest.mark.parametrize("reading", ["authors", "literal"])
@pytest.mark.parametrize("name", ["pfpl+", "pfpl", "sfpl+"])
def test_with_everything_disclosed_the_sign_tells_all(name, reading):
    found = outcomes(name, 200 if name == "sfpl+" else 30, disclosure=1.0, reading=reading)
    claims, hits, liked = found["bias-sign"]
    assert (claims == hits).all()
    assert hits.sum() > (0.95 if name == "pfpl+" else 0.6) * liked.sum()
    claims, hits, _ = found["factor-sign"]
    assert hits.sum() > 0.95 * claims.sum() > 0


@pytest.mark.parametrize("reading", ["authors", "literal"])
def test_the_two_rows_of_a_triple_are_opposite_in_both_readings(reading):
    claims, hits, liked = outcomes("pfpl+", 20, disclosure=1.0, reading=reading, triples=6)[
        "pairing"
    ]
    assert hits.sum() > 0.99 * claims.sum()
    assert hits.sum() > 0.7 * liked.sum()


def test_with_nothing_disclosed_signs_claim_nothing_true_and_the_complement_everything():
    found = outcomes("pfpl+", 100, disclosure=0.0)
    for name in ("bias-sign", "factor-sign", "pairing", "frequency"):
        assert found[name][1].sum() == 0, name
    assert found["bias-sign"][0].sum() == found["pairing"][0].sum() == 0
    for name in ("complement", "never-down"):
        claims, hits, liked = found[name]
        assert (hits == liked).all()
        assert hits.sum() > 0.99 * claims.sum()


def test_a_coin_for_every_triple_hides_little_for_long():
    """pi = 0.1: after 100 rounds nearly every liked item was shown once, and the sign tells that it is one."""
    few, many = (outcomes("pfpl+", n, disclosure=0.1)["bias-sign"] for n in (5, 100))
    assert (few[0] == few[1]).all()
    assert few[1].sum() < 0.5 * few[2].sum()
    assert many[1].sum() > 0.95 * many[2].sum()
    assert many[0].tolist() == many[1].tolist()


def test_a_server_knows_the_regularisation_and_no_rate():
    world = world_for("pfpl+", histories(1), learning_rate=0.2, disclosure=0.3)
    assert isinstance(world.settings, fpl.FPL)
    server = server_of(world)
    assert (server.reg_positive, server.reg_negative) == pytest.approx((0.01, 0.001))
    assert not any("disclosure" in f.name for f in fields(server))
