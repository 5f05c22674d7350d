"""Which clients a round can select, and which of them reply in time.

Availability follows the time of day, has one long gap per client or per heavy contributor, or
comes from a trace of real devices. The server selects a round's cohort from the available clients.
A round may select more clients than it needs and close after the first replies, or at a deadline;
late clients count as dropped. Everything is drawn from the seed by round and user.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from coterie.core import streams
from coterie.core.progress import Progress
from coterie.data.interactions import Interactions
from coterie.data.small import known_ids, small_table
from coterie.data.training_set import TrainingSet
from coterie.federated.federation import AlgorithmSettings, AnyWorld, World
from coterie.federated.settings import FederationSettings
from coterie.types import Bools, Doubles, Ints

MEAN_AVAILABILITY = 0.4
"""Diurnal: the share of clients that are available on average over a day."""
DAILY_SWING = 0.35
"""Diurnal: how far that share rises and falls within a day."""
HOUR_SPREAD = 0.1
"""Diurnal: standard deviation of clients' best hours, in days."""
AWAY = 1 / 3
"""Stretches: for which part of the run a client is unavailable, in one stretch."""
HEAVY_SHARE = 0.1
"""Heavy away: the share of clients, those with the most interactions, that are sporadic."""
HEAVY_AWAY = 2 / 3
"""Heavy away: for which part of the run such a client is unavailable, in one stretch."""
DEVICE_SPREAD = 0.6
"""Standard deviation of log response times between devices."""
ROUND_SPREAD = 0.3
"""Standard deviation of log response times of one device between rounds."""


def with_availability_trace(
    training: TrainingSet, settings: FederationSettings, train: Interactions, progress: Progress
) -> TrainingSet:
    """The training data with what availability needs to know of it: see `TrainingSet.presence`.

    A trace file has rows of user_id, from_round and to_round in which a user is available.
    """
    if settings.availability == "heavy_away":
        return with_heavy_contributors(training)
    if settings.availability_file is None:
        return training
    table = small_table(
        Path(settings.availability_file),
        ("user_id", "from_round", "to_round"),
        "user_id, from_round and to_round",
    )
    rule = "a whole number from 1"
    begin = table.numbers("from_round", rule, _is_round).astype(np.int64)
    end = table.numbers("to_round", rule, _is_round).astype(np.int64)
    users = known_ids(table, "user_id", train.user_ids, progress)
    return replace(training, presence=np.stack([users, begin, end], axis=1)[users >= 0])


def with_heavy_contributors(training: TrainingSet) -> TrainingSet:
    """The training data with the clients that have the most interactions, without any round.

    The simulator decides when they are away: only then is the length of the run known.
    """
    counts = training.positives.counts
    n_heavy = math.ceil(HEAVY_SHARE * np.count_nonzero(counts))
    # Ties go to the lower user index.
    heavy = np.sort(np.argsort(-counts, kind="stable")[:n_heavy])
    no_rounds = np.zeros_like(heavy)
    return replace(training, presence=np.stack([heavy, no_rounds, no_rounds], axis=1))


def _is_round(values: Doubles) -> Bools:
    valid: Bools = (values >= 1) & (values == np.floor(values)) & (values < 2**31)
    return valid


def always_available(world: AnyWorld) -> bool:
    """Whether all clients are available and in time in every round; some may still drop out."""
    settings = world.settings
    no_pattern = settings.availability == "always" and world.presence is None
    return no_pattern and not settings.deadline and not settings.over_selection


def with_available(
    world: World[AlgorithmSettings], t: int, rounds: int
) -> World[AlgorithmSettings]:
    """The world in round t of a run of `rounds`, with the clients that are available."""
    pattern = PATTERNS[world.settings.availability]
    if pattern is None and world.presence is not None:
        pattern = _traced
    return world if pattern is None else replace(world, available=pattern(world, t, rounds))


def _diurnal(world: AnyWorld, t: int, rounds: int) -> Bools:
    """Each client is most often available around its own hour; hours are similar across clients."""
    users = np.arange(world.n_users)
    hour = HOUR_SPREAD * streams.normal(streams.keys(world.seed, "hour", last=users), 1)[:, 0]
    phase = 2 * np.pi * (t / world.settings.rounds_per_day - hour)
    probability = MEAN_AVAILABILITY + DAILY_SWING * np.cos(phase)
    available: Bools = (
        streams.uniform(streams.keys(world.seed, "here", t, last=users)) < probability
    )
    return available


def _stretches(world: AnyWorld, t: int, rounds: int) -> Bools:
    """Each client is unavailable for one third of the run; the stretch may wrap around its end."""
    begin = streams.uniform(streams.keys(world.seed, "stretch", last=np.arange(world.n_users)))
    available: Bools = (t / rounds - begin) % 1 >= AWAY
    return available


def _heavy_away(world: AnyWorld, t: int, rounds: int) -> Bools:
    """Heavy contributors are away for two thirds of the run; the stretch may wrap around its end.

    In every round about two thirds of them are away, and all other clients are available.
    """
    assert world.presence is not None, "with_availability_trace finds the heavy contributors"
    heavy = world.presence[:, 0]
    begin = streams.uniform(streams.keys(world.seed, "heavy away", last=heavy))
    available = np.ones(world.n_users, bool)
    available[heavy] = (t / rounds - begin) % 1 >= HEAVY_AWAY
    return available


def _traced(world: AnyWorld, t: int, rounds: int) -> Bools:
    """Clients that the trace does not name are always available."""
    assert world.presence is not None
    users, begin, end = world.presence.T
    available = ~np.isin(np.arange(world.n_users), users)
    available[users[(begin <= t + 1) & (t + 1 <= end)]] = True
    return available


Pattern = Callable[[AnyWorld, int, int], Bools]
"""(world, t, rounds of the run) -> which clients are available."""
PATTERNS: dict[str, Pattern | None] = {
    "always": None,
    "diurnal": _diurnal,
    "stretches": _stretches,
    "heavy_away": _heavy_away,
}


def with_over_selection(world: World[AlgorithmSettings]) -> World[AlgorithmSettings]:
    """The world with a larger cohort: `over_selection` more clients than a round needs."""
    factor = 1 + world.settings.over_selection
    if factor == 1:
        return world
    return replace(world, settings=world.settings.selecting_more(factor))


def late_clients(world: AnyWorld, cohort: Ints, t: int, needed: int) -> Bools | None:
    """Which of the cohort reply after the deadline, or after `needed` others; None if none can."""
    deadline = world.settings.deadline
    if not deadline and needed >= len(cohort):
        return None
    times = response_times(world, cohort, t)
    last = np.sort(times)[needed - 1] if needed < len(cohort) else math.inf
    late: Bools = times > min(last, deadline or math.inf)
    return late


def response_times(world: AnyWorld, cohort: Ints, t: int) -> Doubles:
    """How long each client takes for a round, as a multiple of the median device's time."""
    device = streams.normal(streams.keys(world.seed, "slowness", last=cohort), 1)[:, 0]
    moment = streams.normal(streams.keys(world.seed, "moment", t, last=cohort), 1)[:, 0]
    times: Doubles = np.exp(DEVICE_SPREAD * device + ROUND_SPREAD * moment)
    return times
