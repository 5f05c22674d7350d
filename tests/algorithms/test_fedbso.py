"""FedBSO: hand-computed steps, rounds equal to a slow twin, and what each reading changes."""

from __future__ import annotations

from math import exp
from typing import Any

import numpy as np
import pytest
import slow_fedbso as slow
from hostile import HostileEngine
from slow_fedfast import Weights, client_update, equation_1, equation_1_touched
from small_federation import histories, play, play_locally, sha256, world_for
from test_fedfast_twin import CLOSE, samples_of, weights

from coterie.algorithms import clustering as clusters
from coterie.algorithms import fedbso
from coterie.algorithms.fedbso import (
    FedBSOState,
    get_best_user,
    replace_center,
    swap_centers,
    users_per_cluster,
)
from coterie.algorithms.registry import algorithm
from coterie.core import streams
from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.errors import ConfigError
from coterie.federated.federation import Accepted, World
from coterie.types import SCALE


class Rigged:
    """A generator that returns given values."""

    def __init__(self, *given: Any) -> None:
        self.given = list(given)

    def random(self) -> float:
        return self.given.pop(0)

    def integers(self, n: int) -> int:
        assert self.given[0] < n
        return self.given.pop(0)

    def choice(self, n: int, size: int, replace: bool) -> np.ndarray:
        assert (size, replace) == (2, False)
        return np.array(self.given.pop(0))


# Lines 5 to 9: replacement.


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


@pytest.mark.parametrize(
    ("r1", "p5", "expected"),
    [(0.49, 0.5, [4, 9, 2]), (0.5, 0.5, [4, 7, 2]), (0.0, 0.0, [4, 7, 2]), (0.99, 1.0, [4, 9, 2])],
)
def test_a_random_user_replaces_the_centre_of_a_random_cluster(r1, p5, expected):
    """Users 3, 9 and 11 take part; the second of them and the second cluster are drawn."""
    centres = ints(4, 7, 2)
    found = replace_center(Rigged(r1, 1, 1), centres, ints(3, 9, 11), p5)  # type: ignore[arg-type]
    assert found.tolist() == expected
    assert centres.tolist() == [4, 7, 2]


def test_replacement_has_its_probability_and_is_uniform_over_users():
    centres = ints(0, 1, 2, 3)
    users = np.arange(10, 20)
    found = [
        replace_center(streams.at(0, "brain storm", t), centres, users, 0.3) for t in range(4000)
    ]
    changed = [
        (int(np.flatnonzero(f != centres)[0]), int(f.max())) for f in found if (f != centres).any()
    ]
    assert len(changed) / 4000 == pytest.approx(0.3, abs=0.03)
    for side, n in ((0, 4), (1, 10)):
        shares = np.unique([c[side] for c in changed], return_counts=True)[1] / len(changed)
        assert shares == pytest.approx([1 / n] * n, abs=0.04)


# Lines 10 to 14: swap.


def test_a_swap_of_members_makes_each_the_centre_of_the_others_cluster():
    """Clusters {0, 1}, {2, 3}, {4}: centres 1 and 4 of the first and last change places."""
    labels, centres = swap_centers(
        Rigged(0.2, (0, 2)), ints(0, 0, 1, 1, 2), ints(1, 2, 4), 0.5, members=True
    )  # type: ignore[arg-type]
    assert labels.tolist() == [0, 2, 1, 1, 0]
    assert centres.tolist() == [4, 2, 1]


def test_a_swap_of_centres_changes_no_membership():
    labels, centres = swap_centers(
        Rigged(0.2, (0, 2)), ints(0, 0, 1, 1, 2), ints(1, 2, 4), 0.5, members=False
    )  # type: ignore[arg-type]
    assert labels.tolist() == [0, 0, 1, 1, 2]
    assert centres.tolist() == [4, 2, 1]


@pytest.mark.parametrize(
    ("r2", "p6", "centres"), [(0.5, 0.5, ints(1, 2)), (0.0, 0.0, ints(1, 2)), (0.0, 1.0, ints(1))]
)
def test_no_swap_above_the_probability_or_with_a_single_cluster(r2, p6, centres):
    labels, found = swap_centers(Rigged(r2), ints(0, 0, 0), centres, p6, members=True)  # type: ignore[arg-type]
    assert labels.tolist() == [0, 0, 0]
    assert found.tolist() == centres.tolist()


