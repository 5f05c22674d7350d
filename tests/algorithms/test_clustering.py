"""Clusters: k-means equals scikit-learn's, and draws equal their definition and are fair."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.stats import chi2

from coterie import kernels
from coterie.algorithms import clustering as clusters
from coterie.core import streams
from coterie.kernels.fallback import clusters as fallback
from coterie.types import Floats, Ints

some = settings(deadline=None, max_examples=60)


def blobs(seed: int, n: int = 400, d: int = 6, groups: int = 5) -> tuple[Floats, Ints]:
    """Overlapping groups, and random labels to start from; one in ten users is in no cluster."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(0, 1.5, (groups, d))[rng.integers(0, groups, n)] + rng.normal(0, 0.6, (n, d))
    labels = rng.integers(0, groups, n)
    labels[rng.random(n) < 0.1] = -1
    return rows.astype(np.float32), labels.astype(np.int32)


def means(rows: Floats, labels: Ints, n_clusters: int) -> np.ndarray:
    return np.array([rows[labels == c].astype(float).mean(axis=0) for c in range(n_clusters)])


# k-means.


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("iterations", [2, 3, 300])
def test_labels_equal_those_of_scikit_learn_from_the_same_start(seed, iterations):
    """scikit-learn assigns once more than it moves centres: n moves here are n - 1 in it."""
    from sklearn.cluster import KMeans

    rows, labels = blobs(seed)
    there = labels >= 0
    oracle = KMeans(
        5, init=means(rows, labels, 5), n_init=1, max_iter=iterations - 1, tol=0, algorithm="lloyd"
    )
    expected = oracle.fit_predict(rows[there].astype(float))
    found = clusters.kmeans(rows, labels, 5, iterations)
    np.testing.assert_array_equal(found[there], expected)


@pytest.mark.parametrize("seed", range(6))
def test_users_in_no_cluster_stay_out_and_do_not_affect_centres(seed):
    rows, labels = blobs(seed)
    out = labels < 0
    found = clusters.kmeans(rows, labels, 5, 10)
    assert (found[out] == -1).all()
    assert (found[~out] >= 0).all()
    far = rows.copy()
    far[out] = 1e6
    np.testing.assert_array_equal(clusters.kmeans(far, labels, 5, 10), found)


def test_k_means_writes_into_nothing_it_was_given():
    rows, labels = blobs(1)
    rows.flags.writeable = labels.flags.writeable = False
    before = labels.copy()
    assert (clusters.kmeans(rows, labels, 5, 3) != before).any()
    np.testing.assert_array_equal(labels, before)


def test_k_means_stops_when_few_users_change_cluster():
    """At most one in a thousand: none of four hundred; with many users it saves iterations."""
    rows, labels = blobs(2)
    settled = clusters.kmeans(rows, labels, 5, 300)
    np.testing.assert_array_equal(clusters.kmeans(rows, settled, 5, 1), settled)
    rows, labels = blobs(2, n=20_000)
    almost = clusters.kmeans(rows, labels, 5, 300)
    assert 0 < (clusters.kmeans(rows, almost, 5, 1) != almost).sum() <= 20


def test_ties_between_centres_go_to_the_lower_index():
    rows = np.array([[0.0], [2.0], [1.0]], np.float32)
    labels = np.zeros(3, np.int32)
    assert clusters.assign(rows, np.array([[0.0], [2.0]], np.float32), labels) == 1
    assert labels.tolist() == [0, 1, 0]


def test_an_empty_cluster_moves_to_the_user_farthest_from_its_centre():
    """All share a cluster with its centre at 3.5, from which the one at 9 is farthest."""
    rows = np.array([[4.0], [0.0], [1.0], [9.0]], np.float32)
    assert clusters.kmeans(rows, np.zeros(4, np.int32), 2, 1).tolist() == [0, 0, 0, 1]


def test_several_empty_clusters_move_to_the_farthest_one_each():
    rows = np.array([[0.0], [0.1], [0.2], [8.0], [20.0]], np.float32)
    found = clusters.kmeans(rows, np.zeros(5, np.int32), 3, 20)
    assert len(set(found.tolist())) == 3
    assert found[0] == found[1] == found[2]


def test_an_empty_cluster_never_moves_to_a_user_in_no_cluster():
    rows = np.array([[0.0], [100.0], [0.5], [1.0]], np.float32)
    labels = np.array([0, -1, 0, 0], np.int32)
    assert clusters.centres_of(rows, labels, 3).tolist() == [[0.5], [0.0], [1.0]]


def test_equal_users_share_a_cluster_and_the_others_stay_empty():
    found = clusters.kmeans(np.ones((6, 2), np.float32), np.zeros(6, np.int32), 3, 10)
    assert found.tolist() == [0] * 6


