"""FedEASE and popular under a privacy budget: sensitivity, noise, and what is left of the sums."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_federation import histories, play_locally, world_for

pytest.importorskip("dp_accounting")

from coterie import api
from coterie.algorithms import pair_sums, private_pairs, registry
from coterie.algorithms.local.cooccurrence import n_pairs
from coterie.algorithms.private_pairs import NoisySums, Scales
from coterie.baselines.popular import private_counts
from coterie.errors import ConfigError
from coterie.federated.privacy.plan import NoisePlan, plan_for
from coterie.types import Longs, Rows

MOST_ITEMS = 40
BUDGET: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-5}


def rows_of(*lists: list[int]) -> Rows:
    users = np.repeat(np.arange(len(lists)), [len(one) for one in lists]).astype(np.int32)
    items = np.array([item for one in lists for item in one], np.int32)
    return Rows.build(users, items, len(lists))


def norm(sums: dict[str, Longs]) -> float:
    """Of all sums as one vector, in exact integers."""
    return math.sqrt(sum(int(value) ** 2 for part in sums.values() for value in part.ravel()))


def plan_with(sensitivity: float) -> NoisePlan:
    return NoisePlan(
        epsilon=1.0,
        delta=1e-5,
        releases=1,
        multiplier=(1 << 20) / sensitivity,
        log2_sigma=20,
    )


# Sensitivity


@settings(deadline=None)
@given(
    length=st.integers(0, MOST_ITEMS),
    sensitivity=st.floats(1.0, 4e6),
    exponent=st.floats(0.5, 1.0),
    n_users=st.integers(1, 10_000),
)
def test_no_history_adds_more_than_the_sensitivity(length, sensitivity, exponent, n_users):
    scale = private_pairs.scales(plan_with(sensitivity), n_users, MOST_ITEMS)
    history = rows_of(list(range(length)))
    sums = private_pairs.private_sums(history, MOST_ITEMS, exponent, scale)
    assert norm(sums) <= sensitivity


def test_the_bound_is_reached():
    """A bound that no history comes near would waste the budget."""
    plan = plan_with(1e6)
    scale = private_pairs.scales(plan, 100, MOST_ITEMS)
    for length in (1, 2, 7, MOST_ITEMS):
        sums = private_pairs.private_sums(rows_of(list(range(length))), MOST_ITEMS, 0.5, scale)
        assert norm(sums) > 0.999 * plan.sensitivity


@settings(deadline=None, max_examples=40)
@given(
    lists=st.lists(
        st.lists(st.integers(0, MOST_ITEMS - 1), unique=True, max_size=MOST_ITEMS), min_size=2
    ),
    sensitivity=st.floats(100.0, 4e6),
)
def test_neighbours_differ_by_at_most_the_sensitivity(lists, sensitivity):
    """Remove any one user: empty ones, long ones and twins included."""
    scale = private_pairs.scales(plan_with(sensitivity), len(lists), MOST_ITEMS)
    whole = private_pairs.private_sums(rows_of(*lists), MOST_ITEMS, 0.5, scale)
    for left_out in range(len(lists)):
        others = [one for k, one in enumerate(lists) if k != left_out]
        less = private_pairs.private_sums(rows_of(*others), MOST_ITEMS, 0.5, scale)
        assert norm({name: whole[name] - less[name] for name in whole}) <= sensitivity


@settings(deadline=None)
@given(length=st.integers(0, 5000), sensitivity=st.floats(1.0, 4e6))
def test_popular_counts_no_user_more_than_the_sensitivity(length, sensitivity):
    counts = private_counts(rows_of(list(range(length))), 5000, plan_with(sensitivity))
    assert norm({"counts": counts}) <= sensitivity


# What clients send


def test_pairs_and_items_by_hand():
    sums = private_pairs.private_sums(rows_of([0, 2], [2]), 3, 0.5, Scales(pairs=1000, items=100))
    # Two items: 1000 / 2 for the pair, 500 / sqrt 2 = 353 on the diagonal. One item: 707.
    assert sums["pairs"].tolist() == [353, 0, 500, 0, 0, 353 + 707]
    # 100 / sqrt 2 = 70, and 100.
    assert sums["items"].tolist() == [70, 0, 170]


def test_diagonal_places():
    places = private_pairs.diagonal_places(4)
    assert places.tolist() == [0, 4, 7, 9]
    assert places[-1] == n_pairs(4) - 1


def test_secure_aggregation_has_the_same_bits_and_central_noise_is_seeded():
    pytest.importorskip("cryptography")
    training = histories(3, n_users=30)
    once: dict[str, Any] = {"rounds": 1, "participation": 1.0, **BUDGET}
    plain = play_locally("fedease", training, **once)[0][-1]
    masked = {"secure_aggregation": "secagg", "colluders": 0}
    secure = play_locally("fedease", training, **once, **masked)[0][-1]
    other = play_locally("fedease", training, seed=1, **once)[0][-1]
    assert (plain.pairs == secure.pairs).all()
    assert (plain.items == secure.items).all()
    assert (plain.pairs != other.pairs).any()


# What is left of the sums


def spiked(m: int, eigenvalues: list[float], noise: float, seed: int = 0) -> NoisySums:
    rng = np.random.default_rng(seed)
    popularity = rng.pareto(1.5, m) + 0.1
    vectors, _ = np.linalg.qr(np.column_stack([popularity, rng.normal(size=(m, len(eigenvalues)))]))
    G = (vectors[:, : len(eigenvalues)] * eigenvalues) @ vectors[:, : len(eigenvalues)].T
    W = rng.normal(size=(m, m)) * noise
    return NoisySums(G + (W + W.T) / math.sqrt(2), noise, popularity)


def test_cleaned_eigenvalues_are_the_best_for_their_vectors():
    """Of a noisy eigenvector u the best value is u^T G u, which needs G without noise."""
    m = 400
    rng = np.random.default_rng(0)
    vectors, _ = np.linalg.qr(rng.normal(size=(m, m)))
    G = (vectors * np.append(rng.exponential(5.0, m - 3), [40.0, 60, 90])) @ vectors.T
    W = rng.normal(size=(m, m)) / math.sqrt(2)
    values, noisy_vectors = np.linalg.eigh(G + 0.5 * (W + W.T))
    best = np.einsum("ij,ij->j", noisy_vectors, G @ noisy_vectors)
    cleaned = private_pairs.cleaned_eigenvalues(values, 0.5)
    assert cleaned[-3:] == pytest.approx(best[-3:], rel=0.05)
    assert np.std(cleaned - best) < 0.1 * np.std(values - best)


def test_noise_alone_leaves_one_eigenvalue():
    W = np.random.default_rng(1).normal(size=(600, 600)) / math.sqrt(2)
    values = np.linalg.eigvalsh(7 * np.eye(600) + W + W.T)
    cleaned = private_pairs.cleaned_eigenvalues(values, 1.0)
    assert np.std(values) == pytest.approx(math.sqrt(600), rel=0.05)
    assert np.std(cleaned) < 0.1 * math.sqrt(600)
    assert cleaned.mean() == pytest.approx(7, rel=0.1)


def test_without_noise_the_inverse_is_that_of_the_matrix():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 20))
    noisy = NoisySums(rows.T @ rows, 1e-9, rng.random(20))
    ridge = np.trace(noisy.G) / 20
    expected = np.linalg.inv(noisy.G + ridge * np.eye(20))
    assert private_pairs.inverse(noisy, 1.0) == pytest.approx(expected, rel=1e-4, abs=1e-7)


def test_weights_are_those_of_the_closed_form():
    noisy = spiked(50, [90.0, 30.0, 20.0], noise=0.5)
    P = private_pairs.inverse(noisy, 2.0)
    assert np.linalg.eigvalsh(P).min() > 0
    expected = -P / np.diag(P)
    np.fill_diagonal(expected, 0)
    assert private_pairs.item_weights(noisy, reg=6.0) == pytest.approx(expected, abs=1e-6)


def test_weights_by_a_gpu():
    torch = pytest.importorskip("torch", reason="PyTorch (the extra 'neural') is not installed")
    noisy = spiked(50, [90.0, 30.0, 20.0], noise=0.5)
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match=r"'device' is 'cuda', but PyTorch finds no GPU"):
            private_pairs.item_weights(noisy, 6.0, "cuda")
        return
    one, other = (private_pairs.item_weights(noisy, 6.0, "cuda") for _ in range(2))
    assert one.tobytes() == other.tobytes()
    assert one == pytest.approx(private_pairs.item_weights(noisy, 6.0), abs=1e-5)


@settings(deadline=None)
@given(seed=st.integers(0, 1000), noise=st.floats(0.01, 100.0))
def test_the_inverse_is_positive_definite_whatever_the_noise(seed, noise):
    P = private_pairs.inverse(spiked(30, [10.0, 3.0], noise, seed), 1.0)
    assert np.linalg.eigvalsh((P + P.T) / 2).min() > 0
    assert pytest.approx(P.T, rel=1e-4, abs=1e-6 / noise) == P


def test_where_noise_is_large_users_get_popular_items():
    """G is popularity, and the largest eigenvalue of noise is 3.5 times as large."""
    noisy = spiked(300, [10.0], noise=1.0)
    B = private_pairs.item_weights(noisy, reg=3.0)
    probabilities = noisy.popularity / noisy.popularity.sum()
    rng = np.random.default_rng(0)
    shared = []
    for _ in range(50):
        history = rng.choice(300, 20, replace=False, p=probabilities)
        shared.append(len(top_ten(B[history].sum(0), history) & top_ten(probabilities, history)))
    assert np.mean(shared) > 5.5  # of 10; of two random lists 0.36


def top_ten(scores, without) -> set[int]:
    scores = scores.copy()
    scores[without] = -np.inf
    return set(np.argsort(-scores)[:10].tolist())


def test_entries_are_shrunk_towards_zero_where_noise_is_larger():
    rng = np.random.default_rng(0)
    scale = np.sort(rng.pareto(1.0, 2000) + 0.01)[::-1]
    scale /= np.linalg.norm(scale)
    truth = rng.normal(size=2000) * scale * 100
    noisy = truth + rng.normal(size=2000)
    found = private_pairs.shrunk(noisy, scale, noise=1.0)
    assert np.sum((found - truth) ** 2) < 0.3 * np.sum((noisy - truth) ** 2)
    assert found[0] == pytest.approx(noisy[0], rel=0.05)
    assert not private_pairs.shrunk(rng.normal(size=2000), scale, noise=1.0).any()


# Settings


def test_a_small_exponent_is_refused():
    with pytest.raises(ConfigError, match=r"length_exponent.*0\.5 or more"):
        api.run("fedease", epsilon=1.0, length_exponent=0.25)


def test_tuned_settings_are_not_used():
    """They were found on the users' own data."""
    from coterie.experiments.config import Experiment

    values = {"algorithm": "fedease", "dataset": "ml-100k"}
    assert Experiment.of(values).tuned
    private = Experiment.of(values | {"epsilon": 1.0})
    assert not private.tuned
    assert private.settings.length_exponent == 0.5


def test_the_plan_follows_from_the_budget():
    world = world_for("fedease", histories(0), **BUDGET)
    plan = plan_for(world, pair_sums.PRIVATE_SUM)
    assert plan is not None
    assert plan.releases == 1
    assert plan.sigma / plan.sensitivity == pytest.approx(plan.multiplier)
    assert registry.algorithm("fedease").kernels_for(world.settings)[-1] == "discrete_gaussian"