def test_a_user_who_replaced_a_centre_and_is_swapped_joins_the_other_cluster():
    """User 3, in cluster 1, replaced the centre of cluster 0; swapped, it is cluster 1's centre."""
    labels, centres = swap_centers(
        Rigged(0.0, (1, 0)), ints(0, 0, 1, 1), ints(3, 2), 1.0, members=True
    )  # type: ignore[arg-type]
    assert labels.tolist() == [0, 0, 0, 1]
    assert centres.tolist() == [2, 3]


def test_swapped_centres_alone_only_rename_clusters():
    """The next clustering starts from the same rows: the same groups of users, renumbered."""
    rows = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    labels = np.zeros(60, np.int32)
    centres = ints(5, 17, 30, 44)
    groups = [
        fedbso.cluster_users_by_center(rows, labels, c, 3) for c in (centres, ints(30, 17, 5, 44))
    ]
    assert [set(np.flatnonzero(groups[0] == c)) for c in (0, 1, 2, 3)] == [
        set(np.flatnonzero(groups[1] == c)) for c in (2, 1, 0, 3)
    ]


# Lines 3 and 4.


def test_clustering_starts_from_the_rows_of_the_centres():
    """On a line: users at 0, 1, 2, 10, 11; centres 2 and 3 (at 2 and 10) split them at 6."""
    rows = np.array([[0], [1], [2], [10], [11], [5]], np.float32)
    labels = ints(0, 0, 0, 0, 0, -1)

    def cluster(centres: np.ndarray, iterations: int) -> list[int]:
        return fedbso.cluster_users_by_center(rows, labels, centres, iterations).tolist()

    assert cluster(ints(2, 3), 1) == [0, 0, 0, 1, 1, -1]
    assert cluster(ints(0, 1), 1) == [0, 1, 1, 1, 1, -1]
    assert cluster(ints(0, 1), 3) == [0, 0, 0, 1, 1, -1]  # after more of Lloyd's iterations


def test_the_best_user_is_nearest_to_the_mean():
    """Means: 3 of {0, 2, 7}, 11 of {10, 11, 12}; user 6 takes no part; cluster 2 is empty."""
    rows = np.array([[0], [2], [7], [10], [11], [12], [3]], np.float32)
    labels = ints(0, 0, 0, 1, 1, 1, -1)
    assert get_best_user(rows, labels, ints(9, 9, 5)).tolist() == [1, 4, 5]


def test_ties_for_the_best_user_go_to_the_first():
    rows = np.array([[0], [2], [5], [7]], np.float32)
    assert get_best_user(rows, ints(0, 0, 1, 1), ints(0, 0)).tolist() == [0, 2]


def test_the_best_user_has_the_lowest_loss_that_is_known():
    """In the first cluster no user reported a loss; in the second, users 3 and 5 did."""
    rows = np.array([[0], [2], [7], [10], [11], [12]], np.float32)
    losses = np.array([fedbso.NO_LOSS] * 3 + [0.7, fedbso.NO_LOSS, 0.3], np.float32)
    assert get_best_user(rows, ints(0, 0, 0, 1, 1, 1), ints(0, 0), losses).tolist() == [1, 5]


# Lines 15 to 17.


@pytest.mark.parametrize(
    ("sizes", "alpha", "expected"),
    [
        ([10, 11, 1, 0, 100], 0.1, [1, 2, 1, 0, 10]),
        ([100], 0.07, [7]),  # 0.07 * 100 is a little more than 7 in binary
        ([3, 3], 1.0, [3, 3]),
        ([4, 40], 0.001, [1, 1]),
    ],
)
def test_users_per_cluster_are_a_share_of_its_size(sizes, alpha, expected):
    assert users_per_cluster(np.array(sizes), alpha).tolist() == expected


def test_a_cohort_has_its_quota_of_every_cluster():
    training = histories(1, n_users=60)
    world = world_for("fedbso", training, participation=0.3, clusters=4)
    states, all_costs = play("fedbso", world, LocalEngine.over(world, training, 1))
    for state, costs in zip(states, all_costs, strict=False):
        drawn = clusters.sizes_of(state.clusters[costs.users])
        wanted = [
            slow.users_per_cluster(n, 0.3) for n in clusters.sizes_of(state.clusters).tolist()
        ]
        assert drawn.tolist() == wanted
        assert (np.diff(costs.users) > 0).all()


# Whole rounds.