@some
@given(
    st.integers(1, 30).flatmap(
        lambda n: st.tuples(
            arrays.arrays(np.float32, (n, 2), elements=st.floats(-100, 100, width=32)),
            arrays.arrays(np.int32, n, elements=st.integers(-1, 3)),
        )
    )
)
def test_totals_equal_a_slow_loop(case):
    rows, labels = case
    sums, counts = clusters.totals(rows, labels, 4)
    assert counts.tolist() == [int((labels == c).sum()) for c in range(4)]
    for c in range(4):
        slow = np.zeros(2)
        for row in rows[labels == c]:
            slow += row
        np.testing.assert_array_equal(sums[c], slow)


def test_move_along_moves_all_but_the_unmoved():
    rows = np.zeros((5, 2), np.float32)
    labels = np.array([0, 1, -1, 1, 0], np.int32)
    still = np.array([0, 0, 0, 1, 1], bool)
    clusters.move_along(rows, labels, still, np.array([[1, 2], [3, 4]], np.float32))
    assert rows.tolist() == [[1, 2], [3, 4], [0, 0], [0, 0], [0, 0]]


# The first partition.


def test_the_first_clusters_are_the_planted_ones():
    rng = np.random.default_rng(0)
    planted = np.repeat(np.arange(6), 50)
    rows = (20 * np.eye(6)[planted] + rng.normal(0, 1, (300, 6))).astype(np.float32)
    for seed in range(5):
        found = clusters.first_clusters(rows, np.ones(300, bool), 6, seed)
        assert len({(a, b) for a, b in zip(planted.tolist(), found.tolist(), strict=True)}) == 6


def test_the_first_clusters_leave_out_users_who_take_no_part():
    rows, labels = blobs(3)
    found = clusters.first_clusters(rows, labels >= 0, 5, 0)
    np.testing.assert_array_equal(found < 0, labels < 0)
    assert set(found[labels >= 0].tolist()) == set(range(5))


@pytest.mark.parametrize("n_users", [1, 2, 7])
def test_more_clusters_than_users_or_different_rows(n_users):
    rows = np.random.default_rng(n_users).normal(0, 1, (n_users, 3)).astype(np.float32)
    assert sorted(clusters.first_clusters(rows, np.ones(n_users, bool), 50, 0).tolist()) == list(
        range(n_users)
    )
    equal = np.ones((n_users, 3), np.float32)
    assert clusters.first_clusters(equal, np.ones(n_users, bool), 50, 0).tolist() == [0] * n_users


def test_another_seed_starts_elsewhere():
    rows = np.random.default_rng(1).normal(0, 1, (500, 3)).astype(np.float32)
    found = [
        clusters.first_clusters(rows, np.ones(500, bool), 8, seed).tolist() for seed in (0, 0, 1)
    ]
    assert found[0] == found[1] != found[2]


def draw_in_turns(labels: np.ndarray, m: int, seed: int, t: int) -> np.ndarray:
    """A cohort as in ActvSAMP."""
    return clusters.draw(
        labels, clusters.round_robin(clusters.sizes_of(labels), m, seed, t), seed, t
    )


# Same bits for any number of threads.


def test_the_number_of_threads_changes_nothing(monkeypatch):
    """Enough users that thread counts split them differently; sums depend on the order."""
    n = 12 * clusters.BLOCK + 77
    rows, labels = blobs(5, n, d=3, groups=9)
    wild = (rows * 10 ** np.random.default_rng(0).uniform(-9, 9, (n, 1))).astype(np.float32)
    outcomes = []
    for threads in (1, 2, 5, 13):
        monkeypatch.setenv("COTERIE_THREADS", str(threads))
        new = clusters.kmeans(rows, labels, 9, 4)
        sums, counts = clusters.totals(rows, new, 9)
        moved = rows.copy()
        clusters.move_along(moved, new, labels == 1, sums.astype(np.float32))
        first = clusters.first_clusters(rows, labels >= 0, 4, 1, iterations=2)
        drawn = draw_in_turns(labels, 3000, 0, 8)
        rounded, _ = clusters.totals(wild, labels, 9)
        outcomes.append([a.tobytes() for a in (new, sums, counts, moved, first, drawn, rounded)])
    assert all(outcome == outcomes[0] for outcome in outcomes)


# Draws.


def slow_draw(labels: list[int], m: int, seed: int, t: int) -> list[int]:
    """Every user draws a lot; the lowest lots of a cluster win, as many as its quota."""
    n_clusters = max([0, *labels]) + 1
    members = [[u for u, c in enumerate(labels) if c == wanted] for wanted in range(n_clusters)]
    quotas = clusters.round_robin(np.array([len(group) for group in members], np.int64), m, seed, t)
    lots = streams.keys(seed, "sampling", t, last=np.arange(len(labels)))
    return sorted(
        u
        for group, n in zip(members, quotas, strict=True)
        for u in sorted(group, key=lambda u: int(lots[u]))[:n]
    )


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.integers(-1, 5), min_size=1, max_size=80),
    st.integers(1, 100),
    st.integers(0, 2**63 - 1),
    st.integers(0, 1000),
)
def test_a_draw_equals_its_definition(labels, m, seed, t):
    found = draw_in_turns(np.array(labels, np.int32), m, seed, t)
    assert found.dtype == np.int32
    assert found.tolist() == slow_draw(labels, m, seed, t)


