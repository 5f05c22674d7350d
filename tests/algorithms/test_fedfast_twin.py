"""Rounds of FedAvg, FedFast and its ablations equal the slow twin written from the paper."""

from __future__ import annotations

from itertools import pairwise
from math import exp
from typing import Any

import numpy as np
import pytest
from slow_fedfast import (
    Sample,
    Weights,
    actv_agg,
    client_update,
    equation_1,
    equation_1_touched,
    lloyd,
)
from small_federation import histories, play, world_for

from coterie.algorithms.local.samples import draw
from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.federated.federation import World

ROUNDS = 5
CLOSE = 1e-5


def weights(state: Any) -> Weights:
    return Weights(
        *(getattr(state, name).astype(float) for name in ("user_rows", "item_rows", "dense"))
    )


def samples_of(
    world: World, cohort: np.ndarray, t: int, training: TrainingSet
) -> dict[int, list[Sample]]:
    """The samples that devices drew: the twin trains on the same ones, in the same order."""
    (node,) = LocalEngine.over(world, training, 1).nodes
    drawn = draw(world, cohort, t, node)
    found = {}
    for place, k in enumerate(cohort.tolist()):
        items = drawn.items[drawn.offsets[place] : drawn.offsets[place + 1]]
        which = slice(drawn.starts[place], drawn.starts[place + 1])
        found[k] = list(
            zip(items[drawn.places[which]].tolist(), drawn.targets[which].tolist(), strict=True)
        )
    return found


def partition(labels: np.ndarray) -> list[set[int]]:
    return [set(np.flatnonzero(labels == c).tolist()) for c in range(labels.max() + 1)]


def twin_round(
    name: str,
    world: World,
    w: Weights,
    t: int,
    cohort: np.ndarray,
    training: TrainingSet,
    after: Any,
) -> Weights:
    """One round of Algorithm 1 by the twin, given the fast path's cohort and new partition."""
    settings = world.settings
    S = cohort.tolist()
    samples = samples_of(world, cohort, t, training)
    rated = training.ratings is not None
    w_k = {
        k: client_update(k, w, samples[k], settings.learning_rate, settings.reg, rated) for k in S
    }
    n_k = {k: len(samples[k]) for k in S}
    if name in ("fedfast", "fedavg+actvagg"):
        return actv_agg(S, w_k, w, n_k, exp(-t), lambda rows: partition(after.clusters))
    if settings.average == "touched":
        return equation_1_touched(S, w_k, n_k, w, {k: {item for item, _ in samples[k]} for k in S})
    return equation_1(S, w_k, n_k)


def compare(name: str, training: TrainingSet, **changes: Any) -> list[Any]:
    world = world_for(name, training, rounds=ROUNDS, participation=0.5, **changes)
    states, all_costs = play(name, world, LocalEngine.over(world, training, 1))
    w = weights(states[0])
    for t, costs in enumerate(all_costs):
        w = twin_round(name, world, w, t, costs.users, training, states[t + 1])
        found = weights(states[t + 1])
        for part in ("U", "I", "N"):
            np.testing.assert_allclose(
                getattr(found, part), getattr(w, part), atol=CLOSE, rtol=0, err_msg=f"{part} {t}"
            )
    return states


READINGS = [
    ("fedavg", {"average": "all"}),
    ("fedavg", {"average": "touched"}),
    ("fedfast", {}),
    ("fedavg+actvsamp", {"average": "all"}),
    ("fedavg+actvsamp", {"average": "touched"}),
    ("fedavg+actvsamp", {"average": "all", "clusters_follow": "profiles"}),
    ("fedavg+actvagg", {}),
]


@pytest.mark.parametrize(("name", "reading"), READINGS)
@pytest.mark.parametrize("rated", [False, True], ids=["implicit", "explicit"])
def test_rounds_equal_the_twin(name, reading, rated):
    states = compare(name, histories(3, rated=rated), learning_rate=0.05, **reading)
    moved = np.abs(states[-1].item_rows - states[0].item_rows).max()
    assert moved > 100 * CLOSE  # otherwise closeness would prove nothing


@pytest.mark.parametrize(("name", "reading"), READINGS)
def test_local_epochs_and_negatives_and_regularisation_equal_the_twin(name, reading):
    compare(
        name,
        histories(4),
        local_epochs=3,
        negatives=2,
        reg=0.1,
        learning_rate=0.03,
        embedding_size=3,
        **reading,
    )


