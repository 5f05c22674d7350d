"""FedEASE: the bits of EASE, whatever rounds and paths the histories take into the sum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hostile import HostileEngine
from small_federation import histories, play, play_locally, sha256, world_for

from coterie import api
from coterie.algorithms import fedease, pair_sums, registry
from coterie.algorithms.algorithm import score_history
from coterie.algorithms.local.cooccurrence import gigabytes
from coterie.baselines import ease
from coterie.core.progress import SILENT
from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.errors import ConfigError
from coterie.experiments.training import fit
from coterie.federated import trainer
from coterie.federated.engine import Engine
from coterie.federated.federation import Exchange, NodeData, PrivateState, World
from coterie.federated.validation import Reply
from coterie.models.linear import ItemWeights, PrivateItemWeights
from coterie.models.new_user import NewUser
from coterie.report.table import notes
from coterie.types import Message

FEW: dict[str, Any] = {"participation": 1.0, "reg": 3.0, "rounds": 1}
LENGTHS = pytest.mark.parametrize("p", [0.0, 0.25, 0.5, 1.0])


def central(training: TrainingSet, p: float) -> ItemWeights:
    settings = ease.EASE(reg=3.0, length_exponent=p)
    model = fit(ease.ALGORITHM, training, settings, trainer.Context(0, SILENT))
    assert isinstance(model, ItemWeights)
    return model


def trained(training: TrainingSet, nodes: int = 1, **changes: Any) -> PrivateItemWeights:
    world = world_for("fedease", training, **(FEW | changes))
    engine = LocalEngine.over(world, training, nodes)
    federation = registry.algorithm("fedease").train
    context = trainer.Context(0, SILENT)
    work = trainer.federated_trainer(federation, world, engine, context)  # type: ignore[arg-type]
    states, _ = play("fedease", world, engine)
    model = work.model(states[-1])
    assert isinstance(model, PrivateItemWeights)
    return model


# Equal to EASE.


@LENGTHS
@pytest.mark.parametrize("nodes", [1, 3])
def test_weights_are_those_of_ease_bit_for_bit(p, nodes):
    training = histories(1, n_users=40, n_items=21)
    found = trained(training, nodes, length_exponent=p)
    assert found.weights.tobytes() == central(training, p).weights.tobytes()
    assert np.abs(found.weights).max() > 0.01


@LENGTHS
def test_scores_are_those_of_ease_bit_for_bit(p):
    training = histories(2, n_users=40, n_items=21)
    users = np.arange(39, -1, -1, dtype=np.int32)
    found = trained(training, 3, length_exponent=p).score(users)
    assert found.tobytes() == central(training, p).score(users).tobytes()


def test_metrics_are_those_of_ease(people):
    same = {"protocol": "full", "seed": 1, "reg": 20.0, "length_exponent": 0.5}
    same |= {"reg_exponent": 0.75, "popularity_exponent": 0.2}
    assert api.run("fedease", people, **same).full == api.run("ease", people, **same).full


@LENGTHS
def test_sums_of_pairs_by_numpy(p):
    """sum h h^T / n^(2 p) in units of the fixed point."""
    training = histories(3, n_users=40, n_items=21)
    world = world_for("fedease", training, **(FEW | {"length_exponent": p}))
    states, _ = play("fedease", world, LocalEngine.over(world, training, 1))
    H = np.zeros((40, 21))
    H[training.users, training.positives.items] = 1
    weight = 1 / np.maximum(H.sum(axis=1), 1) ** (2 * p)
    wanted = (H.T @ (weight[:, None] * H))[np.triu_indices(21)]
    scale = pair_sums.precision(world).scale
    np.testing.assert_allclose(states[-1].pairs / scale, wanted, atol=40 / scale)
    assert scale == 1 or scale > 1 << 20


# Every client is added once.


@pytest.mark.parametrize(
    ("changes", "rounds"),
    [
        ({"participation": 0.3}, 4),
        ({"participation": 0.3, "client_dropout": 0.3}, 14),
        ({"participation": 1.0, "client_dropout": 0.6}, 14),
        ({"participation": 0.07}, 20),
    ],
    ids=str,
)
@pytest.mark.parametrize("p", [0.0, 0.5])
def test_rounds_add_every_client_once(changes, rounds, p):
    """Whatever the rounds, the sum is in the end that of one round with all clients."""
    training = histories(4, n_users=41, n_items=15)
    same = FEW | {"length_exponent": p}
    states, all_costs = play_locally("fedease", training, **(same | {"rounds": rounds} | changes))
    for (before, after), costs in zip(pairwise(states), all_costs, strict=True):
        new = np.flatnonzero(after.added & ~before.added)
        assert not before.added[costs.users].any()
        assert np.isin(new, costs.users).all()
        assert costs.accepted == len(new)
        assert (after.added | ~before.added).all()
    (_, one), _ = play_locally("fedease", training, **same)
    assert states[1].added.sum() != one.added.sum()
    assert sha256(states[-1]) == sha256(one)
    assert one.added.sum() == 40


def test_rounds_after_the_last_client_select_nobody():
    training = histories(4, n_users=20, n_items=9)
    states, costs = play_locally("fedease", training, **(FEW | {"rounds": 3}))
    assert [c.accepted for c in costs] == [19, 0, 0]
    assert [len(c.users) for c in costs] == [19, 0, 0]
    assert sha256(states[1]) == sha256(states[3])


def test_clients_that_were_never_added_are_served():
    training = histories(4, n_users=20, n_items=9)
    model = trained(training, participation=0.5)
    assert model.weights.tobytes() != central(training, 0.0).weights.tobytes()
    assert np.abs(model.score(np.arange(18, dtype=np.int32))).max(axis=1).min() > 0


# All paths of a round.


class Apart(Engine):
    """The local engine without fast paths."""

    def __init__(self, engine: LocalEngine) -> None:
        self.engine = engine
        self.calls = 0

    def gather(self, make: Callable[[World, NodeData], PrivateState]) -> PrivateState:
        return self.engine.gather(make)

    def call(self, exchange: Exchange, message: Message) -> list[Reply]:
        self.calls += 1
        return self.engine.call(exchange, message)


@pytest.mark.parametrize("p", [0.0, 0.5])
def test_all_paths_give_the_same_bits(p, monkeypatch):
    training = histories(5, n_users=40, n_items=21)
    changes = {"length_exponent": p, "participation": 0.4, "client_dropout": 0.2, "rounds": 4}
    world = world_for("fedease", training, **(FEW | changes))

    def digests(engine: Engine) -> list[str]:
        return [sha256(state) for state in play("fedease", world, engine)[0]]

    single = digests(LocalEngine.over(world, training, 1))
    assert digests(Apart(LocalEngine.over(world, training, 1))) == single
    for nodes, wired in ((1, True), (5, None)):
        assert digests(LocalEngine.over(world, training, nodes, wired)) == single
    monkeypatch.setenv("COTERIE_THREADS", "3")
    assert digests(LocalEngine.over(world, training, 1)) == single


@pytest.mark.parametrize("p", [0.0, 0.5])
@pytest.mark.parametrize(
    "changes",
    [{}, {"client_dropout": 0.3}, {"participation": 0.5, "client_dropout": 0.2, "rounds": 2}],
    ids=str,
)
def test_secure_aggregation_gives_the_same_bits(changes, p):
    pytest.importorskip("cryptography")
    training = histories(6, n_users=34, n_items=11)
    same = FEW | {"length_exponent": p} | changes
    plain, costs = play_locally("fedease", training, **same)
    secure, secure_costs = play_locally("fedease", training, secure_aggregation="ring", **same)
    assert [c.accepted for c in secure_costs] == [c.accepted for c in costs]
    assert [sha256(state) for state in secure] == [sha256(state) for state in plain]
    assert plain[-1].added.sum() > 8


def test_few_missing_clients_do_not_end_a_secure_run():
    """17 of 19 clients in the first round: no round can hide the other two."""
    pytest.importorskip("cryptography")
    training = histories(6, n_users=20, n_items=11)
    changes = {"participation": 0.89, "rounds": 2, "secure_aggregation": "ring"}
    states, _ = play_locally("fedease", training, **(FEW | changes))
    assert states[-1].added.sum() >= 17


def test_hostile_updates_change_nothing():
    """Those who sent an invalid update are selected again, and added once."""
    training = histories(7, n_users=60, n_items=13)
    world = world_for("fedease", training, **(FEW | {"rounds": 6, "participation": 0.5}))

    def run(attacking: bool, nodes: int) -> tuple[list[Any], int]:
        engine = LocalEngine.over(world, training, nodes)
        hostile = HostileEngine(engine, 13, pair_sums.EXCHANGE, 10, 6, attacking)
        states, costs = play("fedease", world, hostile)
        refused = sum(sum(c.refused.values()) for c in costs)
        assert refused == sum(hostile.sent.values())
        return states, refused

    states, refused = run(True, 3)
    without, none = run(False, 1)
    assert [sha256(state) for state in states] == [sha256(state) for state in without]
    assert (none, refused > 40) == (0, True)
    assert states[-1].added.sum() > 40


# Limits.


class Untouched(Engine):
    """An engine that fails the test when a client computes something."""

    def gather(self, make: Callable[[World, NodeData], PrivateState]) -> PrivateState:
        return {}

    def call(self, exchange: Exchange, message: Message) -> list[Reply]:
        raise AssertionError("a client computed something")


@pytest.mark.parametrize("n_items", [40_000, 1_000_000])
def test_too_many_items_for_memory_are_refused_before_any_client_computes(n_items):
    world = replace(world_for("fedease", histories(0), **FEW), n_items=n_items)
    with pytest.raises(ConfigError, match=r"Use fedals, .*max_memory") as error:
        play("fedease", world, Untouched())
    assert f"{n_items:,} items" in str(error.value)


def test_memory_up_to_the_limit_is_allowed():
    training = histories(0, n_items=15)
    needed = gigabytes(15)
    assert needed == pytest.approx(16 * 15**2 / 2**30)
    play_locally("fedease", training, **(FEW | {"max_memory": needed * 1.001}))
    with pytest.raises(ConfigError, match="Use fedals"):
        play_locally("fedease", training, **(FEW | {"max_memory": needed * 0.999}))


@pytest.mark.parametrize(("p", "word"), [(0.0, 4), (0.5, 4)])
def test_too_large_an_upload_is_refused_before_any_client_computes(p, word):
    training = histories(0, n_items=15)
    upload = 15 * 16 / 2 * word / 1e6
    changes = FEW | {"length_exponent": p, "secure_aggregation": "ring"}
    world = world_for("fedease", training, **(changes | {"max_upload": upload * 0.999}))
    with pytest.raises(ConfigError, match=r"Use fedals, .*max_upload"):
        play("fedease", world, Untouched())
    allowed = world_for("fedease", training, **(changes | {"max_upload": upload * 1.001}))
    fedease.init(allowed)


def test_without_secure_aggregation_there_is_no_limit_for_uploads():
    play_locally("fedease", histories(0), **(FEW | {"max_upload": 1e-9}))


def test_a_secure_upload_is_as_large_as_announced():
    pytest.importorskip("cryptography")
    training = histories(0, n_users=20, n_items=60)
    _, costs = play_locally("fedease", training, **(FEW | {"secure_aggregation": "ring"}))
    announced = 60 * 61 / 2 * 4
    assert costs[0].bytes_up / costs[0].accepted < 1.5 * announced


def test_the_same_sums_with_another_regularisation_are_another_model():
    training = histories(0)
    world = world_for("fedease", training, **FEW)
    states, _ = play("fedease", world, LocalEngine.over(world, training, 1))
    other = replace(world, settings=world.settings.model_copy(update={"reg": 30.0}))
    first = fedease.model(world, states[-1]).weights
    assert np.abs(first - fedease.model(other, states[-1]).weights).max() > 0.01


# What travels, and new users.


def test_an_update_is_the_ids_of_items_and_nothing_else():
    training = histories(2, n_users=12, n_items=9)
    world = world_for("fedease", training, **FEW)
    users = np.flatnonzero(world.members).astype(np.int32)
    message = pair_sums.broadcast(world, fedease.init(world), users, 0)
    assert not message.common
    updates = pair_sums.client_update(world, message, LocalEngine.over(world, training, 1).nodes[0])
    assert not isinstance(updates, tuple)
    assert updates.items.tolist() == training.positives.items.tolist()
    assert updates.samples.tolist() == [1] * 11
    assert updates.item_rows.size == updates.user_rows.size == updates.dense.size == 0


@pytest.mark.parametrize("p", [0.0, 0.5])
def test_a_person_of_the_training_data_gets_the_scores_of_training(p):
    training = histories(3, n_users=20, n_items=13)
    model = trained(training, length_exponent=p)
    scores = model.score(np.arange(20, dtype=np.int32))
    for user in range(20):
        person = NewUser(items=training.positives.of(user))
        found = score_history(model, person, fedease.FedEASE())
        np.testing.assert_allclose(found, scores[user], atol=1e-6)
    assert np.abs(np.diff(scores, axis=0)).max() > 0.01
    assert registry.algorithm("fedease").score_new_user is score_history


def test_a_secure_run_says_what_its_sums_reveal():
    pytest.importorskip("cryptography")
    small = {"n_users": 60, "n_items": 30, "secure_aggregation": "ring"}
    run = api.run("fedease", **small)
    assert run.result["in_the_clear"] == []
    assert "gives away" in run.result["in_sums"][0]
    assert any("It does not hide histories here" in line for line in notes(run))
