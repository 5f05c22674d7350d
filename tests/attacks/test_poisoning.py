"""Poisoning: honest clients are untouched, colluders' updates are valid, and damage is measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_federation import histories, sha256, world_for

from coterie.algorithms import registry
from coterie.attacks.poisoning import ATTACKS, Colluders, poisoned
from coterie.attacks.poisoning import attack as make
from coterie.attacks.poisoning.alie import shifted
from coterie.attacks.poisoning.contract import AttackKind, AttackSettings, PoisoningAttack
from coterie.attacks.poisoning.federation import attacking_users
from coterie.attacks.poisoning.item_updates import with_rows
from coterie.attacks.poisoning.pieck import mined, remember
from coterie.attacks.poisoning.takeover import signs_of
from coterie.core.progress import SILENT
from coterie.engines.local import LocalEngine
from coterie.errors import ConfigError
from coterie.federated import trainer
from coterie.federated.federation import Federation
from coterie.federated.trainer import Context
from coterie.types import Message, Updates

HONEST = AttackKind(
    summary="sends honest updates",
    settings=AttackSettings,
    poison=lambda view, settings: view.honest,
    poison_setup=lambda view, settings: view.honest,
)
IDENTITY = PoisoningAttack("honest", HONEST, AttackSettings())
ATTACKED = ["fedavg", "fedfast", "pfpl+", "fcf", "fedals", "fedease"]
TRAINING = histories(3, 30, 24)


def federation_of(name: str) -> Federation:
    federation = registry.algorithm(name).train
    assert isinstance(federation, Federation)
    return federation


def play(
    name: str,
    attack: PoisoningAttack | None = None,
    share: float = 0.2,
    nodes: int = 1,
    **changes: Any,
) -> tuple[Any, list[Any]]:
    """The last state of a small run, and the costs of its steps."""
    world = world_for(name, TRAINING, **changes)
    federation = federation_of(name)
    if attack is not None:
        colluders = Colluders.of(TRAINING, share=share, seed=1, public=0.2)
        federation = poisoned(federation, attack, colluders)
    engine = LocalEngine.over(world, TRAINING, nodes)
    work = trainer.federated_trainer(federation, world, engine, Context(world.seed, SILENT))
    state, first = work.start()
    costs = [first]
    for n in range(1, registry.algorithm(name).steps(world.settings) + 1):
        state, more = work.step(state, n)
        costs.append(more)
    return state, costs


@pytest.mark.parametrize("name", [*ATTACKED, "fedbso", "sfpl", "fedslim", "fedmvmf"])
def test_honest_colluders_change_no_bit(name):
    clean, _ = play(name)
    attacked, _ = play(name, IDENTITY)
    assert sha256(attacked) == sha256(clean)


@pytest.mark.parametrize("nodes", [1, 3])
def test_honest_colluders_change_no_bit_on_nodes(nodes):
    assert sha256(play("fcf", IDENTITY, nodes=nodes)[0]) == sha256(play("fcf")[0])


def test_colluders_are_a_share_drawn_by_the_seed():
    first = Colluders.of(TRAINING, share=0.2, seed=1)
    assert len(first.users) == 6
    assert np.array_equal(first.users, Colluders.of(TRAINING, share=0.2, seed=1).users)
    assert not np.array_equal(first.users, Colluders.of(TRAINING, share=0.2, seed=2).users)
    assert len(Colluders.of(TRAINING, share=0.001).users) == 1


REFUSED = {
    ("sign-flip", "fedease"): "no numbers",
    ("alie", "fedease"): "no numbers",
    **{
        ("count-inflation", name): "sample counts" for name in ("pfpl+", "fcf", "fedals", "fedease")
    },
    **{
        (attack, name): "item rows"
        for attack in ("pipattack", "pieck", "fedrecattack")
        for name in ("fedals", "fedease")
    },
    **{
        ("takeover", name): "does not cluster"
        for name in ("fedavg", "pfpl+", "fcf", "fedals", "fedease")
    },
}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("name", ATTACKED)
def test_updates_are_valid_or_the_attack_is_refused(attack, name):
    chosen = make(attack)
    if (attack, name) in REFUSED:
        with pytest.raises(ConfigError, match=REFUSED[attack, name]):
            play(name, chosen)
        return
    state, costs = play(name, chosen)
    assert not any(one.refused for one in costs)
    assert sum(one.accepted for one in costs) > 0
    assert sha256(state) != sha256(play(name)[0])


@pytest.mark.parametrize("changes", [{}, {"best_user": "loss"}, {"user_rows": "cluster"}])
def test_takeover_of_fedbso(changes):
    _, costs = play("fedbso", make("takeover"), **changes)
    assert not any(one.refused for one in costs)


def test_attacks_are_the_same_on_one_node_and_through_the_wire():
    """Of a single colluder: those of several nodes do not see each other's updates."""
    one, _ = play("fedavg", make("noise"), share=0.01)
    three, _ = play("fedavg", make("noise"), share=0.01, nodes=3)
    assert sha256(one) == sha256(three)


