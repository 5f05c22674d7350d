"""Bytes of a client that are computed without a run are those that a run counts."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from small_federation import histories, play_locally, world_for

from coterie.algorithms import registry
from coterie.experiments.choice_costs import secure_round_bytes
from coterie.federated.federation import Federation
from coterie.federated.secagg.client_bytes import ClientBytes, Summed
from coterie.federated.secagg.group_bytes import expected_longest, group_sizes
from coterie.federated.secagg.server import PROTOCOLS, assign_rings
from coterie.types import Message

EXACT = 0.0
FEW_PER_CENT = 0.06
RING = {"secure_aggregation": "ring"}
SECAGG = {"secure_aggregation": "secagg"}
ALL = {"participation": 1.0}
CASES = [
    # The bytes of a ring do not depend on chance.
    ("fcf", RING, EXACT),
    ("fedavg", RING, EXACT),
    # In groups of up to holders + 1, everybody holds shares of everybody.
    ("fcf", SECAGG, EXACT),
    ("fedavg", SECAGG, EXACT),
    ("fcf", SECAGG | ALL | {"group_size": 20}, EXACT),
    # fedavg sends its own row in the clear.
    ("fedavg", SECAGG | ALL | {"holders": 8}, FEW_PER_CENT),
    ("fcf", SECAGG | ALL | {"holders": 30}, FEW_PER_CENT),
    ("fcf", SECAGG | ALL | {"group_size": 60, "holders": 12, "colluders": 0}, FEW_PER_CENT),
]


@pytest.mark.parametrize(("name", "changes", "tolerance"), CASES, ids=str)
def test_bytes_are_those_that_a_run_counts(
    name: str, changes: dict[str, Any], tolerance: float
) -> None:
    pytest.importorskip("cryptography")
    training = histories(1, 130, 25)
    settings = {"rounds": 1} | changes
    states, (costs,) = play_locally(name, training, **settings)
    world = world_for(name, training, **settings)
    federation = registry.algorithm(name).train
    assert isinstance(federation, Federation)
    client = secure_round_bytes(federation, world, training, states[0])
    n = len(costs.users)
    assert costs.accepted == n
    # Groups of two sizes have a mean, which is rounded.
    assert client.up == pytest.approx(costs.bytes_up / n, rel=tolerance, abs=0.5)
    assert client.down == pytest.approx(costs.bytes_down / n, rel=tolerance, abs=0.5)


def test_a_client_of_a_small_group_by_hand() -> None:
    """Three clients, each of which holds shares of the two others; a vector of five words."""
    client = bytes_of_three()
    advert = 3 * 32 + 64 + 2 * 4
    ciphertext = 2 * 33 + 16
    content = [
        # advert, ciphertexts for two holders, the vector, a signature, shares of two owners
        advert + padded(2 * ciphertext) + 5 * 8 + 64 + padded(2 * 4) + padded(2 * 33),
        # members, adverts and ciphertexts with their users, shared, survivors, agreed, signatures
        4 * padded(3 * 4) + 2 * advert + padded(2 * ciphertext) + 2 * padded(2 * 4) + 3 * 64,
    ]
    # Headers: at each of five stages less than 100 bytes, and 48 of the group's terms.
    assert 0 < client.up - content[0] < 5 * 100
    assert 0 < client.down - content[1] - 5 * 48 < 5 * 100


def test_bytes_need_no_cryptography(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = bytes_of_three()
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert bytes_of_three() == expected


def bytes_of_three() -> ClientBytes:
    world = world_for("fcf", histories(1, 30, 15), colluders=0, **SECAGG)
    message = Message(0, np.arange(3, dtype=np.int32), {}, {})
    return PROTOCOLS["secagg"].client_bytes(world, 3, Summed(message, 5))


def padded(size: int) -> int:
    return -(-size // 8) * 8


@pytest.mark.parametrize(
    ("n", "trials", "probability", "longest"),
    [
        (1, 10, 0.3, 3.0),
        (2, 1, 0.5, 0.75),
        (3, 1, 0.5, 0.875),
        # Of two numbers that are 0, 1, 2 with 1/4, 1/2, 1/4: 15/16 + 7/16.
        (2, 2, 0.5, 1.375),
        (50, 7, 1.0, 7.0),
        (50, 0, 0.5, 0.0),
    ],
)
def test_the_expected_longest_row(n: int, trials: int, probability: float, longest: float) -> None:
    assert expected_longest(n, trials, probability) == pytest.approx(longest)


@pytest.mark.parametrize(("n", "k"), [(100, 40), (60, 40), (65, 8), (20, 19)])
def test_the_expected_longest_rows_of_drawn_graphs(n: int, k: int) -> None:
    rng = np.random.default_rng(0)
    held = []
    neighbours = []
    for _ in range(300):
        order = rng.random((n, n))
        np.fill_diagonal(order, 2)  # no client chooses itself
        chosen = np.zeros((n, n), bool)
        np.put_along_axis(chosen, np.argsort(order)[:, :k], True, axis=1)
        held.append(chosen.sum(axis=0).max())
        neighbours.append((chosen | chosen.T).sum(axis=1).max())
    probability = k / (n - 1)
    assert expected_longest(n, n - 1, probability) == pytest.approx(np.mean(held), rel=0.02)
    longest = k + expected_longest(n, n - 1 - k, probability)
    assert longest == pytest.approx(np.mean(neighbours), rel=0.02)


@pytest.mark.parametrize("n", [3, 99, 100, 101, 250, 1001])
def test_groups_have_the_sizes_of_a_run(n: int) -> None:
    groups = assign_rings(np.arange(n, dtype=np.int32), 100, 1, 2)
    assert sorted(group_sizes(n, 100)) == sorted(map(len, groups))
