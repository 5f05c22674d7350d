"""Selection of a round's cohort, and of the clients in it whose replies will not arrive."""

from __future__ import annotations

import numpy as np

from coterie.core import streams
from coterie.errors import ConfigError
from coterie.federated import availability, contract
from coterie.federated.federation import (
    AlgorithmSettings,
    Federation,
    State,
    World,
    exchanges_with_clients,
)
from coterie.federated.privacy.plan import sampling_rate
from coterie.federated.robust.defence import check_comparable
from coterie.types import Bools, Ints

MOST_USERS = 1 << 17
"""A larger cohort could overflow the integer sums."""

BLOCK = 1 << 16
"""Clients whose coins are in memory at a time."""


def select(
    federation: Federation[State, AlgorithmSettings],
    world: World[AlgorithmSettings],
    state: State,
    t: int,
) -> tuple[Ints, Bools | None]:
    """The cohort of round t, and which of its clients drop out; None where all reply."""
    if not world.present.any():
        return np.empty(0, np.int32), None
    larger = availability.with_over_selection(world)
    if world.settings.sampling == "poisson":
        cohort = poisson_cohort(federation, larger, t)
    else:
        cohort = contract.check_cohort(world, federation.sample(larger, state, t))
    needed = len(cohort)
    if world.settings.over_selection:
        needed = len(federation.sample(world, state, t))
    reasons = (_drops_out(world, cohort, t), availability.late_clients(world, cohort, t, needed))
    dropped = [reason for reason in reasons if reason is not None]
    return cohort, np.logical_or.reduce(dropped) if dropped else None


def poisson_cohort(
    federation: Federation[State, AlgorithmSettings], world: World[AlgorithmSettings], t: int
) -> Ints:
    """Every client is in the cohort with the same probability, whatever the others are."""
    exchange = exchanges_with_clients(federation, world)[0]
    assert exchange.private_sum is not None
    rate = sampling_rate(world, exchange.private_sum)
    coins = streams.at(world.seed, "poisson cohort", t)
    below = np.empty(world.n_users, bool)
    # In blocks, with the numbers of one long draw.
    for first in range(0, world.n_users, BLOCK):
        part = below[first : first + BLOCK]
        part[:] = coins.random(len(part)) < rate
    return np.flatnonzero(world.present & below).astype(np.int32)


def _drops_out(world: World[AlgorithmSettings], cohort: Ints, t: int) -> Bools | None:
    """Which clients of the cohort drop out this round: every client tosses its own coin."""
    probability = world.settings.client_dropout
    if not probability:
        return None
    coins = streams.words(streams.keys(world.seed, "drop-out", t, last=cohort), 0) >> np.uint64(11)
    dropped: Bools = coins < np.uint64(probability * 2.0**53)
    return dropped


def check_size(world: World[AlgorithmSettings], cohort: Ints) -> None:
    """Refuse a cohort that would overflow sums, that secure aggregation cannot hide, or that a
    defence cannot compare."""
    n = len(cohort)
    check_comparable(world, n)
    if n > MOST_USERS:
        raise ConfigError(
            f"a round selects {n:,} users, which could overflow integer sums; "
            f"expected at most {MOST_USERS:,}. Lower participation."
        )
    fewest = world.settings.fewest_clients
    if n < fewest:
        users = "user" if n == 1 else "users"
        raise ConfigError(
            f"secure_aggregation is {world.settings.secure_aggregation!r}, and a round of {n} "
            f"{users} cannot hide any of them; expected at least {fewest}. "
            f"Raise users_per_round or participation{_or_lower(world)}, or set "
            "secure_aggregation=none."
        )


def _or_lower(world: World[AlgorithmSettings]) -> str:
    settings = world.settings
    if settings.secure_aggregation != "secagg":
        return ""
    return ", lower smallest_group" if settings.smallest_group > 3 else ", lower colluders"
