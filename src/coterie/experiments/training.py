"""Training step by step, measured and saved on the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from coterie import kernels
from coterie.algorithms.algorithm import Algorithm
from coterie.algorithms.registry import algorithm
from coterie.core.progress import Progress
from coterie.core.settings import Settings
from coterie.data.interactions import Interactions
from coterie.data.splits import Split
from coterie.data.training_set import TrainingSet
from coterie.engines import select
from coterie.errors import ConfigError, Diverged
from coterie.evaluation import candidates as sampling
from coterie.evaluation.candidates import Candidates
from coterie.evaluation.evaluation import quick
from coterie.evaluation.protocols import Protocol
from coterie.experiments.config import Experiment
from coterie.experiments.history import Point, TrainingHistory
from coterie.federated.federation import Federation
from coterie.federated.secagg.server import GIVEN_UP
from coterie.federated.settings import FederationSettings
from coterie.federated.trainer import Context, Trainer
from coterie.models.recommender import Recommender
from coterie.types import Rows

MEASUREMENTS = 20
TOO_MANY = 0.1
"""Refused updates for every accepted one from which on a run is warned of."""
SECONDS_BETWEEN = 5.0
"""Saves are this far apart where no number of rounds is set."""


@dataclass(frozen=True, slots=True)
class Fitted:
    model: Recommender
    best_round: int
    """The round whose model this is."""
    history: TrainingHistory


Keep = Callable[[Point, Recommender], None]


def train(
    experiment: Experiment,
    training: TrainingSet,
    evaluator: Evaluator,
    progress: Progress,
    keep: Keep | None = None,
    since: Point | None = None,
    reuse: Callable[[Any], Any] | None = None,
) -> Fitted:
    """Train to the end, or until `patience` measurements brought nothing better; then the best model counts.

    `keep` is called with every point worth saving, and `since` is such a point to go on from; `reuse` puts the weights
    of another run into the start.
    """
    chosen = algorithm(experiment.choice.algorithm)
    course = experiment.course
    if course.patience and evaluator.part != "validation":
        raise ConfigError(
            "patience chooses a model, which only a validation part may do; there is none. Set validation=true."
        )
    for family in (
        *chosen.kernels_for(experiment.settings),
        "ranking",
    ):  # each says that it compiles, once
        kernels.load(family, progress)
    work = trainer(chosen, training, experiment.settings, Context(experiment.choice.seed, progress))
    point = since or begin(work, training.n_users, reuse)
    total = chosen.steps(experiment.settings)
    every = course.evaluate_every or max(1, total // MEASUREMENTS)
    due = Rhythm(course.checkpoint_every)
    with progress.task(f"Training {experiment.choice.algorithm}", total) as advance:
        advance(point.history.round)
        try:
            while not over(point.history, total, course.patience):
                further = step(work, point)
                note = ""
                if further.history.round % every == 0 or further.history.round == total:
                    further = measure(work, further, evaluator, bool(course.patience))
                    note = f"{evaluator.part} {evaluator.headline} {further.history.curve[-1][evaluator.headline]:.4f}"
                point = further  # only now: what an interruption saves has its measurement
                if keep is not None and (
                    due.now(point.history.round) or over(point.history, total, course.patience)
                ):
                    keep(point, work.model(point.state))
                advance(note=note)
        except KeyboardInterrupt:
            if keep is not None and point.state is not None:
                keep(point, work.model(point.state))
            raise
    history = point.history
    if chosen.federated:
        judge_refusals(history, progress)
    if course.patience and point.best is not None:
        return Fitted(work.model(point.best), int(history.curve[history.best]["round"]), history)
    return Fitted(work.model(point.state), history.round, history)


def judge_refusals(history: TrainingHistory, progress: Progress) -> None:
    """A model that hardly anybody could train is no result, or needs a warning."""
    given_up = history.refused[GIVEN_UP]
    remedy = "Lower learning_rate or raise reg."
    if given_up:
        progress.log(
            f"{given_up:,} updates were lost with rings that were given up, since too many of their users vanished. Lower client_dropout."
        )
    refused = history.refused.total() - given_up
    reasons = ", ".join(
        f"{reason} {count:,}"
        for reason, count in sorted(history.refused.items())
        if reason != GIVEN_UP
    )
    if refused and not history.updates:
        raise Diverged(
            f"training diverged: every update was refused ({reasons}), and the model is as it began. {remedy}"
        )
    if refused > TOO_MANY * history.updates:
        progress.log(
            f"{refused:,} updates were refused and {history.updates:,} accepted ({reasons}): training is near diverging. {remedy}"
        )


class Rhythm:
    """When to save: every so many rounds, or else after the first and then every few seconds."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.last = -SECONDS_BETWEEN

    def now(self, n: int) -> bool:
        if self.every:
            return n % self.every == 0
        if time.monotonic() - self.last < SECONDS_BETWEEN:
            return False
        self.last = time.monotonic()
        return True


