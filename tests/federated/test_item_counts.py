"""Counting items: the sum over clients, whatever carries it, and nothing that is held back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from small_federation import few_settings, histories

from coterie.core.progress import SILENT
from coterie.data.training_set import PrivacyPreferences, TrainingSet
from coterie.engines.local import LocalEngine
from coterie.federated.costs import Costs
from coterie.federated.item_counts import ITEM_COUNTS
from coterie.federated.trainer import Context, federated_trainer, world_of
from coterie.types import Longs, Rows


def counted(
    training: TrainingSet, name: str = "fedavg", nodes: int = 1, **changes: Any
) -> tuple[Longs, Costs]:
    world = world_of(training, few_settings(name, **changes), 3, ITEM_COUNTS)
    engine = LocalEngine.over(world, training, nodes)
    work = federated_trainer(ITEM_COUNTS, world, engine, Context(3, SILENT))
    state, costs = work.step(work.start()[0], 1)
    return state.counts, costs


def users_of_items(training: TrainingSet) -> Longs:
    return np.bincount(training.positives.items, minlength=training.n_items)


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("name", ["fedavg", "fedfast", "fedbso", "pfpl+"])
def test_counts_are_the_users_of_every_item(name, nodes):
    training = histories(1, n_users=40, n_items=21)
    counts, costs = counted(training, name, nodes)
    np.testing.assert_array_equal(counts, users_of_items(training))
    assert costs.accepted == np.count_nonzero(training.positives.counts)
    assert costs.bytes_up > 0


@pytest.mark.parametrize("nodes", [1, 3])
def test_rings_count_the_same(nodes):
    training = histories(2, n_users=40, n_items=21)
    counts, costs = counted(training, nodes=nodes, secure_aggregation="ring", ring_size=8)
    np.testing.assert_array_equal(counts, users_of_items(training))
    assert costs.bytes_up > counted(training)[1].bytes_up


def test_clients_that_drop_out_are_not_counted():
    training = histories(3, n_users=200, n_items=21)
    counts, costs = counted(training, client_dropout=0.5)
    assert 60 < costs.accepted < 140
    assert (counts <= users_of_items(training)).all()
    assert 0.3 < counts.sum() / users_of_items(training).sum() < 0.7


@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_users_count_the_share_that_they_disclose(rate):
    training = histories(4, n_users=300, n_items=40)
    counts, _ = counted(training, "pfpl+", disclosure=rate)
    everything = users_of_items(training)
    assert (counts <= everything).all()
    assert counts.sum() / everything.sum() == pytest.approx(rate, abs=0.04)
    np.testing.assert_array_equal(counts, counted(training, "pfpl+", 3, disclosure=rate)[0])


def test_private_items_are_never_counted():
    training = histories(5, n_users=30, n_items=20)
    no_rates = Rows(np.zeros(31, np.int64), np.empty(0, np.int32)), np.empty(0, np.float32)
    hidden = training.positives.items % 3 == 0
    preferences = PrivacyPreferences(*no_rates, hidden)
    counts, _ = counted(replace(training, preferences=preferences), "pfpl+")
    everything = users_of_items(training)
    every_third = np.arange(20) % 3 == 0
    assert not counts[every_third].any()
    np.testing.assert_array_equal(counts[~every_third], everything[~every_third])
    assert everything[every_third].any()