def storm(
    world: World, state: FedBSOState, U: np.ndarray, losses: dict[int, float] | None, t: int
) -> slow.Storm:
    s = world.settings
    rows = state.profiles.astype(float) if s.cluster_by == "statistics" else U
    labels = slow.cluster_users_by_center(
        rows, state.clusters.tolist(), state.centres.tolist(), s.cluster_iterations
    )
    return slow.lines_4_to_14(
        rows,
        labels,
        state.centres.tolist(),
        losses,
        world.seed,
        t,
        s.replacement_rate,
        s.swap_rate,
        s.new_centres == "now",
        s.swap == "members",
    )


def line_21(world: World, w: Weights, S: list[int], w_k: Any, n_k: Any, samples: Any) -> Weights:
    if world.settings.average == "touched":
        return equation_1_touched(S, w_k, n_k, w, {k: {item for item, _ in samples[k]} for k in S})
    return equation_1(S, w_k, n_k)


def tables(state: FedBSOState) -> list[Weights]:
    """A model per cluster."""
    U = state.user_rows.astype(float)
    return [
        Weights(U, i.astype(float), n.astype(float))
        for i, n in zip(state.item_rows, state.dense, strict=True)
    ]


def compare(training: TrainingSet, **changes: Any) -> list[FedBSOState]:
    world = world_for(
        "fedbso",
        training,
        rounds=6,
        participation=0.3,
        start_scale=0.5,
        learning_rate=0.1,
        **changes,
    )
    s = world.settings
    rated = training.ratings is not None
    states, all_costs = play("fedbso", world, LocalEngine.over(world, training, 1))
    losses: dict[int, float] = {}
    for t, (before, after, costs) in enumerate(zip(states, states[1:], all_costs, strict=False)):
        cohort = costs.users.tolist()
        samples = samples_of(world, costs.users, t, training)
        of = {k: int(before.clusters[k]) if s.aggregate == "cluster" else 0 for k in cohort}
        models = tables(before) if s.aggregate == "cluster" else [weights(before)]
        U = before.user_rows.astype(float)
        trained = {}
        for c, w in enumerate(models):
            if S := [k for k in cohort if of[k] == c]:
                w_k = {k: client_update(k, w, samples[k], s.learning_rate, s.reg, rated) for k in S}
                models[c] = line_21(world, w, S, w_k, {k: len(samples[k]) for k in S}, samples)
                U[S] = models[c].U[S]
                trained = trained | w_k
                losses |= {k: slow.loss_of(k, w, samples[k]) for k in S} if not rated else {}
        if s.user_rows == "cluster":
            n_k = {k: len(samples[k]) for k in cohort}
            slow.share(U, trained, n_k, before.clusters.tolist())
        else:
            gamma = {"exp": exp(-t), "constant": 1.0, "none": 0.0}[s.discount]
            slow.follow(U, weights(before), trained, before.clusters.tolist(), gamma)
        np.testing.assert_allclose(after.user_rows, U, atol=CLOSE, rtol=0, err_msg=f"U {t}")
        found = tables(after) if s.aggregate == "cluster" else [weights(after)]
        for one, other in zip(found, models, strict=True):
            np.testing.assert_allclose(one.I, other.I, atol=CLOSE, rtol=0, err_msg=f"I {t}")
            np.testing.assert_allclose(one.N, other.N, atol=CLOSE, rtol=0, err_msg=f"N {t}")
        expected = storm(world, before, U, losses if s.best_user == "loss" else None, t + 1)
        assert after.clusters.tolist() == expected.labels
        assert after.centres.tolist() == expected.centres
    return states


READINGS: list[dict[str, Any]] = [
    {},
    {"average": "all"},
    {"discount": "none"},
    {"discount": "constant"},
    {"best_user": "loss"},
    {"new_centres": "now", "replacement_rate": 1.0},
    {"swap": "centres", "swap_rate": 1.0},
    {"swap": "members", "swap_rate": 1.0},
    {"cluster_by": "statistics"},
    {"aggregate": "cluster"},
    {"aggregate": "cluster", "average": "all", "best_user": "loss"},
    {"user_rows": "cluster"},
    {"user_rows": "cluster", "aggregate": "cluster", "average": "all"},
    {"replacement_rate": 0.0, "swap_rate": 0.0},
]
NAMES = [" ".join(f"{k}={v}" for k, v in r.items()) or "default" for r in READINGS]
readings = pytest.mark.parametrize("reading", READINGS, ids=NAMES)


