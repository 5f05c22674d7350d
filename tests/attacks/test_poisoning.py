"""Poisoning: honest clients are untouched, colluders' updates are valid, and damage is measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_federation import histories, sha256, world_for

from coterie.algorithms import registry
from coterie.attacks.poisoning import ATTACKS, Colluders, poisoned
from coterie.attacks.poisoning import attack as make
from coterie.attacks.poisoning.contract import Attack, AttackKind, AttackSettings
from coterie.core.progress import SILENT
from coterie.engines.local import LocalEngine
from coterie.errors import ConfigError
from coterie.federated import trainer
from coterie.federated.federation import Federation
from coterie.federated.trainer import Context

HONEST = AttackKind(
    summary="sends honest updates",
    settings=AttackSettings,
    poison=lambda view, settings: view.honest,
    poison_setup=lambda view, settings: view.honest,
)
IDENTITY = Attack("honest", HONEST, AttackSettings())
ATTACKED = ["fedavg", "fedfast", "pfpl+", "fcf", "fedals", "fedease"]
TRAINING = histories(3, 30, 24)


def federation_of(name: str) -> Federation:
    federation = registry.algorithm(name).train
    assert isinstance(federation, Federation)
    return federation


def play(
    name: str, attack: Attack | None = None, share: float = 0.2, nodes: int = 1, **changes: Any
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
