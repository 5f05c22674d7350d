"""A round on a GPU without messages equals the round with messages, and costs the same.

Here its step runs on the CPU, unrecorded; `test_gpu_steps` has recorded ones, where a GPU is.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_federation import histories, play_locally, world_for

from coterie.algorithms import registry, sttfedrec
from coterie.algorithms.two_tower import gpu_rounds
from coterie.algorithms.two_tower.matching import loss_gradients, losses
from coterie.algorithms.two_tower.padded_texts import rounded_up
from coterie.algorithms.two_tower.settings import FederatedTowers
from coterie.core.progress import SILENT
from coterie.data.splits import split
from coterie.engines.local import LocalEngine
from coterie.federated import trainer
from coterie.federated.federation import Exchange
from coterie.federated.trainer import Context

torch = pytest.importorskip("torch")

NAMES = ("fl-dssm", "fl-clsm", "sttfedrec-dssm", "sttfedrec-clsm")
SIZES = {"inputs": 60, "embedding_size": 8, "users_per_round": 20, "rounds": 3}


def with_padding(array: np.ndarray) -> torch.Tensor:
    widths = [(0, rounded_up(len(array)) - len(array))] + [(0, 0)] * (array.ndim - 1)
    return torch.from_numpy(np.pad(array, widths))


@pytest.fixture
def played(monkeypatch) -> list[gpu_rounds.RoundStep]:
    """The steps that were run, once algorithms take the CPU for a GPU."""
    steps = []

    def run_step(step, network, arrays, rows, tensors):
        assert not rows
        steps.append(step)
        return step(network, *map(with_padding, arrays), *tensors)

    monkeypatch.setattr(gpu_rounds, "run_step", run_step)
    monkeypatch.setattr(FederatedTowers, "on_gpu", True)
    return steps


@pytest.fixture(scope="module")
def choices(people):
    return split(people, "temporal", 0.2, seed=0).training()


def assert_near(one, other, within=1e-5):
    """Towers and moments within rounding; all other fields are equal."""
    for name, array in one.arrays().items():
        if name in gpu_rounds.FIELDS:
            assert np.abs(array - getattr(other, name)).max() < within, name
        else:
            np.testing.assert_array_equal(array, other.arrays()[name])


@pytest.mark.parametrize("person", ["features", "titles"])
@pytest.mark.parametrize("name", NAMES)
def test_a_round_without_messages_equals_one_with_messages(name, person, choices, played):
    wired, wired_costs = play_locally(name, choices, wire=True, person=person, **SIZES)
    assert not played
    at_once, costs = play_locally(name, choices, person=person, **SIZES)
    assert len(played) == 3
    assert_near(at_once[-1], wired[-1])
    for one, other in zip(costs, wired_costs, strict=True):
        assert replace(one, users=other.users) == other
        np.testing.assert_array_equal(one.users, other.users)


@pytest.mark.parametrize("mode", ["sticky", "whole"])
def test_other_requests_cost_the_same(mode, choices, played):
    wired, wired_costs = play_locally("sttfedrec-dssm", choices, wire=True, requests=mode, **SIZES)
    at_once, costs = play_locally("sttfedrec-dssm", choices, requests=mode, **SIZES)
    assert len(played) == 3
    assert_near(at_once[-1], wired[-1])
    assert [(c.bytes_up, c.bytes_down) for c in costs] == [
        (c.bytes_up, c.bytes_down) for c in wired_costs
    ]


@pytest.mark.parametrize("name", ["fl-dssm", "sttfedrec-dssm"])
def test_users_with_few_items_are_padded(name, played):
    """One user has no history, and one has every item."""
    training = histories(3)
    wired = play_locally(name, training, wire=True, **SIZES)[0][-1]
    assert_near(play_locally(name, training, **SIZES)[0][-1], wired)
    assert played


@pytest.mark.parametrize("name", ["fl-dssm", "sttfedrec-dssm"])
@pytest.mark.parametrize(
    "protection",
    [{"robust": "trimmed"}, {"client_dropout": 0.3}, {"secure_aggregation": "secagg"}],
)
def test_protected_rounds_and_those_with_drop_outs_have_messages(name, protection, choices, played):
    if name.endswith("clsm"):
        pytest.skip("the same path for both towers")
    changes = SIZES | {"rounds": 1, "users_per_round": 60}
    play_locally(name, choices, **changes, **protection)
    assert not played


@pytest.mark.parametrize("name", ["fl-dssm", "sttfedrec-dssm"])
def test_a_round_whose_updates_would_be_refused_has_messages(name, choices, played):
    """Towers that are not finite: the step runs, and the validation of single updates decides."""
    world = world_for(name, choices, **SIZES)
    federation = registry.algorithm(name).train
    engine = LocalEngine.over(world, choices, 1)
    work = trainer.federated_trainer(federation, world, engine, Context(0, SILENT))
    start = work.start()[0]
    broken = replace(start, user_tower=np.full_like(start.user_tower, np.nan))
    after, costs = work.step(broken, 1)
    assert len(played) == 1
    assert not costs.accepted
    assert costs.refused["not finite"] or costs.refused["out of range"]
    np.testing.assert_array_equal(after.item_tower, start.item_tower)


def test_the_fast_path_belongs_to_the_first_exchange():
    for name in NAMES:
        first = registry.algorithm(name).train.exchanges[0]
        assert isinstance(first, Exchange)
        assert first.fast.whole_round is not None
    assert sttfedrec.REQUEST.fast.whole_round is sttfedrec.whole_round


def test_gradients_in_closed_form_are_those_of_autograd():
    """One user compares an item less, one none at all, and one vector is zero."""
    rng = np.random.default_rng(0)
    users = torch.tensor(rng.normal(size=(5, 6)), requires_grad=True)
    items = torch.tensor(rng.normal(size=(5, 4, 6)))
    items[0, 0] = 0
    items.requires_grad_()
    valid = torch.ones((5, 4), dtype=torch.bool)
    valid[0, 0] = False
    valid[1] = False
    clicked = torch.tensor(rng.random((5, 4)) < 0.4) & valid
    found = loss_gradients(users.detach(), items.detach(), clicked, valid, 3.0)
    loss = losses(users, items, clicked, valid, 3.0).sum()
    for one, other in zip(found, torch.autograd.grad(loss, (users, items)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
    assert found[0].abs().max() > 0.1