@readings
def test_rounds_equal_the_twin(reading):
    states = compare(histories(3, n_users=30), clusters=3, **reading)
    assert np.abs(states[-1].item_rows - states[0].item_rows).max() > 100 * CLOSE


def test_rounds_on_ratings_equal_the_twin():
    compare(histories(4, n_users=24, rated=True), clusters=3)


def test_every_reading_gives_another_result():
    training = histories(3, n_users=30)
    ends = {
        sha256(play_locally("fedbso", training, rounds=5, clusters=3, **reading)[0][-1])
        for reading in READINGS
    }
    assert len(ends) == len(READINGS)


def test_the_first_round_has_a_perturbed_partition_of_the_statistics():
    training = histories(2, n_users=40)
    world = world_for("fedbso", training, clusters=4, replacement_rate=1.0, swap_rate=1.0)
    (state, *_), _ = play("fedbso", world, LocalEngine.over(world, training, 1))
    labels = clusters.first_clusters(state.profiles, world.members, 4, world.seed)
    expected = slow.lines_4_to_14(
        state.profiles.astype(float),
        labels.tolist(),
        [0] * 4,
        None,
        world.seed,
        0,
        1.0,
        1.0,
        False,
        True,
    )
    assert (state.clusters.tolist(), state.centres.tolist()) == (expected.labels, expected.centres)


# Same bits in every reading.


@readings
def test_nodes_and_threads_change_nothing_in_any_reading(reading, monkeypatch):
    training = histories(5, n_users=40)
    ends = set()
    for threads, nodes in ((1, 1), (2, 3), (5, 7)):
        monkeypatch.setenv("COTERIE_THREADS", str(threads))
        states, _ = play_locally("fedbso", training, nodes=nodes, rounds=4, clusters=3, **reading)
        ends.add(sha256(states[-1]))
    assert len(ends) == 1


@readings
def test_resuming_from_any_round_gives_the_uninterrupted_run(reading):
    training = histories(6, n_users=30)
    world = world_for("fedbso", training, rounds=4, clusters=3, **reading)
    states, _ = play("fedbso", world, LocalEngine.over(world, training, 1))
    for n in range(1, 5):
        saved = FedBSOState.from_arrays(states[n - 1].arrays())
        again, _ = play("fedbso", world, LocalEngine.over(world, training, 1), since=saved, first=n)
        assert sha256(again[-1]) == sha256(states[-1])


# A model per cluster.


def test_users_are_scored_by_the_rows_of_their_cluster():
    training = histories(3, n_users=20)
    states, _ = play_locally("fedbso", training, rounds=3, clusters=3, aggregate="cluster")
    world = world_for("fedbso", training, clusters=3, aggregate="cluster")
    state = states[-1]
    users = np.arange(20, dtype=np.int32)
    found = fedbso.model(world, state).score(users)
    for u in range(20):
        c = max(state.clusters[u], 0)
        h = state.dense[c, :-1]
        b = state.dense[c, -1]
        expected = (state.item_rows[c] * h) @ state.user_rows[u] + b
        assert found[u] == pytest.approx(expected, abs=1e-5)
    some = np.array([[3, 1], [0, 2]], np.int32)
    assert fedbso.model(world, state).score(users[4:6], some) == pytest.approx(
        np.take_along_axis(found[4:6], some.astype(int), axis=1), abs=1e-6
    )


def test_a_user_is_sent_only_the_rows_of_its_cluster():
    training = histories(3, n_users=20)
    world = world_for("fedbso", training, clusters=3, aggregate="cluster")
    states, all_costs = play("fedbso", world, LocalEngine.over(world, training, 1))
    message = fedbso.broadcast(world, states[2], all_costs[2].users, 2)
    assert not message.common
    for k, u in enumerate(all_costs[2].users.tolist()):
        np.testing.assert_array_equal(
            message.own["item_rows"][k], states[2].item_rows[states[2].clusters[u]]
        )


# One row a cluster.


