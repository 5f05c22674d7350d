"""Who can be asked in a round, and who answers in time.

Devices come and go: by the time of day, for long stretches, or as a trace of real ones says. A server draws a round's users from
those who are there. A round may ask for more users than it needs and close with the first who answer, or at a deadline; who is late is
not heard, as if they had dropped out. All of it is drawn from the seed by round and user.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from coterie.core import streams
from coterie.core.progress import Progress
from coterie.data.interactions import Interactions
from coterie.data.small import known_ids, small_table
from coterie.data.training_set import TrainingSet
from coterie.federated.federation import (
    AnyWorld,
    Settings,
    World,
)
from coterie.types import Bools, Doubles, Ints

AWAKE = 0.4
SWING = 0.35
TIME_ZONES = 0.1
"""Of a day: how many devices are there on average, how far that swings, and by what part of a day users' hours differ."""
AWAY = 1 / 3
"""Of a run: how long a user is away in one stretch."""
CLIENTS = 0.6
MOMENTS = 0.3
"""How much devices' times differ (deviation of their logarithm), and one device's from round to round."""


def with_presence(
    training: TrainingSet, settings: Any, train: Interactions, progress: Progress
) -> TrainingSet:
    """The training data with what a trace says about its people: rows of user_id, from_round and to_round, in which a user is there."""
    if settings.availability_file is None:
        return training
    table = small_table(
        Path(settings.availability_file),
        ("user_id", "from_round", "to_round"),
        "user_id, from_round and to_round",
    )
    rule = "a whole number from 1"

    def fits(v: Doubles) -> Bools:
        whole: Bools = (v >= 1) & (v == np.floor(v)) & (v < 2**31)
        return whole

    begin, end = (
        table.numbers(name, rule, fits).astype(np.int64) for name in ("from_round", "to_round")
    )
    users = known_ids(table, "user_id", train.user_ids, progress)
    return replace(training, presence=np.stack([users, begin, end], axis=1)[users >= 0])


def always(world: AnyWorld) -> bool:
    """Whether everybody is there and heard in every round, but for drop-out."""
    settings = world.settings
    known = settings.availability == "always" and world.presence is None
    return known and not settings.deadline and not settings.over_selection


def those_here(world: World[Settings], t: int, rounds: int) -> World[Settings]:
    """The world of round t of so many, which knows who is there."""
    pattern = PATTERNS[world.settings.availability] if world.presence is None else _traced
    return world if pattern is None else replace(world, available=pattern(world, t, rounds))


def _diurnal(world: AnyWorld, t: int, rounds: int) -> Bools:
    """Most are there at an hour of their own, about the same for all: the number of devices swings with the day."""
    people = np.arange(world.n_users)
    hour = TIME_ZONES * streams.normal(streams.keys(world.seed, "hour", last=people), 1)[:, 0]
    likely = AWAKE + SWING * np.cos(2 * np.pi * (t / world.settings.rounds_per_day - hour))
    here: Bools = _uniform(streams.keys(world.seed, "here", t, last=people)) < likely
    return here


def _stretches(world: AnyWorld, t: int, rounds: int) -> Bools:
    """Everybody is away once, for a third of the run; a stretch that passes the end goes on at the beginning."""
    begin = _uniform(streams.keys(world.seed, "stretch", last=np.arange(world.n_users)))
    here: Bools = (t / rounds - begin) % 1 >= AWAY
    return here


def _traced(world: AnyWorld, t: int, rounds: int) -> Bools:
    """Those whom the trace never names are always there."""
    assert world.presence is not None
    users, begin, end = world.presence.T
    here = ~np.isin(np.arange(world.n_users), users)
    here[users[(begin <= t + 1) & (t + 1 <= end)]] = True
    return here


Pattern = Callable[[AnyWorld, int, int], Bools]
"""(world, t, rounds of the run) -> who is there."""
PATTERNS: dict[str, Pattern | None] = {"always": None, "diurnal": _diurnal, "stretches": _stretches}


def generous(world: World[Settings]) -> World[Settings]:
    """The world whose rounds ask for more users than they need."""
    factor = 1 + world.settings.over_selection
    if factor == 1:
        return world
    return replace(world, settings=world.settings.selecting_more(factor))


def late(world: AnyWorld, cohort: Ints, t: int, enough: int) -> Bools | None:
    """Who of the cohort answers after the deadline, or after enough others."""
    deadline = world.settings.deadline
    if not deadline and enough >= len(cohort):
        return None
    times = seconds(world, cohort, t)
    last = np.sort(times)[enough - 1] if enough < len(cohort) else math.inf
    too_late: Bools = times > min(last, deadline or math.inf)
    return too_late


def seconds(world: AnyWorld, cohort: Ints, t: int) -> Doubles:
    """What devices take for a round, in units of what the median device takes."""
    device = streams.normal(streams.keys(world.seed, "slowness", last=cohort), 1)[:, 0]
    moment = streams.normal(streams.keys(world.seed, "moment", t, last=cohort), 1)[:, 0]
    taken: Doubles = np.exp(CLIENTS * device + MOMENTS * moment)
    return taken


def _uniform(keys: Any) -> Doubles:
    drawn: Doubles = (streams.words(keys, 0) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return drawn
