"""Costs of a device: counted multiplications, and times of the parts of its training."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("cryptography")

from coterie.algorithms import fltowers
from coterie.algorithms.two_tower import clsm, dssm
from coterie.algorithms.two_tower.item_requests import client_content, draw_requests
from coterie.federated import rounds
from coterie.federated.secagg.ring_member import RingTerms
from coterie.reproduce.aggregation_costs import Cohort, TimedRing, aggregation_costs
from coterie.reproduce.cost_checks import Even, Shorter
from coterie.reproduce.device_costs import costs_of, multiplications, prepared

SMALL = {
    "n_users": 40,
    "n_items": 60,
    "mean_interactions": 12,
    "inputs": 50,
    "layers": (8, 4),
    "embedding_size": 2,
}


def test_multiplications_by_hand():
    # DSSM: 5 inputs x 4 units, 4 x 3, 3 x 2; the number of words does not matter.
    assert dssm.multiplications(5, (4, 3, 2), 9) == 20 + 12 + 6
    # CLSM: at each of 7 positions 3 words x 5 inputs x 4 units; then 4 x 2.
    assert clsm.multiplications(5, (4, 2), 7) == 7 * 60 + 8


def test_a_naive_device_multiplies_once_per_item_and_once_for_its_user():
    """One user and T = 10 items: 11 texts against 1, as in Section 4.3."""
    naive = costs_of("fl-dssm", "synthetic", SMALL, devices=3)
    split = costs_of("sttfedrec-dssm", "synthetic", SMALL, devices=3)
    of_text = 50 * 8 + 8 * 4 + 4 * 2
    assert split["million multiplications"] == pytest.approx(of_text / 1e6)
    assert naive["million multiplications"] == pytest.approx(11 * of_text / 1e6)
    assert naive.keys() == split.keys()
    for costs in (naive, split):
        assert all(value > 0 for value in costs.values())
        # Encoding is part of training; so is one computation of the gradients.
        assert costs["encoding ms"] < costs["training ms"]
        total = costs["item by item ms"] + costs["inference item by item ms"]
        assert costs["total item by item ms"] == pytest.approx(total, abs=0.002)


def first_message(name: str, **changes: object):
    _, federation, _, engine = prepared(name, "synthetic", SMALL | changes)
    world = engine.world
    (exchange,) = federation.exchanges
    state = federation.init(world)
    cohort = federation.sample(world, state, 0)[:1]
    return world, rounds.broadcast(world, exchange, state, cohort, 0, engine), engine.nodes[0]


@pytest.mark.parametrize("name", ["fl-dssm", "fl-clsm"])
def test_item_by_item_gives_the_same_gradients(name):
    layers = (8, 4) if name == "fl-dssm" else (6,)
    world, message, node = first_message(name, layers=layers)
    batched = fltowers.gradients(world, message, node)
    one_by_one = fltowers.gradients(world, message, node, items_at_a_time=1)
    for whole, parts in zip(
        (batched.first, batched.second), (one_by_one.first, one_by_one.second), strict=True
    ):
        assert np.abs(whole.numpy()).max() > 1e-4
        assert np.abs((whole - parts).numpy()).max() < 1e-6


def test_words_count_for_clsm():
    """The words of the user's profile and of ten titles, counted here text by text."""
    world, message, node = first_message("fl-clsm", layers=(6,))
    drawn = draw_requests(world, node, message.users, 0)
    content = client_content(node)
    profile = len(content.users.rows.of(int(node.positions(message.users)[0])))
    titles = sum(len(content.items.rows.of(int(item))) for item in drawn.items[0])
    assert profile > 0
    assert titles > 10
    # 3 words x 50 inputs x 6 units at each position; then 6 x 2 for each of 11 texts.
    expected = (profile + titles) * 3 * 50 * 6 + 11 * 6 * 2
    assert multiplications("fl-clsm", world, message, node) == expected


def test_a_timed_ring_sums_and_times_every_member():
    ring = TimedRing.of(RingTerms(0, 0, 0, 6), np.arange(5, dtype=np.int32))
    assert ring.aggregate().tolist() == [0] * 6
    assert set(ring.seconds) == set(range(5))
    assert all(seconds > 0 for seconds in ring.seconds.values())
    # Nobody dropped out: all members send and receive the same, at least their masked vector.
    assert len(set(ring.traffic.values())) == 1
    assert ring.traffic[0] > 6 * 8


def test_costs_of_aggregation_have_a_row_per_cohort():
    cohorts = {f"K = {k}": Cohort(tower="dssm", users=k, inputs=20) for k in (6, 60)}
    # The fastest of three, since other work of the machine makes any of them longer.
    measured = [aggregation_costs(cohorts) for _ in range(3)]
    assert measured[0].keys() == cohorts.keys()
    few, many = (min(costs[label]["server ms"] for costs in measured) for label in cohorts)
    # Sixty users are two rings: the server adds ten times as many vectors.
    assert many > 2 * few
    assert measured[0]["K = 60"]["device MB"] == measured[0]["K = 6"]["device MB"]


def rows(**values: float) -> dict[str, object]:
    return {"rows": {name: {"metrics": {"ms": [value]}} for name, value in values.items()}}


def test_even():
    check = Even(("a", "b"), "ms", 1.25)
    assert check(rows(a=4.0, b=5.0)).verdict == "holds"
    assert check(rows(a=4.0, b=5.1)).verdict == "does not hold"
    assert check(rows(a=4.0)).verdict == "cannot be tested"
    assert "largest is 1.25 times the smallest" in check(rows(a=4.0, b=5.0)).parts[0].evidence


def test_shorter():
    findings = {"rows": {"a": {"metrics": {"x": [1.0], "y": [2.0]}}}}
    assert Shorter("a", "x", "y")(findings).verdict == "holds"
    assert Shorter("a", "y", "x")(findings).verdict == "does not hold"
    assert Shorter("b", "x", "y")(findings).verdict == "cannot be tested"
