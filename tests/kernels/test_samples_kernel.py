"""What a device trains on: every positive once an epoch, negatives it never had, drawn from its own stream alone."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from slow_twins import number_below, splitmix64, unseen
from small_federation import few_settings, histories

from coterie.algorithms.local.samples import Samples, draw
from coterie.core import streams
from coterie.data.training_set import TrainingSet
from coterie.federated.federation import NodeData, World
from coterie.federated.trainer import world_of
from coterie.types import Rows


def world_for(training: TrainingSet, seed: int = 0, **changes: int) -> World:
    return world_of(training, few_settings("fedavg", **changes), seed)


def hosted(training: TrainingSet, seed: int = 0) -> NodeData:
    return NodeData(np.arange(training.n_users, dtype=np.int32), training, seed)


def of_user(samples: Samples, k: int) -> tuple[list[int], list[int], list[float]]:
    """Rows, sampled items and targets of the k-th user."""
    rows = samples.items[samples.offsets[k] : samples.offsets[k + 1]]
    which = slice(samples.starts[k], samples.starts[k + 1])
    return rows.tolist(), rows[samples.places[which]].tolist(), samples.targets[which].tolist()


def slowly(
    positives: list[int],
    values: list[float],
    seen: set[int],
    n_items: int,
    negatives: int,
    epochs: int,
    key: int,
):
    """The definition, with Python's integers: shuffle from the end, then every positive with its negatives."""
    drawn = 0

    def number(limit: int) -> int:
        nonlocal drawn
        drawn += 1
        return number_below(splitmix64(key, drawn - 1), limit)

    free = unseen(seen, n_items)
    found = []
    order = list(range(len(positives)))
    for _ in range(epochs):
        for i in range(len(order) - 1, 0, -1):
            j = number(i + 1)
            order[i], order[j] = order[j], order[i]
        for which in order:
            found.append((positives[which], values[which]))
            for _ in range(negatives if free else 0):
                if len(free) * 4 < n_items:
                    item = free[number(len(free))]
                else:
                    item = number(n_items)
                    while item in seen:
                        item = number(n_items)
                found.append((item, 0.0))
    return [item for item, _ in found], [target for _, target in found]


@settings(deadline=None, max_examples=25)
@given(
    st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 3), st.integers(0, 500), st.booleans()
)
def test_samples_equal_the_slow_twin(seed, negatives, epochs, t, rated):
    """Items beyond a word of 64 too; the last user has everything, the one before nothing."""
    training = histories(seed % 50, n_users=7, n_items=150, rated=rated)
    world = world_for(training, seed, negatives=negatives, local_epochs=epochs)
    users = np.array([0, 2, 3, 5, 6], np.int32)
    samples = draw(world, users, t, hosted(training, seed))
    for k, u in enumerate(users.tolist()):
        mine = training.positives.of(u).tolist()
        values = (
            [1.0] * len(mine)
            if not rated
            else training.ratings[training.positives.places(np.array([u]))].tolist()
        )
        items, targets = slowly(
            mine,
            values,
            set(mine),
            150,
            0 if rated else negatives,
            epochs,
            streams.key(seed, "samples", t, u),
        )
        assert of_user(samples, k) == (sorted(set(items)), items, targets)


def test_every_positive_once_an_epoch_and_no_negative_that_was_done():
    training = histories(1, n_users=20, n_items=70)
    world = world_for(training, local_epochs=3, negatives=4)
    users = np.arange(18, dtype=np.int32)
    samples = draw(world, users, 5, hosted(training))
    for k in range(18):
        _, items, targets = of_user(samples, k)
        mine = training.positives.of(k).tolist()
        done = [item for item, target in zip(items, targets, strict=True) if target == 1]
        assert Counter(done) == Counter(mine * 3)
        assert not {item for item, target in zip(items, targets, strict=True) if target == 0} & set(
            mine
        )
        assert len(items) == 3 * 5 * len(mine) == samples.counts[k]


@pytest.mark.parametrize("had", [3, 40])
def test_negatives_are_uniform_over_what_was_not_done(had):
    """With few and with nearly all items had: two ways of drawing."""
    n_items = 48
    rows = Rows(np.array([0, had]), np.arange(had, dtype=np.int32))
    training = TrainingSet(1, n_items, rows, rows, None)
    world = world_for(training, negatives=5)
    counts: Counter[int] = Counter()
    for t in range(400 if had == 3 else 60):
        _, items, targets = of_user(draw(world, np.zeros(1, np.int32), t, hosted(training)), 0)
        counts.update(item for item, target in zip(items, targets, strict=True) if target == 0)
    assert set(counts) == set(range(had, n_items))
    assert chisquare(list(counts.values())).pvalue > 1e-3


def test_negatives_avoid_what_is_excluded_and_not_only_what_was_done():
    done = Rows(np.array([0, 1]), np.zeros(1, np.int32))
    known = Rows(np.array([0, 8]), np.arange(8, dtype=np.int32))
    training = TrainingSet(1, 10, done, known, None)
    items = [
        of_user(draw(world_for(training), np.zeros(1, np.int32), t, hosted(training)), 0)[1]
        for t in range(50)
    ]
    assert {item for row in items for item in row} == {0, 8, 9}


def test_a_users_samples_do_not_depend_on_neighbours_or_nodes():
    training = histories(2, n_users=14, n_items=40)
    world = world_for(training)
    everybody = np.arange(14, dtype=np.int32)
    together = draw(world, everybody, 3, hosted(training))
    for u in (0, 7, 12, 13):
        only_node = NodeData(np.array([u], np.int32), training.of_users(np.array([u], np.int32)))
        assert of_user(draw(world, np.array([u], np.int32), 3, only_node), 0) == of_user(
            together, u
        )


def test_rounds_and_seeds_draw_anew():
    training = histories(2, n_items=60)
    users = np.arange(4, dtype=np.int32)
    drawn = [
        draw(world_for(training), users, t, hosted(training, seed)).items.tolist()
        for seed, t in ((0, 0), (0, 1), (1, 0))
    ]
    assert drawn[0] != drawn[1]
    assert drawn[0] != drawn[2]
