"""The epsilon that noise spends, and the noise that an epsilon needs.

All noise is integer. A vector of discrete Gaussians, shifted by integers of L2 norm D, has the
Rényi divergence alpha D^2 / (2 sigma^2) at most, like the continuous Gaussian (Canonne, Kamath,
Steinke 2020). Its (epsilon, delta) curve is another one. So epsilon comes from the Rényi
divergence, converted by Google's `dp_accounting` (Proposition 12 of the same paper), and not from
the exact curve of the continuous Gaussian. That takes more noise, at delta = 1e-5 and in multiples
of the sensitivity:

    epsilon                                       1       5      20
    exact curve of the continuous Gaussian    3.731   0.892   0.290
    Rényi divergence                          4.045   0.953   0.305

Two datasets are neighbours if one has the data of one user more. Poisson sampling, where every user
takes part independently, spends less (Mironov, Talwar, Zhang 2019). At an integer order the
moment of a sampled release is a sum of moments without sampling, with positive coefficients, so the
bound for the continuous Gaussian holds for integer noise too. At other orders it need not, so
releases with sampling are accounted at integer orders.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from coterie.errors import MissingExtra

if TYPE_CHECKING:
    from types import ModuleType

MIN_EPSILON = 1e-3
MAX_EPSILON = 1e3
TOLERANCE = 1e-4
"""How far a noise multiplier may be above the smallest, relative to it."""
REAL_ORDERS = [1 + 0.0125 * 1.01**n for n in range(1600)]
"""Orders up to 10^5, dense enough for a relative error of epsilon of 2e-5."""
INTEGER_ORDERS = [*range(2, 64), *(round(64 * 1.08**n) for n in range(37))]
"""Orders up to 1022. The time for an order is proportional to it."""
MIN_SIGMA = 0.5
"""The theorem on sums of discrete Gaussians holds from here on."""
EXACT_TERMS = 1000
"""Terms of a sum that are added one by one. The others are bounded."""


def epsilon_spent(
    *, noise_multiplier: float, delta: float, releases: int, sampling: float = 1.0
) -> float:
    """The epsilon after some releases, each with noise of sigma = multiplier * sensitivity.

    `sampling` is the probability with which each user takes part in a release.
    """
    _check_positive("noise_multiplier", noise_multiplier)
    _check_release(delta, releases, sampling)
    # Divergences add up: n releases are one with noise divided by the root of n.
    full = _epsilon(noise_multiplier / math.sqrt(releases), delta)
    if sampling == 1.0:
        return full
    # Sampling never spends more, but its bound has fewer orders.
    return min(full, _epsilon_with_sampling(noise_multiplier, delta, releases, sampling))


def noise_multiplier(
    *, epsilon: float, delta: float, releases: int, sampling: float = 1.0
) -> float:
    """The smallest noise that spends at most epsilon. It may be larger by TOLERANCE."""
    from scipy import optimize

    if not MIN_EPSILON <= epsilon <= MAX_EPSILON:
        raise ValueError(
            f"epsilon is {epsilon}; it must be a number from {MIN_EPSILON} to {MAX_EPSILON:.0f}"
        )
    _check_release(delta, releases, sampling)

    def excess(log_multiplier: float) -> float:
        spent = epsilon_spent(
            noise_multiplier=math.exp(log_multiplier),
            delta=delta,
            releases=releases,
            sampling=sampling,
        )
        # Epsilon is nearly a power of the multiplier: in logarithms the search is short.
        return math.log(max(spent, MIN_EPSILON / 2) / epsilon)

    low = high = math.log(releases) / 2
    while excess(high) > 0:
        high += 1
    while excess(low) <= 0:
        low -= 1
    found = float(optimize.brentq(excess, low, high, xtol=TOLERANCE / 4))
    while excess(found) > 0:
        found += TOLERANCE / 4
    return math.exp(found)


def sum_multiplier(*, n_shares: int, sigma: float, sensitivity: float, dimension: int) -> float:
    """The noise multiplier of a sum of discrete Gaussians of parameter sigma, one of each client.

    The sum is no discrete Gaussian, but is close to one: Kairouz, Liu, Steinke, "The distributed
    discrete Gaussian mechanism", 2021, Theorem 1. With an integer shift of L2 norm D it has the
    Rényi divergence alpha epsilon^2 / 2 at most, as a Gaussian of multiplier 1 / epsilon.
    """
    _check_count("n_shares", n_shares)
    if not MIN_SIGMA <= sigma < math.inf:
        raise ValueError(f"sigma is {sigma}; it must be a finite number from {MIN_SIGMA} on")
    _check_positive("sensitivity", sensitivity)
    _check_count("dimension", dimension)
    ratio = sensitivity / (math.sqrt(n_shares) * sigma)
    tau = _distance(n_shares, sigma)
    epsilon = min(
        math.sqrt(ratio**2 + tau * dimension / 2),
        ratio + tau * math.sqrt(dimension),
    )
    return 1 / epsilon


def default_delta(n_users: int) -> float:
    """Below one in the number of users, and at most 1e-5."""
    _check_count("n_users", n_users)
    return min(1e-5, math.pow(n_users, -1.1))


def _epsilon(multiplier: float, delta: float) -> float:
    """The epsilon of one release with all users."""
    dp = _dp_accounting()
    accountant = dp.rdp.RdpAccountant(REAL_ORDERS)
    accountant.compose(dp.GaussianDpEvent(multiplier))
    return float(accountant.get_epsilon(delta))


def _epsilon_with_sampling(
    multiplier: float, delta: float, releases: int, sampling: float
) -> float:
    dp = _dp_accounting()
    accountant = dp.rdp.RdpAccountant(INTEGER_ORDERS)
    release = dp.PoissonSampledDpEvent(sampling, dp.GaussianDpEvent(multiplier))
    accountant.compose(release, releases)
    return float(accountant.get_epsilon(delta))


def _distance(n_shares: int, sigma: float) -> float:
    """tau of the paper: 10 times the sum of exp(-2 pi^2 sigma^2 k / (k + 1)) for k < n_shares."""

    def term(k: int) -> float:
        return math.exp(-2 * math.pi**2 * sigma**2 * k / (k + 1))

    last = min(n_shares - 1, EXACT_TERMS)
    # Terms decrease, so none of the others is above the last one that was added.
    others = (n_shares - 1 - last) * term(last)
    return 10 * (math.fsum(term(k) for k in range(1, last + 1)) + others)


def _dp_accounting() -> ModuleType:
    """Imported where it is needed first: that takes a second, and it is an extra."""
    try:
        import dp_accounting.rdp
    except ModuleNotFoundError:
        raise MissingExtra("differential privacy", "privacy") from None
    module: ModuleType = dp_accounting
    return module


def _check_release(delta: float, releases: int, sampling: float) -> None:
    if not 0 < delta < 1:
        raise ValueError(f"delta is {delta}; it must be above 0 and below 1")
    _check_count("releases", releases)
    if not 0 < sampling <= 1:
        raise ValueError(f"sampling is {sampling}; it must be above 0 and at most 1")


def _check_count(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} is {value}; it must be an integer from 1 on")


def _check_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"{name} is {value}; it must be a finite number above 0")
