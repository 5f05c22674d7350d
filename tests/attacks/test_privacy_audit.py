"""The audit: claims that hold are not refuted, and broken mechanisms are caught."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import norm
from small_federation import histories, world_for

pytest.importorskip("dp_accounting")
pytest.importorskip("cryptography")

from coterie.algorithms import private_pairs, registry
from coterie.attacks import gaussian_dp, privacy_audit
from coterie.attacks.privacy_audit import (
    Finding,
    audit,
    sums_of_federation,
    sums_of_popular,
)
from coterie.baselines.popular import Popular
from coterie.core.progress import SILENT
from coterie.federated.federation import Federation
from coterie.federated.privacy import clipping, noise
from coterie.types import Updates

PRIVATE: dict[str, dict[str, Any]] = {
    "fedease": {"rounds": 1, "participation": 1.0},
    "fedals": {"rounds": 2, "participation": 1.0},
    "fcf": {"rounds": 3, "participation": 1.0, "clip": 0.05},
    "pfpl": {"epochs": 2, "rounds_an_epoch": 2, "clip": 0.001},
}
MASKED = {"secure_aggregation": "secagg", "colluders": 0, "noise_margin": 0.1}


def findings(name: str, **changes: Any) -> tuple[list[Finding], list[Finding]]:
    """With the mechanism, and the controls without noise."""
    training = histories(1, 30, 40)
    given = PRIVATE[name] | {"epsilon": 3.0, "delta": 1e-5} | changes
    world = world_for(name, training, **given)
    federation = registry.algorithm(name).train
    assert isinstance(federation, Federation)
    found = audit(sums_of_federation(federation, world, training), world.n_items, SILENT)
    return [f for f in found if f.noise != "none"], [f for f in found if f.noise == "none"]


@pytest.mark.parametrize("name", PRIVATE)
@pytest.mark.parametrize(
    "epsilon",
    [pytest.param(0.5, marks=pytest.mark.long), 3.0, pytest.param(20.0, marks=pytest.mark.long)],
)
def test_claims_are_not_refuted_and_controls_leak(name, epsilon):
    private, controls = findings(name, epsilon=epsilon)
    assert not any(finding.refutes for finding in private)
    assert all(0 <= finding.length <= 1 for finding in private)
    assert max(finding.epsilon for finding in controls) > 3


@pytest.mark.parametrize("who", ["distributed", "local"])
def test_noise_of_clients(who):
    private, controls = findings("fedease", noise=who, **MASKED)
    assert not any(finding.refutes for finding in private)
    assert {finding.noise for finding in private} == {who}
    assert min(finding.epsilon for finding in controls) > 3


@pytest.mark.long
def test_the_bound_is_close_to_the_claim():
    """An attack that finds nothing would not find mistakes either."""
    private, _ = findings("fedease")
    assert max(finding.epsilon for finding in private) > 0.7 * 3.0


def test_popular(monkeypatch):
    sums = sums_of_popular(Popular(epsilon=3.0, delta=1e-5), histories(1, 30, 40))
    private, control = audit(sums, 40, SILENT)[:2]
    assert not private.refutes
    assert control.epsilon > 3
    drawn = noise.discrete_gaussian
    monkeypatch.setattr(
        noise, "discrete_gaussian", lambda size, k, words: drawn(size, k - 1, words)
    )
    assert audit(sums, 40, SILENT)[0].refutes


@pytest.mark.parametrize("name", ["fedease", "fedals", "fcf"])
def test_half_the_noise_is_caught(name, monkeypatch):
    drawn = noise.discrete_gaussian
    monkeypatch.setattr(
        noise, "discrete_gaussian", lambda size, k, words: drawn(size, k - 1, words)
    )
    private, _ = findings(name)
    assert any(finding.refutes for finding in private)


@pytest.mark.long
def test_half_a_share_of_noise_is_caught(monkeypatch):
    drawn = noise.discrete_gaussian
    monkeypatch.setattr(
        noise, "discrete_gaussian", lambda size, k, words: drawn(size, k - 1, words)
    )
    private, _ = findings("fedease", noise="distributed", **MASKED)
    assert any(finding.refutes for finding in private)


def test_skipped_clipping_is_caught(monkeypatch):
    def not_clipped(updates: Updates, longest: float, sensitivity: float) -> Updates:
        loose = 100.0 * longest
        return clipping_of_now(updates, loose, 100.0 * sensitivity)

    clipping_of_now = clipping.clip
    monkeypatch.setattr(clipping, "clip", not_clipped)
    private, _ = findings("fcf")
    assert any(finding.refutes and finding.length > 1 for finding in private)


def test_histories_that_are_not_divided_by_their_length_are_caught(monkeypatch):
    monkeypatch.setattr(
        private_pairs, "item_weights_of_users", lambda counts, scale: np.full(len(counts), scale)
    )
    private, _ = findings("fedease")
    assert any(finding.refutes for finding in private)


@pytest.mark.long
def test_poisson_sampling_is_accounted_for():
    private, controls = findings("fcf", sampling="poisson", participation=0.2, rounds=20, clip=0.05)
    assert not any(finding.refutes for finding in private)
    assert max(finding.epsilon for finding in controls) > 3


# Errors and what they show


def test_mu_of_known_rates():
    """Exactly the errors of N(0, 1) against N(1.5, 1) at the midpoint, with many draws."""
    draws = 1_000_000
    errors = round(draws * float(norm.cdf(-0.75)))
    assert gaussian_dp.mu_lower_bound(errors, errors, draws, 0.99) == pytest.approx(1.5, abs=0.01)
    assert gaussian_dp.mu_lower_bound(errors, errors, draws, 0.99) < 1.5


@pytest.mark.parametrize(
    ("mu", "delta", "epsilon"),
    # Gaussian noise of 1 / mu times the sensitivity (Balle and Wang 2018).
    [(1 / 3.7306, 1e-5, 1.0), (1 / 0.8924, 1e-5, 5.0), (1 / 0.2900, 1e-5, 20.0)],
)
def test_epsilon_of_mu(mu, delta, epsilon):
    assert gaussian_dp.epsilon_of(mu, delta) == pytest.approx(epsilon, rel=2e-3)


def test_nothing_is_shown_by_a_guess():
    assert gaussian_dp.mu_lower_bound(5000, 5000, 10_000, 0.99) == 0
    assert gaussian_dp.mu_lower_bound(10_000, 0, 10_000, 0.99) == 0
    assert gaussian_dp.epsilon_of(0.0, 1e-5) == 0


def test_the_confidence_is_that_of_the_bound():
    """Of 300 audits of N(0, 1) against N(1, 1), at most a few bounds are above 1."""
    rng = np.random.default_rng(0)
    draws = 1000
    above = 0
    for _ in range(300):
        positives = int((rng.normal(size=draws) > 0.5).sum())
        negatives = int((rng.normal(1, 1, draws) <= 0.5).sum())
        above += gaussian_dp.mu_lower_bound(positives, negatives, draws, 0.95) > 1
    assert above <= 20


def test_canaries_of_a_small_catalogue():
    assert [len(items) for items in privacy_audit.canaries(5).values()] == [1, 5, 5]
