"""Mistakes of an algorithm's author are named where they happen: thing, value, rule, remedy."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from coterie.algorithms.registry import algorithm
from coterie.core.progress import SILENT
from coterie.data.splits import split
from coterie.data.synthetic import Synthetic, generate
from coterie.engines.local import LocalEngine
from coterie.errors import ContractError, Diverged
from coterie.experiments.history import TrainingHistory
from coterie.experiments.training import check_refusals
from coterie.federated.costs import Costs
from coterie.federated.federation import AnyFederation, Federation, SecureSum
from coterie.federated.settings import federation_settings
from coterie.federated.trainer import Context, federated_trainer, world_of
from coterie.types import Updates

TRAINING = split(
    generate(Synthetic(n_users=40, n_items=30, mean_interactions=8)), "leave-one-out", 0.2, seed=0
).training()


def federation_of(name: str) -> AnyFederation:
    chosen = algorithm(name).train
    assert isinstance(chosen, Federation)
    return chosen


def play(federation: AnyFederation, name: str = "fedavg", **settings: Any) -> None:
    """One round."""
    chosen = federation_settings(algorithm(name).settings.of({"rounds": 1, **settings}))
    world = world_of(TRAINING, chosen, 0, federation)
    engine = LocalEngine.over(world, TRAINING, 1)
    work = federated_trainer(federation, world, engine, Context(0, SILENT))
    state, _ = work.start()
    work.step(state, 1)


def with_exchange(**changes: Any) -> AnyFederation:
    fedavg = federation_of("fedavg")
    return replace(fedavg, exchanges=(replace(fedavg.exchanges[0], **changes),))


COHORTS = {
    "sample returned an array of dtype bool and shape (40,)": np.ones(40, bool),
    "sample returned an array of dtype int64 and shape (2,)": np.array([1, 2]),
    "sample returned a list": [1, 2],
    "sample returned users that are not ascending": np.array([2, 1], np.int32),
    "or repeated": np.array([1, 1], np.int32),
    "sample returned user 40; expected indices from 0 to 39": np.array([1, 40], np.int32),
}


@pytest.mark.parametrize("message", COHORTS)
def test_a_wrong_cohort_is_named(message: str):
    federation = replace(federation_of("fedavg"), sample=lambda world, state, t: COHORTS[message])
    with pytest.raises(ContractError) as error:
        play(federation)
    assert message in str(error.value)


def test_absent_clients_cannot_be_selected():
    def everybody(world: Any, state: Any, t: int) -> Any:
        return np.flatnonzero(world.members).astype(np.int32)

    federation = replace(federation_of("fedavg"), sample=everybody)
    play(federation)
    with pytest.raises(ContractError, match="is not available in this round"):
        play(federation, availability="diurnal")


def test_updates_of_a_wrong_dtype_are_named():
    fedavg = federation_of("fedavg").exchanges[0]

    def client_update(world: Any, message: Any, node: Any) -> Updates:
        updates = fedavg.client_update(world, message, node)
        return replace(updates, item_rows=updates.item_rows.astype(np.float64))

    message = "client_update returned item_rows of dtype float64; expected int32"
    with pytest.raises(ContractError, match=message):
        play(with_exchange(client_update=client_update))


@pytest.mark.parametrize("secure", ["none", "ring"])
def test_sums_must_be_integers(secure: str):
    fedavg = federation_of("fedavg").exchanges[0]

    def aggregate(world: Any, message: Any, updates: Updates) -> Any:
        return {k: v.astype(float) for k, v in fedavg.aggregate(world, message, updates).items()}

    with pytest.raises(ContractError, match="aggregate returned the sum 'items'"):
        play(with_exchange(aggregate=aggregate), secure_aggregation=secure, participation=0.5)


def test_a_name_in_by_item_must_be_a_sum():
    with pytest.raises(ContractError, match="by_item names 'itmes', but aggregate returned"):
        play(with_exchange(secure_sum=SecureSum(by_item=("itmes",))))


def test_the_next_state_has_the_type_of_the_state():
    with pytest.raises(ContractError, match="server_update returned None; expected a Parameters"):
        play(with_exchange(server_update=lambda world, state, sums, accepted, t: None))


def test_private_state_has_the_names_and_rows_of_the_state():
    fcf = federation_of("fcf")
    with pytest.raises(ContractError, match="init_clients returned none, but the private fields"):
        play(replace(fcf, init_clients=lambda world, node: {}), "fcf")
    short = replace(
        fcf, init_clients=lambda world, node: {k: v[:3] for k, v in rows(fcf, world, node)}
    )
    with pytest.raises(ContractError, match=r"returned 3 rows of .* on a node of 40 users"):
        play(short, "fcf")


def rows(federation: AnyFederation, world: Any, node: Any) -> Any:
    return federation.init_clients(world, node).items()


@pytest.mark.parametrize(
    ("reason", "kind", "remedy"),
    [
        ("out of range", Diverged, "Lower learning_rate"),
        ("repeated item", ContractError, "in ascending order, each once"),
        ("wrong shape", ContractError, "`sizes` declares"),
    ],
)
def test_refused_updates_name_their_cause(reason: str, kind: type[Exception], remedy: str):
    history = replace(TrainingHistory.begin(3, Costs()), refused=Counter({reason: 5}))
    with pytest.raises(kind) as error:
        check_refusals(history, SILENT)
    assert remedy in str(error.value)
