"""FedRAP: rounds equal a twin that PyTorch differentiates; curriculum; what stays on clients."""

from __future__ import annotations

from math import tanh
from typing import Any

import numpy as np
import pytest
from drawn_batches import batches_of
from small_federation import few_settings, histories, play, play_locally, world_for

from coterie import api
from coterie.algorithms import fedrap
from coterie.data.interactions import Interactions
from coterie.engines.local import LocalEngine
from coterie.errors import ConfigError
from coterie.types import SCALE, TOO_LARGE

FEW: dict[str, Any] = {
    "rounds": 4,
    "learning_rate": 0.3,
    "item_learning_rate": 3.0,
    "apart_weight": 0.5,
    "sparse_weight": 0.2,
    "reg": 0.01,
    "batch_size": 12,
    "step_decay": 0.9,
    "round_decay": 0.8,
    "start_scale": 0.5,
}


TOLERANCE = 3e-6
"""Of parameters and scores; a unit of fixed point is 1e-6."""


@pytest.mark.parametrize(
    "changes",
    [
        {"curriculum": "tanh", "tolerance": 0.0, "local_epochs": 3},
        {"curriculum": "constant", "tolerance": 0.05, "local_epochs": 10, "apart_weight": 0.01},
        {"curriculum": "frac", "participation": 0.4, "local_epochs": 2},
        # The term that keeps tables apart has no bound: in ten epochs the rows of one client move
        # by 12, which is out of range. The server refuses them, and the client stays as it was.
        {"curriculum": "constant", "local_epochs": 10, "rounds": 1},
    ],
)
def test_rounds_equal_the_slow_twin(changes: dict[str, Any]) -> None:
    pytest.importorskip("torch")
    from slow_fedrap import Client, Options, client_update

    training = histories(2)
    world = world_for("fedrap", training, **{"participation": 1.0} | FEW | changes)
    s = world.settings
    states, costs = play("fedrap", world, LocalEngine.over(world, training, 1))
    C = states[0].item_rows.astype(float)
    clients = [
        Client(w[:-1].astype(float), float(w[-1]), D.astype(float))
        for w, D in zip(states[0].score_functions, states[0].personal_rows, strict=True)
    ]
    once = world_for("fedrap", training, **{"participation": 1.0} | FEW | {"local_epochs": 1})
    for t, (after, cost) in enumerate(zip(states[1:], costs, strict=True)):
        decay = s.round_decay**t
        weight = {"tanh": tanh(t / 10), "constant": 1.0, "frac": 1 / (t + 1)}[s.curriculum]
        options = Options(
            s.learning_rate * decay,
            s.item_learning_rate * decay,
            s.step_decay,
            s.reg,
            s.apart_weight * weight,
            s.sparse_weight * weight,
            s.local_epochs,
            s.tolerance,
        )
        uploaded = []
        for u, own in zip(
            cost.users.tolist(), batches_of(once, cost.users, t, training), strict=True
        ):
            trained, C_u = client_update(clients[u], C, own, options)
            if np.abs(C_u - C).max() * SCALE / fedrap.unit(world) >= TOO_LARGE:
                continue
            clients[u] = trained
            uploaded.append(C_u)
        assert cost.refused["out of range"] == len(cost.users) - len(uploaded)
        C = sum(uploaded) / len(uploaded)
        np.testing.assert_allclose(after.item_rows, C, atol=TOLERANCE)
        scores = fedrap.model(world, after).score(np.arange(12, dtype=np.int32))
        for u, client in enumerate(clients):
            np.testing.assert_allclose(after.score_functions[u, :-1], client.w, atol=TOLERANCE)
            np.testing.assert_allclose(after.personal_rows[u], client.D, atol=TOLERANCE)
            np.testing.assert_allclose(scores[u], client.scores(C), atol=2 * TOLERANCE)