@pytest.mark.parametrize("m", [1, 40, 700, 5000, 19_000])
def test_a_draw_from_many_equals_its_definition(m):
    """With many users, lots above a threshold are never sorted."""
    labels = (
        np.random.default_rng(m)
        .choice(7, 20_000, p=[0.5, 0.3, 0.1, 0.05, 0.03, 0.019, 0.001])
        .astype(np.int32)
    )
    for t in range(3):
        assert draw_in_turns(labels, m, 1, t).tolist() == slow_draw(labels.tolist(), m, 1, t)


def test_a_threshold_that_was_too_low_is_noticed(monkeypatch):
    """Lots are uniform, so it rarely happens; here all lots are high."""
    honest = clusters._lowest

    def unlucky(labels, key, share, quotas):
        return honest(labels, key, share if (share == 1).all() else share * 1e-6, quotas)

    labels = np.random.default_rng(0).integers(0, 3, 5000).astype(np.int32)
    monkeypatch.setattr(clusters, "_lowest", unlucky)
    assert draw_in_turns(labels, 100, 1, 0).tolist() == slow_draw(labels.tolist(), 100, 1, 0)


def test_within_a_cluster_all_users_are_equally_likely():
    """Pearson's statistic for draws without replacement: its sum shrinks by 1 - n / size."""
    labels = np.array([0] * 12 + [1] * 30 + [2] * 5 + [-1] * 3, np.int32)
    rounds = 3000
    m = 21
    counts = np.zeros(len(labels))
    for t in range(rounds):
        counts[draw_in_turns(labels, m, 4, t)] += 1
    assert counts[labels < 0].sum() == 0
    np.testing.assert_array_equal(counts[labels == 2], rounds)  # five of five, every round
    for c, size in ((0, 12), (1, 30)):
        drawn = counts[labels == c]
        share = drawn.sum() / rounds / size
        statistic = (
            ((drawn - drawn.mean()) ** 2).sum() / (rounds * share * (1 - share)) * (size - 1) / size
        )
        assert 1e-4 < chi2.sf(statistic, size - 1) < 1 - 1e-4


def test_rounds_are_drawn_independently():
    """A user of one round is as likely as any other to be in the next."""
    labels = np.zeros(100, np.int32)
    cohorts = [set(draw_in_turns(labels, 20, 0, t).tolist()) for t in range(2000)]
    again = np.mean([len(a & b) for a, b in pairwise(cohorts)])
    assert again == pytest.approx(
        4, abs=5 * 1.6 / np.sqrt(1999)
    )  # 20 * 20 / 100; hypergeometric deviation 1.6


def test_another_seed_or_round_draws_others():
    labels = np.zeros(1000, np.int32)
    drawn = [draw_in_turns(labels, 50, seed, t).tolist() for seed, t in ((0, 0), (0, 1), (1, 0))]
    assert len({tuple(d) for d in drawn}) == 3


def test_a_cluster_smaller_than_its_quota_is_drawn_whole():
    labels = np.array([0, 0, 1, -1, 1, 1], np.int32)
    assert clusters.draw(labels, np.array([5, 3]), 0, 0).tolist() == [0, 1, 2, 4, 5]
    assert len(clusters.draw(labels, np.array([0, 2]), 0, 0)) == 2


def one_cluster(present: np.ndarray, n: int, seed: int, t: int) -> list[int]:
    labels = np.where(present, 0, -1).astype(np.int32)
    return clusters.draw(labels, np.array([n]), seed, t).tolist()


@pytest.mark.parametrize("n", [1, 7, 250, 20_000])
def test_users_without_clusters_are_drawn_as_those_of_one_cluster(n):
    present = np.random.default_rng(3).random(2 * clusters.BLOCK + 5) < 0.7
    for t in range(3):
        drawn = clusters.draw_users(present, n, 5, t)
        assert drawn.dtype == np.int32
        assert drawn.tolist() == one_cluster(present, n, 5, t)
    lots = streams.keys(5, "sampling", 2, last=np.flatnonzero(present))
    lowest = np.flatnonzero(present)[np.argsort(lots)[:n]]
    assert drawn.tolist() == sorted(lowest.tolist())


def test_nobody_is_drawn_where_nobody_is_present():
    assert clusters.draw_users(np.zeros(9, bool), 3, 0, 0).tolist() == []


def test_lots_of_present_users_equal_those_of_the_fallback():
    present = np.random.default_rng(4).random(1000) < 0.5
    drawn = [np.zeros(1000, bool) for _ in range(2)]
    for family, out in zip((kernels.load("clusters"), fallback), drawn, strict=True):
        family.draw_lots_of_present(present, np.uint64(77), np.uint64(1 << 62), 10, 900, out)
    assert drawn[0].tolist() == drawn[1].tolist()
    assert 0.05 < drawn[0].mean() < 0.2
