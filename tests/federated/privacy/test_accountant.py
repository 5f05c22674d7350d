"""Epsilons against closed forms and an independent program; multipliers against epsilons."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, special

from coterie.errors import MissingExtra
from coterie.federated.privacy.accountant import (
    INTEGER_ORDERS,
    default_delta,
    epsilon_spent,
    noise_multiplier,
    sum_multiplier,
)

pytest.importorskip("dp_accounting")

# (noise multiplier, delta, releases, epsilon): `closed_form` with 20,000 orders, refined.
FULL = [
    (0.2, 1e-05, 1, 35.06734),
    (0.3, 1e-05, 1, 20.39150),
    (0.3, 1e-06, 10, 109.04651),
    (0.5, 1e-05, 1, 10.72482),
    (0.5, 1e-06, 10, 51.71940),
    (0.8, 1e-05, 1, 6.12263),
    (0.8, 1e-06, 10, 27.38412),
    (1.0, 1e-05, 1, 4.72839),
    (1.0, 1e-06, 10, 20.55195),
    (1.5, 1e-05, 1, 2.98475),
    (1.5, 1e-06, 10, 12.45346),
    (1.5, 1e-08, 200, 99.95560),
    (2.0, 1e-05, 1, 2.16572),
    (2.0, 1e-06, 10, 8.84589),
    (2.0, 1e-08, 200, 66.41887),
    (3.0, 1e-05, 1, 1.38574),
    (3.0, 1e-06, 10, 5.54276),
    (3.0, 1e-08, 200, 38.49932),
    (5.0, 1e-05, 1, 0.79431),
    (5.0, 1e-06, 10, 3.13106),
    (5.0, 1e-08, 200, 20.24270),
    (10.0, 1e-05, 1, 0.37526),
    (10.0, 1e-06, 10, 1.47159),
    (10.0, 1e-08, 200, 8.97722),
    (30.0, 1e-05, 1, 0.11446),
    (30.0, 1e-06, 10, 0.45471),
    (30.0, 1e-08, 200, 2.68569),
    (100.0, 1e-05, 1, 0.03082),
    (100.0, 1e-06, 10, 0.12656),
    (100.0, 1e-08, 200, 0.75233),
]
# (noise multiplier, delta, releases, sampling, epsilon): `binomial_sum` with 40 digits.
SAMPLED = [
    (0.6, 1e-05, 100, 0.01, 5.2317856),
    (0.8, 1e-05, 1000, 0.01, 3.7252402),
    (1.0, 1e-05, 1000, 0.01, 2.1077531),
    (1.0, 1e-06, 100, 0.1, 9.1242141),
    (1.5, 1e-05, 500, 0.05, 4.1703177),
    (2.0, 1e-05, 200, 0.1, 3.6797458),
    (2.0, 1e-08, 50, 0.5, 13.258857),
    (4.0, 1e-05, 1000, 0.02, 0.63717367),
    (4.0, 1e-06, 20, 0.9, 5.3417802),
    (10.0, 1e-05, 100, 0.2, 0.81007639),
    (20.0, 1e-05, 10000, 0.01, 0.17785025),
    (1.0, 1e-05, 1, 0.001, 0.60877282),
]


def from_divergence(divergence: float, order: float, delta: float) -> float:
    """Canonne, Kamath, Steinke 2020, Proposition 12; Balle et al. 2020, Theorem 21."""
    return divergence + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)


def closed_form(z: float, delta: float, releases: int) -> float:
    """The divergence of the Gaussian, alpha / (2 z^2), at the best real order."""

    def at(log_order: float) -> float:
        order = 1 + math.exp(log_order)
        return from_divergence(releases * order / (2 * z * z), order, delta)

    grid = np.linspace(-6, 12, 2001)
    best = int(np.argmin([at(each) for each in grid]))
    bounds = (grid[best - 1], grid[best + 1])
    return float(optimize.minimize_scalar(at, bounds=bounds, method="bounded").fun)


def binomial_sum(z: float, delta: float, releases: int, sampling: float, order: int) -> float:
    """Mironov, Talwar, Zhang 2019, Section 3.3: the sampled Gaussian at an integer order."""
    mpmath = pytest.importorskip("mpmath")
    q = mpmath.mpf(sampling)
    moment = mpmath.fsum(
        mpmath.binomial(order, i)
        * (1 - q) ** (order - i)
        * q**i
        * mpmath.exp(i * (i - 1) / (2 * mpmath.mpf(z) ** 2))
        for i in range(order + 1)
    )
    divergence = releases * mpmath.log(moment) / (order - 1)
    return from_divergence(float(divergence), order, delta)


def exact_gaussian(z: float, delta: float) -> float:
    """Balle and Wang 2018, Theorem 8: no bound for the Gaussian can be lower."""

    def excess(epsilon: float) -> float:
        first = special.log_ndtr(1 / (2 * z) - epsilon * z)
        second = epsilon + special.log_ndtr(-1 / (2 * z) - epsilon * z)
        return math.exp(first) - math.exp(second) - delta

    return float(optimize.brentq(excess, 0, 1000))


# Epsilons


@pytest.mark.parametrize(("z", "delta", "releases", "expected"), FULL)
def test_epsilon_of_all_users(z, delta, releases, expected):
    spent = epsilon_spent(noise_multiplier=z, delta=delta, releases=releases)
    assert spent == pytest.approx(expected, abs=1e-3)
    assert closed_form(z, delta, releases) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(("z", "delta", "releases", "sampling", "expected"), SAMPLED)
def test_epsilon_of_sampled_users(z, delta, releases, sampling, expected):
    spent = epsilon_spent(noise_multiplier=z, delta=delta, releases=releases, sampling=sampling)
    assert spent == pytest.approx(expected, abs=1e-3)


def test_frozen_epsilons_of_sampled_users_are_binomial_sums():
    z, delta, releases, sampling, expected = SAMPLED[2]
    orders = [order for order in INTEGER_ORDERS if order < 40]
    best = min(binomial_sum(z, delta, releases, sampling, order) for order in orders)
    assert best == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("z", "delta", "releases", "expected"), FULL)
def test_epsilon_is_never_below_the_exact_one(z, delta, releases, expected):
    exact = exact_gaussian(z / math.sqrt(releases), delta)
    spent = epsilon_spent(noise_multiplier=z, delta=delta, releases=releases)
    assert exact < spent < 1.2 * exact + 0.01


def test_orders_of_sampled_users_are_integers():
    """At other orders the bound for the continuous Gaussian need not hold for integer noise."""
    assert all(isinstance(order, int) for order in INTEGER_ORDERS)
    assert sorted(set(INTEGER_ORDERS)) == INTEGER_ORDERS


def divergence_of_sampled_integers(z: float, sampling: float, order: int) -> tuple[float, float]:
    """Both Rényi divergences of a sampled discrete Gaussian, shifted by 1, in 40 standard widths.

    Added one by one, without a theorem.
    """
    y = np.arange(-int(40 * z) - 40, int(40 * z) + 41)
    log_p = -0.5 * (y / z) ** 2
    log_p -= special.logsumexp(log_p)
    log_shifted = -0.5 * ((y - 1) / z) ** 2
    log_shifted -= special.logsumexp(log_shifted)
    mixed = np.logaddexp(math.log1p(-sampling) + log_p, math.log(sampling) + log_shifted)
    there = special.logsumexp(order * mixed + (1 - order) * log_p)
    back = special.logsumexp(order * log_p + (1 - order) * mixed)
    return float(there) / (order - 1), float(back) / (order - 1)


@pytest.mark.parametrize("z", [0.4, 0.7, 1.0, 3.0])
@pytest.mark.parametrize("sampling", [0.01, 0.3, 0.9])
def test_integer_noise_spends_no_more_than_is_accounted(z, sampling):
    for order in (2, 3, 5, 9):
        divergence = max(divergence_of_sampled_integers(z, sampling, order))
        bound = binomial_sum(z, 1e-5, 1, sampling, order)
        assert from_divergence(divergence, order, 1e-5) <= bound + 1e-9


noise = st.floats(0.3, 30.0)
deltas = st.floats(1e-9, 0.1)
counts = st.integers(1, 1000)


@settings(deadline=None, max_examples=30)
@given(noise, deltas, counts, st.floats(1.01, 3.0))
def test_epsilon_falls_with_noise_and_delta_and_grows_with_releases(z, delta, releases, by):
    def spent(z: float, delta: float, releases: int) -> float:
        return epsilon_spent(noise_multiplier=z, delta=delta, releases=releases)

    here = spent(z, delta, releases)
    assert spent(z * by, delta, releases) <= here
    assert spent(z, delta * by, releases) <= here
    assert spent(z, delta, releases + 1) >= here


@pytest.mark.slow
@settings(deadline=None, max_examples=8)
@given(noise, deltas, counts, st.floats(0.001, 0.9), st.floats(1.01, 3.0))
def test_the_same_holds_for_sampled_users(z, delta, releases, sampling, by):
    def spent(z: float, delta: float, releases: int, sampling: float) -> float:
        return epsilon_spent(noise_multiplier=z, delta=delta, releases=releases, sampling=sampling)

    here = spent(z, delta, releases, sampling)
    assert spent(z * by, delta, releases, sampling) <= here + 1e-9
    assert spent(z, delta * by, releases, sampling) <= here + 1e-9
    assert spent(z, delta, releases + 1, sampling) >= here - 1e-9
    assert spent(z, delta, releases, 1.0) >= here


# Multipliers


def is_tight(epsilon: float, delta: float, releases: int, sampling: float = 1.0) -> bool:
    """Whether the multiplier spends at most epsilon, and one that is 1e-4 smaller more."""

    def spent(z: float) -> float:
        return epsilon_spent(noise_multiplier=z, delta=delta, releases=releases, sampling=sampling)

    z = noise_multiplier(epsilon=epsilon, delta=delta, releases=releases, sampling=sampling)
    return spent(z) <= epsilon < spent(z * (1 - 1e-4))


@settings(deadline=None, max_examples=12)
@given(st.floats(0.01, 100.0), deltas, counts)
def test_the_multiplier_inverts_epsilon(epsilon, delta, releases):
    assert is_tight(epsilon, delta, releases)


@pytest.mark.slow
@pytest.mark.parametrize("sampling", [0.02, 0.5])
def test_the_multiplier_inverts_epsilon_of_sampled_users(sampling):
    assert is_tight(3.0, 1e-5, 100, sampling)


@pytest.mark.parametrize("epsilon", [1e-3, 1e3])
def test_extreme_epsilons_have_a_multiplier(epsilon):
    assert is_tight(epsilon, 1e-6, 10)


@pytest.mark.parametrize(
    ("epsilon", "exact", "ours"), [(1, 3.731, 4.045), (5, 0.892, 0.953), (20, 0.290, 0.305)]
)
def test_multipliers_of_the_module_docstring(epsilon, exact, ours):
    assert exact_gaussian(exact, 1e-5) == pytest.approx(epsilon, rel=2e-3)
    z = noise_multiplier(epsilon=epsilon, delta=1e-5, releases=1)
    assert z == pytest.approx(ours, abs=6e-4)


@settings(deadline=None, max_examples=200)
@given(
    st.integers(1, 10**6),
    st.floats(0.5, 1000.0),
    st.floats(0.01, 1000.0),
    st.integers(1, 10**7),
)
def test_a_sum_is_worth_at_most_a_gaussian(n_shares, sigma, sensitivity, dimension):
    limit = math.sqrt(n_shares) * sigma / sensitivity
    found = sum_multiplier(
        n_shares=n_shares, sigma=sigma, sensitivity=sensitivity, dimension=dimension
    )
    assert 0 < found <= limit * (1 + 1e-12)
    if sigma > 4:
        assert found > limit * (1 - 1e-9)


def test_one_share_is_a_gaussian():
    found = sum_multiplier(n_shares=1, sigma=0.5, sensitivity=2.0, dimension=10**6)
    assert found == pytest.approx(0.25, rel=1e-12)


@pytest.mark.parametrize(("n_shares", "sigma"), [(2, 0.5), (7, 1.0), (1500, 1.0), (30_000, 0.7)])
def test_a_sum_is_worth_what_the_paper_proves(n_shares, sigma):
    tau = 10 * sum(math.exp(-2 * math.pi**2 * sigma**2 * k / (k + 1)) for k in range(1, n_shares))
    first = math.sqrt(9 / (n_shares * sigma**2) + tau * 40 / 2)
    second = 3 / (math.sqrt(n_shares) * sigma) + tau * math.sqrt(40)
    found = sum_multiplier(n_shares=n_shares, sigma=sigma, sensitivity=3.0, dimension=40)
    # Terms beyond the first thousand are bounded from above: never more, hardly less.
    assert found <= 1 / min(first, second) * (1 + 1e-12)
    assert found == pytest.approx(1 / min(first, second), rel=0.02)


def test_default_delta_falls_with_the_number_of_users():
    assert default_delta(1) == 1e-5
    assert default_delta(10_000) == 1e-5
    assert default_delta(10**6) == pytest.approx(10**-6.6)


# Wrong arguments


def spend(**changes: float) -> float:
    arguments = {"noise_multiplier": 1.0, "delta": 1e-5, "releases": 1, "sampling": 1.0}
    return epsilon_spent(**arguments | changes)


def calibrate(**changes: float) -> float:
    arguments = {"epsilon": 1.0, "delta": 1e-5, "releases": 1, "sampling": 1.0}
    return noise_multiplier(**arguments | changes)


def add_up(**changes: float) -> float:
    arguments = {"n_shares": 5, "sigma": 1.0, "sensitivity": 1.0, "dimension": 3}
    return sum_multiplier(**arguments | changes)


@pytest.mark.parametrize(
    ("function", "name", "value", "rule"),
    [
        (spend, "noise_multiplier", 0.0, "finite number above 0"),
        (spend, "noise_multiplier", math.inf, "finite number above 0"),
        (spend, "noise_multiplier", math.nan, "finite number above 0"),
        (spend, "delta", 0.0, "above 0 and below 1"),
        (spend, "delta", 1.0, "above 0 and below 1"),
        (spend, "delta", math.nan, "above 0 and below 1"),
        (spend, "releases", 0, "integer from 1 on"),
        (spend, "sampling", 0.0, "above 0 and at most 1"),
        (spend, "sampling", 1.5, "above 0 and at most 1"),
        (calibrate, "epsilon", 0.0, "from 0.001 to 1000"),
        (calibrate, "epsilon", 1e-9, "from 0.001 to 1000"),
        (calibrate, "epsilon", math.inf, "from 0.001 to 1000"),
        (calibrate, "epsilon", math.nan, "from 0.001 to 1000"),
        (calibrate, "delta", -0.1, "above 0 and below 1"),
        (calibrate, "releases", 0, "integer from 1 on"),
        (calibrate, "sampling", 2.0, "above 0 and at most 1"),
        (add_up, "n_shares", 0, "integer from 1 on"),
        (add_up, "sigma", 0.49, "finite number from 0.5 on"),
        (add_up, "sigma", math.nan, "finite number from 0.5 on"),
        (add_up, "sensitivity", 0.0, "finite number above 0"),
        (add_up, "dimension", 0, "integer from 1 on"),
    ],
)
def test_wrong_arguments_are_refused(
    function: Callable[..., float], name: str, value: float, rule: str
):
    with pytest.raises(ValueError, match=f"^{name} is {value}; it must be .*{rule}"):
        function(**{name: value})


def test_no_users_have_no_delta():
    with pytest.raises(ValueError, match="n_users is 0; it must be an integer from 1 on"):
        default_delta(0)


def test_the_accountant_names_the_missing_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    monkeypatch.setitem(sys.modules, "dp_accounting.rdp", None)
    with pytest.raises(MissingExtra, match=r"coterie\[privacy\]"):
        spend()
