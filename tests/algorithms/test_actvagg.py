"""FedFast's parts by hand: ActvAGG, ActvSAMP, discounts, clusters of a feature, statistics."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_federation import histories, play_locally, world_for

from coterie.algorithms import clustering as clusters
from coterie.algorithms import fedavg, fedfast
from coterie.algorithms.fedfast import FedFast, FedFastState
from coterie.core import streams
from coterie.data.training_set import TrainingSet
from coterie.errors import ConfigError, UnknownName
from coterie.federated.federation import Accepted, NodeData, World
from coterie.types import SCALE, Rows, Updates

# Four users, two items, d = 2. All numbers are quarters, so that fixed point holds them exactly.

REGIONS = ["north", "north", "north", "south"]
W_0 = FedFastState(
    np.array([[0, 0], [1, 1], [2, 2], [3, 3]], np.float32),
    np.array([[1, 2], [3, 4]], np.float32),
    np.array([1, 1, 0], np.float32),
    np.array([0, 0, 0, 1], np.int32),
)


def world(regions: list[str] | None = None, **changes: Any) -> World:
    values = np.array(regions or REGIONS, dtype=object)
    chosen = FedFast.of({"cluster_by": "region"} | changes)
    return World(chosen, 0, len(values), 2, np.ones(len(values), bool), {"region": values})


def fixed(values: list[Any]) -> np.ndarray:
    return np.rint(np.array(values, float) * SCALE).astype(np.int32)


def two_delegates() -> Updates:
    """User 0 trained on one sample and on both items; user 1 on three samples of the first item."""
    return Updates(
        np.array([0, 1], np.int32),
        np.array([1, 3], np.int64),
        np.array([0, 2, 3], np.int64),
        np.array([0, 1, 0], np.int32),
        fixed([[0.5, 0], [-0.25, 0.5], [0.25, -1]]),
        fixed([[0.5, -0.5], [1, 0.25]]),
        fixed([[0.25, 0, 0.5], [-0.25, 1, 0]]),
    )


def aggregate(
    given: World, updates: Updates, t: int = 0, state: FedFastState = W_0
) -> FedFastState:
    sums = fedfast.weigh_by_change(given, fedavg.broadcast(given, state, updates.users, t), updates)
    return fedfast.actv_agg(
        given, state, sums, Accepted(updates.users, updates.samples, updates.user_rows), t
    )


def test_line_3_other_parameters_are_averaged_by_samples():
    """1 + (0.25 - 3 * 0.25) / 4, 1 + 3 * 1 / 4, 0 + 0.5 / 4."""
    np.testing.assert_array_equal(
        aggregate(world(), two_delegates()).dense, np.float32([0.875, 1.75, 0.125])
    )


def test_line_11_items_are_weighed_by_how_far_each_component_moved():
    """First component of item 0: (0.5 * 1.5 + 0.25 * 1.25) / 0.75.

    Only user 1 moved its second component, and only user 0 moved item 1.
    """
    found = aggregate(world(), two_delegates()).item_rows
    np.testing.assert_allclose(found, [[1.0625 / 0.75, 1.0], [2.75, 4.5]], rtol=1e-7)


def test_line_11_does_not_change_components_without_moves():
    updates = replace(two_delegates(), item_rows=fixed([[0, 0], [0, 0.5], [0, 0]]))
    np.testing.assert_array_equal(
        aggregate(world(), updates).item_rows, np.float32([[1, 2], [3, 4.5]])
    )


# Adam's moments. A row of d = 1 is value, mean, root mean square and age.

WITH_MOMENTS = FedFastState(
    np.zeros((4, 4), np.float32),
    np.array([[1, 0.5, 0.25, 0], [3, 0, 0, 0]], np.float32),
    np.zeros(7, np.float32),
    np.array([0, 0, 0, 1], np.int32),
)


def two_delegates_with_moments() -> Updates:
    """User 0 with one sample sends both items; user 1 with three samples sends the first."""
    return replace(
        two_delegates(),
        item_rows=fixed([[0.5, 1, 0.5, 0.25], [-0.25, 0.5, 0.5, 0.25], [0.25, -0.5, 0.25, 0.25]]),
        user_rows=fixed([[0] * 4, [0] * 4]),
        dense=fixed([[0] * 7, [0] * 7]),
    )


def aggregate_moments(**changes: Any) -> np.ndarray:
    given = world(optimizer="adam", moments="averaged", embedding_size=1, **changes)
    return aggregate(given, two_delegates_with_moments(), state=WITH_MOMENTS).item_rows


def test_moments_are_averaged_by_samples_over_the_delegates_that_sent_the_row():
    """Item 0: the value moves by (0.5^2 + 0.25^2) / 0.75, the mean by (1 - 3 * 0.5) / 4.

    The root mean square moves by (0.5 + 3 * 0.25) / 4, the age by 0.25. Item 1 has one delegate.
    """
    expected = [[1 + 0.3125 / 0.75, 0.375, 0.5625, 0.25], [2.75, 0.5, 0.5, 0.25]]
    np.testing.assert_allclose(aggregate_moments(), expected, rtol=1e-6)


def test_moments_can_be_weighed_by_their_change():
    """Item 0: the mean moves by (1 - 0.5^2) / 1.5, the root by (0.5^2 + 0.25^2) / 0.75."""
    expected = [[1 + 0.3125 / 0.75, 1.0, 0.25 + 0.3125 / 0.75, 0.25], [2.75, 0.5, 0.5, 0.25]]
    np.testing.assert_allclose(aggregate_moments(moment_weights="change"), expected, rtol=1e-6)


def test_moment_weights_change_nothing_where_moments_stay_on_clients():
    updates = two_delegates()
    one, other = (
        aggregate(world(moment_weights=weights), updates).item_rows
        for weights in ("samples", "change")
    )
    np.testing.assert_array_equal(one, other)


def test_line_11_opposite_moves_of_equal_size_cancel():
    """And those of unequal size do not: the second component is (2 * (2 + 2) + 1 * (2 - 1)) / 3."""
    updates = replace(two_delegates(), item_rows=fixed([[0.5, 2], [0, 0], [-0.5, -1]]))
    np.testing.assert_array_equal(aggregate(world(), updates).item_rows[0], np.float32([1, 3]))


def test_line_15_delegates_keep_what_they_learned():
    found = aggregate(world(), two_delegates()).user_rows
    np.testing.assert_array_equal(found[:2], np.float32([[0.5, -0.5], [2, 1.25]]))


def test_line_28_subordinates_move_with_the_mean_of_their_clusters_delegates():
    """The mean of (0.5, -0.5) and (1, 0.25) on top of (2, 2); at t = 0 gamma is 1."""
    found = aggregate(world(), two_delegates()).user_rows
    np.testing.assert_array_equal(found[2], np.float32([2.75, 1.875]))


def test_a_cluster_without_a_delegate_stays():
    np.testing.assert_array_equal(
        aggregate(world(), two_delegates()).user_rows[3], np.float32([3, 3])
    )


def test_delegates_of_two_clusters_move_their_own_subordinates_only():
    regions = ["north", "south", "north", "south"]
    state = replace(W_0, clusters=np.array([0, 1, 0, 1], np.int32))
    found = aggregate(world(regions), two_delegates(), state=state).user_rows
    np.testing.assert_array_equal(
        found, np.float32([[0.5, -0.5], [2, 1.25], [2.5, 1.5], [4, 3.25]])
    )


def test_users_who_take_no_part_do_not_move():
    state = replace(W_0, clusters=np.array([0, 0, -1, 1], np.int32))
    np.testing.assert_array_equal(
        aggregate(world(), two_delegates(), state=state).user_rows[2], np.float32([2, 2])
    )


@pytest.mark.parametrize("t", [1, 2, 7])
def test_gamma_decreases_exponentially(t):
    found = aggregate(world(), two_delegates(), t).user_rows
    np.testing.assert_allclose(found[2], [2 + exp(-t) * 0.75, 2 - exp(-t) * 0.125], rtol=1e-6)
    np.testing.assert_array_equal(
        found[:2], np.float32([[0.5, -0.5], [2, 1.25]])
    )  # delegates are not discounted


@pytest.mark.parametrize(
    ("schedule", "gammas"),
    [
        ("exp", [1, exp(-1), exp(-2), exp(-10)]),
        ("inverse", [1, 1 / 2, 1 / 3, 1 / 11]),
        ("constant", [1, 1, 1, 1]),
        ("none", [0, 0, 0, 0]),
    ],
)
def test_discount_schedules(schedule, gammas):
    given_world = world(discount=schedule)
    assert [fedfast.discount(given_world, t) for t in (0, 1, 2, 10)] == pytest.approx(
        gammas, rel=1e-15
    )
    found = aggregate(given_world, two_delegates(), 2).user_rows[2]
    np.testing.assert_allclose(found, [2 + gammas[2] * 0.75, 2 - gammas[2] * 0.125], rtol=1e-6)


def test_gamma_may_be_zero():
    assert fedfast.discount(world(), 100_000) == 0.0
    np.testing.assert_array_equal(
        aggregate(world(), two_delegates(), 100_000).user_rows[2], np.float32([2, 2])
    )


def test_an_unknown_schedule_is_refused():
    with pytest.raises(ConfigError, match="discount"):
        FedFast.of({"discount": "linear"})


def test_aggregation_writes_into_nothing_it_was_given():
    state = replace(W_0, user_rows=W_0.user_rows.copy())
    for array in state.arrays().values():
        array.flags.writeable = False
    aggregate(world(), two_delegates(), state=state)


# Equation 1 by the same numbers.


def average(reading: str) -> Any:
    values = np.array(REGIONS, dtype=object)
    chosen = fedavg.FedAvg.of({"average": reading})
    given_world = World(chosen, 0, 4, 2, np.ones(4, bool), {"region": values})
    updates = two_delegates()
    sums = fedavg.weigh_by_samples(
        given_world, fedavg.broadcast(given_world, W_0, updates.users, 0), updates
    )
    accepted = Accepted(updates.users, updates.samples, updates.user_rows)
    return fedavg.average(given_world, W_0, sums, accepted, 0)


def test_equation_1_averages_all_parameters_over_the_cohort():
    """A user who did not train on a row counts with its old value.

    Only user 0 moved item 1, with weight 1 / 4.
    """
    found = average("all")
    np.testing.assert_array_equal(found.dense, np.float32([0.875, 1.75, 0.125]))
    np.testing.assert_array_equal(found.item_rows, np.float32([[1.3125, 1.25], [2.9375, 4.125]]))
    np.testing.assert_array_equal(
        found.user_rows, np.float32([[0.125, -0.125], [1.75, 1.1875], [2, 2], [3, 3]])
    )


def test_the_second_reading_averages_a_row_over_the_users_who_trained_on_it():
    found = average("touched")
    np.testing.assert_array_equal(found.dense, np.float32([0.875, 1.75, 0.125]))
    np.testing.assert_array_equal(found.item_rows, np.float32([[1.3125, 1.25], [2.75, 4.5]]))
    np.testing.assert_array_equal(
        found.user_rows, np.float32([[0.5, -0.5], [2, 1.25], [2, 2], [3, 3]])
    )


# ActvSAMP: clusters take turns.


def quotas(sizes: list[int], m: int, t: int = 0) -> list[int]:
    return clusters.round_robin(np.array(sizes, np.int64), m, 0, t).tolist()


@pytest.mark.parametrize(
    ("sizes", "m", "expected"),
    [
        ([5, 5, 5], 6, [2, 2, 2]),  # two complete turns
        ([1, 5, 5], 7, [1, 3, 3]),  # the first is exhausted after one turn
        ([1, 2, 9], 8, [1, 2, 5]),
        ([0, 4, 0, 4], 4, [0, 2, 0, 2]),  # clusters without members are passed over
        ([10], 4, [4]),  # one cluster is plain sampling
        ([3, 2], 5, [3, 2]),
        ([3, 2], 50, [3, 2]),  # more than there are
        ([3, 2], 0, [0, 0]),
        ([0, 0], 3, [0, 0]),
    ],
)
def test_round_robin_quotas(sizes, m, expected):
    assert quotas(sizes, m) == expected


def test_the_last_turn_is_random_over_clusters():
    many = [quotas([4, 4, 4], 7, t) for t in range(60)]
    assert {tuple(q) for q in many} == {(3, 2, 2), (2, 3, 2), (2, 2, 3)}


def test_with_fewer_users_than_clusters_all_clusters_are_equally_likely():
    counts = np.sum([quotas([9] * 10, 3, t) for t in range(2000)], axis=0)
    assert counts.sum() == 6000
    assert (abs(counts - 600) < 5 * np.sqrt(2000 * 0.3 * 0.7)).all()


def slow_turns(sizes: list[int], m: int, seed: int, t: int) -> list[int]:
    """Clusters in the order of their lots, one user each per turn."""
    order = sorted(range(len(sizes)), key=lambda c: streams.key(seed, "turns", t, c))
    sent = [0] * len(sizes)
    while sum(sent) < min(m, sum(sizes)):
        for c in order:
            if sent[c] < sizes[c] and sum(sent) < m:
                sent[c] += 1
    return sent


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=9),
    st.integers(0, 60),
    st.integers(0, 9),
    st.integers(0, 9),
)
def test_round_robin_equals_a_loop_over_turns(sizes, m, seed, t):
    found = clusters.round_robin(np.array(sizes, np.int64), m, seed, t).tolist()
    assert found == slow_turns(sizes, m, seed, t)


def test_a_cohort_is_fair_among_clusters():
    training = histories(1, n_users=62, n_items=30)
    for name in ("fedfast", "fedavg+actvsamp"):
        states, all_costs = play_locally(name, training, rounds=6, participation=0.2, clusters=5)
        for state, costs in zip(states, all_costs, strict=False):
            sizes = np.bincount(state.clusters[state.clusters >= 0], minlength=5)
            sent = np.bincount(state.clusters[costs.users], minlength=5)
            assert sent.sum() == len(costs.users) == 13  # ceil(0.2 * 61)
            assert np.ptp(sent[sent < sizes]) <= 1 if (sent < sizes).any() else True


def test_the_other_ablation_samples_without_regard_to_clusters():
    training = histories(1, n_users=62, n_items=30)
    _, with_clusters = play_locally("fedavg+actvagg", training)
    _, without = play_locally("fedavg", training)
    assert [t.users.tolist() for t in with_clusters] == [t.users.tolist() for t in without]


@pytest.mark.parametrize(
    ("alpha", "k", "m"), [(0.1, 943, 95), (0.5, 4, 2), (0.001, 4, 1), (1.0, 4, 4), (0.07, 100, 7)]
)
def test_line_4_the_size_of_a_cohort(alpha, k, m):
    """max(ceil(alpha K), 1); 0.07 * 100 counts as 7, though it is 7.000000000000001 in binary."""
    given_world = World(FedFast.of({"participation": alpha}), 0, k, 2, np.ones(k, bool), {})
    assert fedavg.cohort_size(given_world) == m


# Clusters of a feature.


def test_clusters_of_a_feature_are_its_values():
    given_world = replace(
        world(["west", "east", "west", "north", "east"]), members=np.array([1, 1, 1, 1, 0], bool)
    )
    assert fedfast.by_metadata(given_world).tolist() == [2, 0, 2, 1, -1]


def test_feature_values_of_any_type_become_clusters():
    mixed = [1, "1", 2.5, None, ""]
    given_world = World(
        FedFast.of({"cluster_by": "age"}),
        0,
        5,
        2,
        np.ones(5, bool),
        {"age": np.array(mixed, object)},
    )
    found = fedfast.by_metadata(given_world)
    assert found[0] == found[1]
    assert len(set(found.tolist())) == 4


def test_an_unknown_feature_is_reported_with_the_known_ones():
    with pytest.raises(UnknownName, match=r"'regio'.*Did you mean 'region'"):
        fedfast.by_metadata(world(cluster_by="regio"))
    with pytest.raises(UnknownName, match="embeddings"):
        fedfast.by_metadata(World(FedFast.of({"cluster_by": "x"}), 0, 1, 2, np.ones(1, bool), {}))


@pytest.mark.parametrize("name", ["fedfast", "fedavg+actvsamp", "fedavg+actvagg"])
def test_groups_of_a_feature_never_change(name):
    training = histories(2)
    states, _ = play_locally(name, training, cluster_by="region")
    regions = training.user_features["region"]
    for state in states:
        assert state.clusters[10] == -1  # a user without history takes no part
        for u in (u for u in range(12) if u != 10):
            assert [v for v in range(12) if state.clusters[v] == state.clusters[u]] == [
                v for v in range(12) if v != 10 and regions[v] == regions[u]
            ]


# P_0: statistics of profiles.


def of_lists(
    lists: list[list[int]], n_items: int, ratings: list[float] | None = None
) -> TrainingSet:
    users = np.repeat(np.arange(len(lists)), [len(h) for h in lists]).astype(np.int32)
    rows = Rows.build(users, np.array([i for h in lists for i in h], np.int32), len(lists))
    return TrainingSet(
        len(lists), n_items, rows, rows, None if ratings is None else np.array(ratings, np.float32)
    )


def test_statistics_of_choices_by_hand():
    """Two of eight items: the 0/1 row has mean 1/4 and the entropy of a coin with that bias."""
    found = fedfast.statistics_of(of_lists([[0, 5], list(range(8)), []], 8))
    coin = -(0.25 * log(0.25) + 0.75 * log(0.75))
    np.testing.assert_allclose(
        found, [[log(3) / 8, 0.2, coin / 4], [log(9) / 8, 0.5, 0], [0, 0, 0]], rtol=1e-12
    )


def test_statistics_of_ratings_by_hand():
    """Ratings 1, 1, 5: mean 7/3, and the entropy of two thirds and one third."""
    found = fedfast.statistics_of(of_lists([[0, 3, 7], [2], []], 8, [1, 1, 5, 4]))
    entropy = -(2 / 3 * log(2 / 3) + 1 / 3 * log(1 / 3))
    np.testing.assert_allclose(
        found, [[log(4) / 8, 0.7, entropy / 4], [log(2) / 8, 0.8, 0], [0, 0, 0]], rtol=1e-7
    )


def test_statistics_stay_in_range_whatever_the_data():
    rng = np.random.default_rng(0)
    ratings = rng.normal(0, 1e6, 3000).tolist()
    found = fedfast.statistics_of(of_lists([rng.permutation(5000)[:3000].tolist()], 5000, ratings))
    assert (np.abs(found) < 8).all()
    assert np.isfinite(found).all()


def test_a_users_statistics_do_not_depend_on_who_shares_its_node():
    """Otherwise the partition, and with it the run, would depend on the number of nodes."""
    training = histories(0, n_users=60, n_items=40, rated=True)
    continuous = np.random.default_rng(0).normal(3, 1, len(training)).astype(np.float32)
    for history in (training, replace(training, ratings=continuous)):
        together = fedfast.statistics_of(history)
        only_node = [
            fedfast.statistics_of(history.of_users(np.array([u], np.int32)))[0] for u in range(60)
        ]
        np.testing.assert_array_equal(
            np.rint(together * SCALE), np.rint(np.array(only_node) * SCALE)
        )


def test_statistics_are_computed_on_the_device_and_hold_no_single_items():
    training = histories(2)
    given_world = world_for("fedfast", training)
    members = np.flatnonzero(given_world.members).astype(np.int32)
    message = fedfast.request_statistics(given_world, None, members, 0)  # type: ignore[arg-type]
    node = NodeData(np.arange(12, dtype=np.int32), training)
    reply = fedfast.profile_statistics(given_world, message, node)
    assert reply.user_rows.shape == (len(members), 3)
    assert len(reply.items) == reply.item_rows.size == reply.dense.size == 0
    np.testing.assert_array_equal(
        reply.user_rows / SCALE, np.rint(fedfast.statistics_of(training)[members] * SCALE) / SCALE
    )


def test_the_first_partition_separates_two_kinds_of_users():
    """Twenty users with two items of a hundred, and twenty with fifty, alternating."""
    rng = np.random.default_rng(1)
    lists = [rng.permutation(100)[: 2 if u % 2 else 50].tolist() for u in range(40)]
    training = of_lists(lists, 100)
    states, _ = play_locally("fedfast", training, clusters=2, rounds=1)
    first = states[0].clusters
    assert len(set(first[::2].tolist())) == len(set(first[1::2].tolist())) == 1
    assert first[0] != first[1]


@pytest.mark.parametrize("seed", range(4))
def test_statistics_are_standardised_before_they_are_clustered(seed):
    """Counts vary a hundred times more than the rest; unscaled, they would hide the two kinds."""
    n = 60
    kind = np.where(np.arange(n) % 2, 0.01, -0.01)
    rows = np.stack([np.random.default_rng(2).normal(0, 1, n), kind, 3 + kind], axis=1)
    given_world = World(FedFast.of({"clusters": 2}), seed, n, 2, np.ones(n, bool), {})
    state = FedFastState(W_0.user_rows, W_0.item_rows, W_0.dense, np.zeros(n, np.int32))
    accepted = Accepted(np.arange(n, dtype=np.int32), np.zeros(n, np.int64), fixed(rows.tolist()))
    found = fedfast.first_partition(given_world, state, {}, accepted, 0).clusters
    assert len(set(found[::2].tolist())) == len(set(found[1::2].tolist())) == 1
    assert found[0] != found[1]


def test_there_are_at_most_as_many_clusters_as_users():
    states, _ = play_locally("fedfast", histories(2), clusters=500)
    assert all(state.clusters.max() < 11 for state in states)
