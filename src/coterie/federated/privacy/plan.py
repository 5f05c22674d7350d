"""How much noise a run needs: from its budget to the integers that are drawn.

Noise is a discrete Gaussian whose sigma is a power of two (`discrete_gaussian.py`). So sigma is
fixed, and the grid is not: an algorithm scales what a client adds to a sum so that its L2 norm is
at most

    sensitivity = sigma / noise multiplier

in grid units. The noise multiplier is what the accountant asks for, given epsilon, delta and the
number of sums that a client's data enters. Where it is a setting, the number of sums follows.

Who draws the noise (`noise`):

    central         the server, once for a sum
    distributed     every client of a group of secure aggregation draws a share. n_shares of them
                    make the sigma above; those are the clients that a group has, less the share
                    that may drop out (noise_margin), less the clients that may collude and know
                    their own noise
    local           every client draws all of it
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import lru_cache

from coterie.errors import ConfigError
from coterie.federated.federation import AnyWorld, PrivateSum, SecureSum
from coterie.federated.privacy import accountant
from coterie.federated.privacy.settings import PrivacySettings
from coterie.federated.secagg.words import Word

LOG2_SIGMA = 20
"""Sigma is at most 2^20 grid units: rounding to the grid loses nothing then."""
MOST_SENSITIVE = 1 << 22
"""The sensitivity is at most so many grid units: entries of an update have a bound."""
LEAST_LOG2_SIGMA = 8
"""Coarser noise is not used: rounding would cost accuracy, and shares of it would not add up to a
discrete Gaussian."""
TAIL = 64
"""No noise exceeds so many sigmas: the probability is below 2^-2900."""
ANY_DIMENSION = 1 << 50
"""More entries than any vector has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisePlan:
    """The noise of a run, in grid units."""

    epsilon: float
    delta: float
    releases: int
    """How many sums a client's data enters at most."""
    sampling: float = 1.0
    """The probability with which a client is in a cohort; 1 if it does not count."""
    multiplier: float
    """The noise multiplier: sigma of a sum over its sensitivity."""
    log2_sigma: int
    """Of what one party draws."""
    n_shares: int = 1
    """How many parties' noise is in a sum for certain, not counting colluders."""
    fewest_survivors: int = 0
    """Clients that a sum needs, so that it has n_shares of noise; 0 where the server draws it."""
    word: Word = 64

    @property
    def max_entry(self) -> int:
        """Bound of an entry of what a client uploads, with its noise where it draws some."""
        noise = TAIL << self.log2_sigma if self.fewest_survivors else 0
        return math.ceil(self.sensitivity) + noise

    @property
    def sigma(self) -> float:
        """Sigma of the noise that is certain to be in a sum."""
        return math.sqrt(self.n_shares) * (1 << self.log2_sigma)

    @property
    def sensitivity(self) -> float:
        """The largest L2 norm of what one client adds to a sum."""
        return self.sigma / self.multiplier