@pytest.mark.parametrize("name", ["fedfast", "fedavg+actvagg"])
def test_groups_of_a_feature_equal_the_twin(name):
    training = histories(5)
    states = compare(name, training, cluster_by="region")
    assert {tuple(state.clusters.tolist()) for state in states} == {
        tuple(states[0].clusters.tolist())
    }
    compare(name, training, clusters=1)


def test_the_two_readings_of_fedavg_differ():
    training = histories(3)
    ends = [
        compare("fedavg", training, average=reading)[-1].item_rows for reading in ("all", "touched")
    ]
    assert np.abs(ends[0] - ends[1]).max() > 100 * CLOSE


@pytest.mark.parametrize("name", ["fedfast", "fedavg+actvagg", "fedavg+actvsamp"])
@pytest.mark.parametrize("seed", range(4))
def test_the_new_partition_is_k_means_of_the_new_rows_from_the_partition_before(name, seed):
    """Line 18 clusters w[U] after line 15 and before subordinates move (gamma = 0: never)."""
    training = histories(seed, n_users=30)
    still = {} if name == "fedavg+actvsamp" else {"discount": "none"}
    world = world_for(
        name,
        training,
        seed,
        rounds=ROUNDS,
        clusters=3,
        cluster_iterations=2,
        start_scale=1.0,
        **still,
    )
    states, _ = play(name, world, LocalEngine.over(world, training, 1))
    for before, after in pairwise(states):
        expected = lloyd(after.user_rows.astype(float), before.clusters.tolist(), 3, 2)
        assert after.clusters.tolist() == expected


def round_robin_sizes(labels: list[int], m: int) -> tuple[list[int], int]:
    """Algorithm 2 by hand: users of each cluster after whole turns, and the users left to draw."""
    sizes = [labels.count(c) for c in range(max(labels) + 1)]
    taken = [0] * len(sizes)
    left = m
    while left >= sum(size > n for size, n in zip(sizes, taken, strict=True)) > 0:
        for c, size in enumerate(sizes):
            if size > taken[c]:
                taken[c] += 1
                left -= 1
    return taken, left


@pytest.mark.parametrize("seed", range(3))
def test_actvsamp_alone_can_sample_from_the_first_partition_for_ever(seed):
    """G_0 is k-means of profiles. With `profiles` it stays; with `rows` it does not."""
    training = histories(seed, n_users=40)
    changes = {"rounds": ROUNDS, "clusters": 4, "learning_rate": 0.5, "start_scale": 1.0}
    last = {}
    for follow in ("profiles", "rows"):
        world = world_for("fedavg+actvsamp", training, seed, clusters_follow=follow, **changes)
        states, all_costs = play("fedavg+actvsamp", world, LocalEngine.over(world, training, 1))
        last[follow] = states[-1].clusters.tolist()
        if follow == "rows":
            continue
        first = states[0].clusters.tolist()
        assert all(state.clusters.tolist() == first for state in states)
        for costs in all_costs:
            cohort = costs.users.tolist()
            taken, left = round_robin_sizes(first, len(cohort))
            drawn = [[first[k] for k in cohort].count(c) for c in range(4)]
            extra = [n - whole for n, whole in zip(drawn, taken, strict=True)]
            assert set(extra) <= {0, 1}
            assert sum(extra) == left
    assert last["profiles"] != last["rows"]


def test_clusters_are_made_before_subordinates_move():
    """The opposite order would cluster other rows: with large moves the partitions differ."""
    training = histories(7, n_users=40)
    changes = {
        "clusters": 5,
        "learning_rate": 0.5,
        "start_scale": 0.3,
        "cluster_iterations": 1,
        "discount": "constant",
    }
    world = world_for("fedfast", training, rounds=3, **changes)
    states, all_costs = play("fedfast", world, LocalEngine.over(world, training, 1))
    differs = False
    for before, after, costs in zip(states, states[1:], all_costs, strict=False):
        line_15 = before.user_rows.astype(float)
        line_15[costs.users] = after.user_rows[costs.users]
        labels = before.clusters.tolist()
        assert after.clusters.tolist() == lloyd(line_15, labels, 5, 1)
        differs |= after.clusters.tolist() != lloyd(after.user_rows.astype(float), labels, 5, 1)
    assert differs  # otherwise this test could not tell the orders apart