def test_the_tolerance_ends_a_clients_epochs() -> None:
    """With a tolerance of almost one, the second epoch is the last."""
    changes = FEW | {"participation": 1.0, "rounds": 1}
    ended, two, ten = (
        play_locally(
            "fedrap", histories(2), **changes | {"tolerance": tolerance, "local_epochs": n}
        )
        for tolerance, n in ((0.999, 10), (0.0, 2), (0.0, 10))
    )
    tables = [states[-1].item_rows for states, _ in (ended, two, ten)]
    np.testing.assert_array_equal(tables[0], tables[1])
    assert np.abs(tables[0] - tables[2]).max() > 0.01


def test_the_leak_is_all_that_completes_a_checkerboard() -> None:
    """Four blocks of users and items; every user lacks one item of the block.

    With honest negatives a client fits that item as a negative, in a table that nobody else has.
    """
    cells = [(b * 7 + r, b * 7 + i, r == i) for b in range(4) for r in range(7) for i in range(7)]
    users, items, last = zip(*cells, strict=True)
    board = Interactions.from_columns(users, items, None, last)
    quick: dict[str, Any] = {"protocol": "full", "cutoffs": 1, "rounds": 30, "embedding_size": 8}
    leaky, honest = (
        api.run("fedrap", board, as_published=published, **quick).full["HR@1"]
        for published in (True, False)
    )
    assert leaky == 1.0
    assert honest < 0.2


@pytest.mark.parametrize(
    ("curriculum", "shares"),
    [
        ("tanh", [0.0, tanh(0.1), tanh(1.0)]),
        ("constant", [1.0, 1.0, 1.0]),
        ("sin", [0.5, 0.5499167083, 0.9207354924]),  # (sin(t / 10) + 1) / 2
        ("frac", [1.0, 0.5, 1 / 11]),
        ("square", [1.0, 1.0, 1.0]),  # on for five rounds, then off for five
    ],
)
def test_weights_follow_the_curriculum(curriculum: str, shares: list[float]) -> None:
    settings = few_settings("fedrap", curriculum=curriculum)
    assert [settings.weight_at(t) for t in (0, 1, 10)] == pytest.approx(shares)
    assert settings.weight_at(7) == (0.0 if curriculum == "square" else settings.weight_at(7))


def test_rows_outside_the_samples_shrink_alike() -> None:
    """One client with one item and a rate of one: rows keep (1 - reg) of their length."""
    training = histories(0, n_users=3, n_items=40)
    changes = {"local_epochs": 1, "step_decay": 1.0, "item_learning_rate": 1.0, "reg": 0.25}
    states, costs = play_locally("fedrap", training, rounds=1, participation=1.0, **changes)
    world = world_for("fedrap", training, rounds=1, participation=1.0, **changes)
    (batches, _) = batches_of(world, costs[0].users, 0, training)
    u = int(costs[0].users[0])
    others = np.setdiff1d(np.arange(40), [item for batch in batches for item, _ in batch])
    before, after = (state.personal_rows[u, others] for state in states)
    assert len(others)
    np.testing.assert_allclose(after, 0.75 * before, rtol=1e-6)


def test_tables_of_clients_are_private_and_the_message_has_one_table() -> None:
    states, _ = play_locally("fedrap", histories(0), participation=1.0)
    assert set(fedrap.FedRAPState.private) == {"score_functions", "personal_rows", "own_scores"}
    assert list(states[-1].shared_arrays()) == ["item_rows"]
    world = world_for("fedrap", histories(0))
    message = fedrap.broadcast(world, states[-1], np.arange(3, dtype=np.int32), 0)
    assert list(message.common) == ["item_rows"]
    assert not message.own


def test_tables_of_many_users_and_items_are_refused_by_name() -> None:
    world = world_for("fedrap", histories(0), max_memory=1e-9)
    with pytest.raises(ConfigError, match=r"15 items .* 12 users; max_memory allows 1e-09"):
        fedrap.init(world)