def test_users_of_a_cluster_share_the_mean_row_by_samples():
    """Clusters {0, 1, 2} and {3}, {4} and a user without. User 0 with one sample moves from 1 to 2,
    user 2 with three samples from 3 to 2.5: (2 + 3 * 2.5) / 4. User 3 moves from 4 to 3."""
    before = np.array([[1], [2], [3], [4], [5], [6]], np.float32)
    changes = np.array([[SCALE], [-SCALE // 2], [-SCALE]], np.int32)
    accepted = Accepted(ints(0, 2, 3), np.array([1, 3, 2]), changes)
    found = fedbso.share_rows(before, ints(0, 0, 0, 1, 2, -1), accepted)
    assert found[:, 0].tolist() == [2.375, 2.375, 2.375, 3, 5, 6]
    assert before[:, 0].tolist() == [1, 2, 3, 4, 5, 6]


# Secure aggregation.


@pytest.mark.parametrize(
    "reading",
    [r for r in READINGS if r.get("best_user") != "loss" and r.get("aggregate") != "cluster"],
    ids=str,
)
def test_secure_aggregation_gives_the_bits_of_a_plain_run(reading):
    pytest.importorskip("cryptography")
    training = histories(5, n_users=24)
    settings = {"rounds": 2, "clusters": 3, "participation": 0.5} | reading
    ends = {
        sha256(play_locally("fedbso", training, nodes=2, **settings | protection)[0][-1])
        for protection in ({}, {"secure_aggregation": "ring"})
    }
    assert len(ends) == 1


# Wrong input.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"best_user": "loss", "model": "neumf"},
            "best_user=loss is for model=gmf, but the model is neumf. Set model=gmf",
        ),
        ({"aggregate": "cluster", "model": "neumf"}, "aggregate=cluster is for model=gmf"),
        (
            {"best_user": "loss", "secure_aggregation": "ring"},
            "best_user=loss needs every client's own loss.*Set best_user=nearest",
        ),
        (
            {"aggregate": "cluster", "secure_aggregation": "ring"},
            "aggregate=cluster needs sums over the few clients.*Set aggregate=global",
        ),
        ({"replacement_rate": 1.5}, "replacement_rate"),
        ({"cluster_by": "region"}, "cluster_by"),
    ],
)
def test_readings_that_do_not_fit_other_settings_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        algorithm("fedbso").settings.of(changes)


@pytest.mark.parametrize("clusters_wanted", [1, 2, 500])
def test_any_number_of_clusters_trains(clusters_wanted):
    training = histories(8, n_users=9)
    states, all_costs = play_locally(
        "fedbso", training, rounds=6, clusters=clusters_wanted, swap_rate=1.0
    )
    # One of the nine users has no history.
    assert len(states[-1].centres) == min(clusters_wanted, 8)
    assert all(costs.accepted for costs in all_costs)


def test_a_negative_loss_is_ignored():
    """Otherwise that user would be the best of its cluster forever."""
    state = FedBSOState(
        *(np.zeros((3, 2), np.float32) for _ in range(2)),
        np.zeros(3),
        *(np.zeros(3, np.int32) for _ in range(2)),
        np.zeros((3, 3), np.float32),
        np.array([0.5, 0.25, fedbso.NO_LOSS], np.float32),
    )
    sent = np.array([[0, 0, -5], [0, 0, SCALE // 8]], np.int32)
    accepted = Accepted(ints(0, 2), np.ones(2, np.int64), sent)
    after, without_losses = fedbso.store_losses(state, accepted)
    assert after.losses.tolist() == [fedbso.NO_LOSS, 0.25, 0.125]
    assert without_losses.user_rows.shape == (2, 2)


def test_a_message_that_does_not_fit_into_memory_is_refused():
    with pytest.raises(
        ConfigError,
        match=r"aggregate=cluster sends every client .* 5\.0 GiB together; expected at most 4",
    ):
        fedbso.check_memory(5 << 30)


# A model per cluster, and hostile clients.


@pytest.mark.parametrize("reading", [{}, {"best_user": "loss"}, {"aggregate": "cluster"}], ids=str)
def test_hostile_updates_change_nothing_in_any_reading(reading):
    training = histories(9, n_users=80, n_items=40)
    world = world_for("fedbso", training, rounds=5, participation=0.5, clusters=3, **reading)
    honest = LocalEngine.over(world, training, 2)
    ends = []
    for attacking in (True, False):
        engine = HostileEngine(
            honest, world.n_items, algorithm("fedbso").train.exchanges[0], 12, 5, attacking
        )
        states, all_costs = play("fedbso", world, engine)
        ends.append([sha256(state) for state in states])
        assert sum(t.refused.total() for t in all_costs) == (5 * 17 if attacking else 0)
    assert ends[0] == ends[1]