def trainer(
    chosen: Algorithm, training: TrainingSet, settings: Settings, context: Context
) -> Trainer[Any]:
    if isinstance(chosen.train, Federation):
        assert isinstance(settings, FederationSettings)
        assert isinstance(settings, FederationSettings)
        return select.trainer(chosen.train, training, settings, context)
    return chosen.train(training, settings, context)


def begin(work: Trainer[Any], n_users: int, reuse: Callable[[Any], Any] | None = None) -> Point:
    state, costs = work.start()
    return Point(reuse(state) if reuse else state, TrainingHistory.begin(n_users, costs))


def step(work: Trainer[Any], point: Point) -> Point:
    began = time.perf_counter()
    state, costs = work.step(point.state, point.history.round + 1)
    return Point(state, point.history.after(costs, time.perf_counter() - began), point.best)


def measure(work: Trainer[Any], point: Point, evaluator: Evaluator, keep_best: bool) -> Point:
    metrics = evaluator.measure(work.model(point.state), point.history.round)
    history = point.history.measured(evaluator.part, metrics, evaluator.headline)
    is_best = history.best == len(history.curve) - 1
    return Point(point.state, history, point.state if keep_best and is_best else point.best)


def over(history: TrainingHistory, total: int, patience: int) -> bool:
    """Whether nothing is left to do."""
    waited = len(history.curve) - 1 - history.best
    return history.round >= total or bool(patience and history.curve and waited >= patience)


def models(
    chosen: Algorithm, training: TrainingSet, settings: Settings, context: Context
) -> Iterator[Recommender]:
    """The model after every step."""
    work = trainer(chosen, training, settings, context)
    point = begin(work, training.n_users)
    for _ in range(chosen.steps(settings)):
        point = step(work, point)
        yield work.model(point.state)


def fit(
    chosen: Algorithm, training: TrainingSet, settings: Settings, context: Context
) -> Recommender:
    """Train to the end and return the last model."""
    for model in models(chosen, training, settings, context):  # noqa: B007  keeps one model, not all of them
        pass
    return model


def sampled(protocol: Protocol, parts: Split, seed: int, part: str = "test") -> Candidates:
    """What the test part of a split is ranked against."""
    for_each = protocol.candidates_for == "item"
    return sampling.sample(
        parts.test, parts.everything(), protocol.candidates, seed, part, for_each
    )


@dataclass(frozen=True, slots=True)
class Evaluator:
    """What a model is measured on while it trains."""

    part: str
    headline: str
    protocol: Protocol
    seen: Rows
    held: Interactions
    candidates: Candidates | None

    @classmethod
    def of(cls, experiment: Experiment, parts: Split, candidates: Candidates | None) -> Evaluator:
        protocol = experiment.protocol
        headline = protocol.followed
        if parts.validation is None:
            return cls("test", headline, protocol, parts.seen(), parts.test, candidates)
        if (
            candidates is not None
        ):  # the test part stays out of sight: validation has candidates of its own
            given = (
                candidates.items.shape[1] - 1 if protocol.candidates_file else protocol.candidates
            )
            fair = protocol.model_copy(update={"candidates": given})
            candidates = sampled(fair, parts.for_tuning(), experiment.choice.seed, "validation")
        return cls("validation", headline, protocol, parts.train.rows, parts.validation, candidates)

    def measure(self, model: Recommender, n: int) -> dict[str, float]:
        try:
            return quick(model, self.protocol, self.seen, self.held, self.candidates)
        except Diverged as error:
            raise Diverged(str(error).replace("diverged", f"diverged at round {n}", 1)) from None
