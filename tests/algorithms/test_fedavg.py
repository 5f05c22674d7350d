"""FedAvg: training and summing in one pass equals updates and their sums, bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_federation import histories, play_locally, world_for

from coterie.algorithms import fedavg
from coterie.engines.local import LocalEngine

BATCHES: dict[str, Any] = {"participation": 1.0, "batch_size": 4, "embedding_size": 5}


@pytest.mark.parametrize("rated", [False, True])
def test_the_single_pass_equals_updates_and_their_sums(rated: bool) -> None:
    training = histories(4, rated=rated)
    world = world_for("fedavg", training, **BATCHES)
    (node,) = LocalEngine.over(world, training, 1).nodes
    cohort = np.flatnonzero(world.members).astype(np.int32)
    message = fedavg.broadcast(world, fedavg.init(world), cohort, 0)
    updates = fedavg.client_update(world, message, node)
    single = fedavg.single_pass(world, message, node)
    assert single is not None
    summed = fedavg.weigh_by_samples(world, message, updates)
    assert single.sums.keys() == summed.keys()
    for name, total in summed.items():
        np.testing.assert_array_equal(single.sums[name], total)
    np.testing.assert_array_equal(single.n_rows, np.diff(updates.offsets))
    np.testing.assert_array_equal(single.accepted.user_rows, updates.user_rows)
    np.testing.assert_array_equal(single.accepted.samples, updates.samples)


@pytest.mark.parametrize(
    "changes", [{"batch_size": 1}, {"optimizer": "adam"}, {"model": "neumf", "batch_size": 1}]
)
def test_other_ways_to_train_have_no_single_pass(changes: dict[str, Any]) -> None:
    training = histories(4)
    world = world_for("fedavg", training, **BATCHES | changes)
    (node,) = LocalEngine.over(world, training, 1).nodes
    message = fedavg.broadcast(world, fedavg.init(world), np.arange(12, dtype=np.int32), 0)
    assert fedavg.single_pass(world, message, node) is None


def test_a_diverging_user_is_refused_alone() -> None:
    """The single pass gives up, and validation refuses the updates one by one."""
    changes = BATCHES | {"learning_rate": 30.0, "start_scale": 30.0}
    _, costs = play_locally("fedavg", histories(4), rounds=1, **changes)
    assert costs[0].refused.total() > 0