def plan_for(world: AnyWorld, private: PrivateSum) -> NoisePlan | None:
    """The noise of an exchange; None where the run has no privacy budget."""
    settings = world.settings
    if settings.epsilon is None:
        return None
    releases = private.releases(world)
    if settings.noise == "central":
        return central_plan(settings, world.n_users, releases, sampling_rate(world, private))
    delta = settings.delta_for(world.n_users)
    multiplier, releases = noise_and_releases(settings, delta, releases)
    n = group_size(private.cohort_size(world), settings.largest_group)
    n_shares = 1
    colluders = 0
    if settings.noise == "distributed":
        colluders = -(-n * settings.colluders // min(settings.holders, n - 1))
        n_shares = math.ceil(n * (1 - settings.noise_margin)) - colluders
    log2_sigma, word = _finest_grid(n, n_shares, multiplier)
    return NoisePlan(
        epsilon=settings.epsilon,
        delta=delta,
        releases=releases,
        multiplier=_of_shares(n_shares, log2_sigma, multiplier),
        log2_sigma=log2_sigma,
        n_shares=n_shares,
        fewest_survivors=n_shares + colluders,
        word=word,
    )


def sampling_rate(world: AnyWorld, private: PrivateSum) -> float:
    """The probability with which a client is in a cohort, if that makes noise hide more; else 1."""
    if world.settings.sampling == "fixed":
        return 1.0
    return min(private.cohort_size(world) / max(world.n_members, 1), 1.0)


def central_plan(
    settings: PrivacySettings, n_users: int, releases: int, sampling: float = 1.0
) -> NoisePlan:
    """The noise of one party that sees the sum."""
    assert settings.epsilon is not None
    delta = settings.delta_for(n_users)
    multiplier, releases = noise_and_releases(settings, delta, releases, sampling)
    return NoisePlan(
        epsilon=settings.epsilon,
        delta=delta,
        releases=releases,
        sampling=sampling,
        multiplier=multiplier,
        log2_sigma=_finest(MOST_SENSITIVE * multiplier),
    )


def _finest(most: float) -> int:
    """log2 of the largest sigma up to `most`, and up to the finest that is used."""
    return min(math.floor(math.log2(most)), LOG2_SIGMA)


def group_size(cohort: int, largest: int) -> int:
    """Clients of the smaller groups of a cohort, which is split into groups of about one size."""
    return cohort // -(-cohort // largest)


def noise_and_releases(
    settings: PrivacySettings, delta: float, releases: int, sampling: float = 1.0
) -> tuple[float, int]:
    """(noise multiplier, sums that a client's data may enter) of a budget."""
    epsilon = settings.epsilon
    assert epsilon is not None
    multiplier = settings.noise_multiplier
    if multiplier is None:
        return multiplier_for(epsilon, delta, releases, sampling), releases
    allowed = releases_within(epsilon, delta, multiplier, releases, sampling)
    if not allowed:
        least = multiplier_for(epsilon, delta, 1, sampling)
        raise ConfigError(
            f"setting 'noise_multiplier' is {multiplier:g}, with which a single sum exceeds "
            f"epsilon={epsilon:g} (at delta {delta:.2g}); expected at least {least:.4g}. Raise it, "
            "or leave it out: the noise is then made for epsilon."
        )
    return multiplier, allowed


@lru_cache(maxsize=64)
def releases_within(
    epsilon: float, delta: float, multiplier: float, most: int, sampling: float = 1.0
) -> int:
    """How many sums with this noise spend at most epsilon; no more than `most`."""

    def exceeds(releases: int) -> bool:
        spent = accountant.epsilon_spent(
            noise_multiplier=multiplier, delta=delta, releases=releases, sampling=sampling
        )
        return spent > epsilon

    # Epsilon grows with the number of sums.
    return bisect_right(range(1, most + 1), False, key=exceeds)


@lru_cache(maxsize=64)
def multiplier_for(epsilon: float, delta: float, releases: int, sampling: float = 1.0) -> float:
    return accountant.noise_multiplier(
        epsilon=epsilon, delta=delta, releases=releases, sampling=sampling
    )


def _of_shares(n_shares: int, log2_sigma: int, multiplier: float) -> float:
    """The multiplier that a sum of shares needs: it is not a discrete Gaussian itself.

    The correction (Kairouz, Liu, Steinke 2021) is below the precision of numbers for shares of
    sigma 2^8, so that one step of correction is exact.
    """
    sigma = float(1 << log2_sigma)
    sensitivity = math.sqrt(n_shares) * sigma / multiplier
    reached = accountant.sum_multiplier(
        n_shares=n_shares, sigma=sigma, sensitivity=sensitivity, dimension=ANY_DIMENSION
    )
    return multiplier * max(1.0, multiplier / reached)


def _finest_grid(n: int, n_shares: int, multiplier: float) -> tuple[int, Word]:
    """(log2 of sigma, bits of a word): 32 bits, if noise is then still fine enough.

    No sum over n clients may wrap: n times the sensitivity, and the tail of all noise.
    """
    sensitivity = math.sqrt(n_shares) / multiplier  # in units of a share's sigma
    most = MOST_SENSITIVE / sensitivity
    without_wrapping = (1 << 31) / (n * (sensitivity + TAIL))
    if without_wrapping >= 1 << LEAST_LOG2_SIGMA:
        return _finest(min(most, without_wrapping)), 32
    return _finest(most), 64


def with_noise(secure: SecureSum, private: PrivateSum) -> SecureSum:
    """The same secure sum; under a privacy budget its words and bounds are those of the plan."""

    def word(world: AnyWorld) -> Word:
        plan = plan_for(world, private)
        return secure.word(world) if plan is None else plan.word

    def max_entry(world: AnyWorld) -> int:
        plan = plan_for(world, private)
        return secure.max_entry(world) if plan is None else plan.max_entry

    return replace(secure, word=word, max_entry=max_entry)
