"""The users that the curve is measured on while a model trains.

A curve over all users can cost ten times the training: full ranking scores users times items, and
training visits interactions. The curve on the test part is for inspection only, so it is measured
on a sample of users that is drawn once per run. The final figures are always those of all users.
The finished curve is scaled to end at them (a ratio estimator). Otherwise a curve of a few hundred
users would contradict the tables, and curves of different samples each other. Runs with the same
seed and data share the order in which users are sampled.

The size of the sample follows from counts and never from the clock, so that the same seed gives the
same curve on every machine. What selects a model or stops training is not sampled: the validation
part, and the curve of a run with a target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from coterie.algorithms.registry import algorithm
from coterie.core import streams
from coterie.data.interactions import Interactions
from coterie.evaluation.candidates import Candidates
from coterie.evaluation.direction import lower_is_better
from coterie.evaluation.ranking import GATHERED
from coterie.experiments.config import Experiment
from coterie.experiments.derived_defaults import uses_prior
from coterie.models.popularity_prior import SAMPLED_ITEMS
from coterie.types import JsonObject

SCORES_PER_VISIT = 1.0
"""Scores of the whole curve for each visit of a training interaction: less than a tenth of the
time, as a visit takes at least ten times as long as a score (benchmarks/curve_cost.py)."""
FEWEST_SCORES = 20_000_000
"""Scores that a curve may always compute: about a second."""
FEWEST_USERS = 200
MOST_USERS = 1_000


@dataclass(frozen=True, slots=True)
class CurveSample:
    """The held-out interactions and candidates of the users that the curve is measured on."""

    held: Interactions
    candidates: Candidates | None
    n_users: int


def curve_sample(
    experiment: Experiment,
    held: Interactions,
    candidates: Candidates | None,
    n_interactions: int,
    measurements: int,
) -> CurveSample:
    """The sample of the users with held-out interactions; all of them if there are few enough."""
    tested = np.flatnonzero(held.rows.counts)
    wanted = experiment.course.curve_users
    if wanted is None:
        wanted = len(tested)
        if experiment.course.target is None:
            width = held.n_items if candidates is None else candidates.items.shape[1] * GATHERED
            if uses_prior(experiment):
                width += SAMPLED_ITEMS * GATHERED
            visits = n_interactions * algorithm(experiment.choice.algorithm).steps(
                experiment.settings
            )
            wanted = affordable_users(visits, width, measurements)
    if not wanted or wanted >= len(tested):
        return CurveSample(held, candidates, len(tested))
    rng = streams.at(experiment.choice.seed, "curve users")
    users = np.sort(rng.permutation(tested)[:wanted])
    if candidates is not None:
        rows = np.isin(candidates.users, users)
        candidates = Candidates(
            candidates.users[rows], candidates.items[rows], candidates.relevant[rows]
        )
    return CurveSample(held.select(np.isin(held.users, users)), candidates, wanted)


def scaled_to_all_users(
    curve: Sequence[JsonObject], final: Mapping[str, float]
) -> tuple[JsonObject, ...]:
    """The curve of a sample with every metric scaled so that it ends at the figure of all users.

    A metric that ends at zero on the sample says nothing about the others: only its end is
    replaced. Shares stay below 1.
    """
    last = curve[-1]
    metrics = [name for name in final if name in last]
    factors = {name: final[name] / last[name] for name in metrics if last[name] > 0}
    scaled = [
        line | {name: _scaled(name, line[name], factor) for name, factor in factors.items()}
        for line in curve
    ]
    return (*scaled[:-1], scaled[-1] | {name: final[name] for name in metrics})


def _scaled(metric: str, value: float, factor: float) -> float:
    is_share = value <= 1 and not lower_is_better(metric)
    return min(value * factor, 1.0) if is_share else value * factor


def affordable_users(visits: int, width: int, measurements: int) -> int:
    """The users whose curve is cheap next to training.

    `visits` is the number of training interactions times steps, and `width` the scores of a user.
    """
    scores = max(SCORES_PER_VISIT * visits, FEWEST_SCORES)
    users = int(scores / (max(width, 1) * max(measurements, 1)))
    return min(max(users, FEWEST_USERS), MOST_USERS)