def test_a_poisoned_federation_forgets_the_run_before():
    world = world_for("fedavg", TRAINING)
    colluders = Colluders.of(TRAINING, share=0.2, seed=1)
    attacked = poisoned(federation_of("fedavg"), make("pieck"), colluders)
    digests = []
    for _ in range(2):
        engine = LocalEngine.over(world, TRAINING, 1)
        work = trainer.federated_trainer(attacked, world, engine, Context(world.seed, SILENT))
        state, _ = work.start()
        for n in range(1, 5):
            state, _ = work.step(state, n)
        digests.append(sha256(state))
    assert digests[0] == digests[1]


@pytest.mark.parametrize("otherwise", ["honest", "away"])
def test_sybils_that_come_and_go(otherwise):
    settings = {"active": 0.5, "otherwise": otherwise}
    colluders = Colluders.of(TRAINING, share=0.5, seed=1)
    chosen = make("noise", settings)
    users = colluders.users
    attacks = 0
    away = 0
    for t in range(100):
        found = attacking_users(chosen, colluders, Message(t, users, {}, {}))
        attacks += len(found.users)
        away += len(found.away)
        assert not np.isin(found.users, found.away).any()
    assert 0.45 < attacks / (100 * len(users)) < 0.55
    assert away == (0 if otherwise == "honest" else 100 * len(users) - attacks)


def test_those_who_are_away_send_nothing():
    _, costs = play("fcf", make("noise", {"active": 1e-9, "otherwise": "away"}), participation=1.0)
    assert costs[-1].dropped == 6
    assert not costs[-1].refused


@pytest.mark.parametrize("kind", ["ring", "secagg"])
def test_colluders_attack_through_secure_aggregation(kind):
    pytest.importorskip("cryptography")
    short: dict[str, Any] = {"participation": 1.0, "rounds": 2}
    open_state, _ = play("fcf", make("pieck"), **short)
    hidden_state, _ = play("fcf", make("pieck"), **short, secure_aggregation=kind)
    assert sha256(hidden_state) == sha256(open_state)


def test_rows_are_replaced_and_added_in_order():
    honest = Updates(
        users=np.array([3, 5], np.int32),
        samples=np.ones(2, np.int64),
        offsets=np.array([0, 2, 3]),
        items=np.array([1, 4, 2], np.int32),
        item_rows=np.array([[10], [40], [20]], np.int32),
        user_rows=np.empty((2, 0), np.int32),
        dense=np.empty((2, 0), np.int32),
    )
    changed = with_rows(honest, np.array([2, 4], np.int32), np.array([[7], [8]], np.int32))
    assert changed.offsets.tolist() == [0, 3, 5]
    assert changed.items.tolist() == [1, 2, 4, 2, 4]
    assert changed.item_rows.ravel().tolist() == [10, 7, 8, 7, 8]


def test_alie_shifts_by_the_standard_deviation():
    rows = np.array([[1, 0], [3, 0], [5, 6]], np.int32)
    shift = shifted(np.array([0, 0, 1], np.int32), rows, 2, z=2.0)
    assert shift.tolist() == [[0.0, 0.0], [5.0, 6.0]]


def test_pieck_mines_the_items_that_moved():
    memory: dict[str, np.ndarray] = {}
    for t in range(3):
        table = np.array([[0.0], [2.0 * t], [t], [9.0 * t]], np.float32)
        memory = dict(remember(memory, Message(t, np.empty(0, np.int32), {"item_rows": table}, {})))
    assert mined(memory, target=3, n=2).tolist() == [1, 2]


def test_takeover_has_a_corner_for_every_group():
    signs = signs_of(np.arange(8, dtype=np.int32), 6, seed=0)
    assert len(np.unique(signs, axis=0)) == 8
    assert set(np.unique(signs)) == {-1.0, 1.0}
