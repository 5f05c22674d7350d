"""The training loop: step by step, with measurements and checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coterie import kernels
from coterie.algorithms.algorithm import Algorithm
from coterie.algorithms.registry import algorithm
from coterie.core.heap import keep_large_blocks
from coterie.core.progress import Progress
from coterie.core.settings import Settings
from coterie.data.interactions import Interactions
from coterie.data.splits import Split
from coterie.data.training_set import TrainingSet
from coterie.engines import select
from coterie.errors import ConfigError, ContractError, Diverged
from coterie.evaluation import candidates as sampling
from coterie.evaluation.candidates import Candidates
from coterie.evaluation.evaluation import quick
from coterie.evaluation.protocols import Protocol
from coterie.experiments.config import Course, Experiment
from coterie.experiments.curve_sample import curve_sample
from coterie.experiments.derived_defaults import popularity_prior
from coterie.experiments.history import Point, TrainingHistory
from coterie.experiments.round_log import RoundLog
from coterie.federated.costs import Costs
from coterie.federated.federation import Federation
from coterie.federated.secagg.server import ABORTED
from coterie.federated.settings import federation_settings
from coterie.federated.trainer import Context, Trainer
from coterie.federated.validation import OF_TRAINING, REMEDIES
from coterie.models.popularity_prior import PopularityPrior, recommender
from coterie.models.recommender import Recommender
from coterie.types import Rows, Sizes

MEASUREMENTS = 20
"""Measurements of a run if `evaluate_every` is not set."""
TOO_MANY = 0.1
"""Refused updates per accepted one above which a run logs a warning."""
SECONDS_BETWEEN = 5.0
"""Seconds between checkpoints if `checkpoint_every` is not set."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A trained model with its history."""

    model: Recommender
    best_round: int
    """The round of the model."""
    history: TrainingHistory
    prior: PopularityPrior | None = None
    """Popularity, where it counts in scores."""
    stopped: str = ""
    """Why training ended before its last step, where its privacy budget was spent."""
    update_sizes: tuple[Sizes, ...] = ()
    """The sizes of a client's update in every exchange; none of a centralised method."""

    @property
    def recommender(self) -> Recommender:
        return recommender(self.model, self.prior)


SaveCheckpoint = Callable[[Point, Recommender, PopularityPrior | None], None]


def train(
    experiment: Experiment,
    training: TrainingSet,
    evaluator: Evaluator,
    progress: Progress,
    save: SaveCheckpoint | None = None,
    since: Point | None = None,
    reuse: Callable[[Any], Any] | None = None,
    log: RoundLog | None = None,
) -> Fitted:
    """Train to the end and return the last model.

    With `patience`, training stops after that many measurements without improvement and the best
    model is returned. `save` is called with every checkpoint, `since` is a checkpoint to resume
    from, `reuse` puts the weights of another run into the initial state, and rounds are written to
    the log.
    """
    keep_large_blocks()
    chosen = algorithm(experiment.choice.algorithm)
    course = experiment.course
    if course.patience and evaluator.part != "validation":
        raise ConfigError(
            "patience selects a model on the validation part, but there is none. "
            "Set validation=true."
        )
    for family in (*chosen.kernels_for(experiment.settings), "ranking"):
        kernels.load(family, progress)
    work = trainer(chosen, training, experiment.settings, Context(experiment.choice.seed, progress))
    prior, counting = popularity_prior(experiment, training)
    point = since or begin(work, training.n_users, reuse, counting)
    total = work.n_steps(chosen.steps(experiment.settings))
    every = evaluate_every(experiment)
    schedule = CheckpointSchedule(course.checkpoint_every)
    if point.history.round == total:
        # A resumed run that had ended: its model is computed again, which the history has already.
        work.finish(point.state)
    with progress.task(f"Training {experiment.choice.algorithm}", total) as advance:
        advance(point.history.round)
        if log is not None:
            log.begin(point.history, total)
        try:
            while not over(point.history, total, course):
                after = step(work, point)
                if after.history.round == total:
                    after = finish(work, after)
                note = ""
                if after.history.round % every == 0 or after.history.round == total:
                    after = measure(work, after, evaluator, bool(course.patience), prior)
                    value = after.history.curve[-1][evaluator.headline]
                    note = evaluator.describe(value)
                # Assigned only now, so that a checkpoint of an interrupted run has its measurement.
                point = after
                if log is not None:
                    log.step(point.history)
                if save is not None and (
                    schedule.is_due(point.history.round) or over(point.history, total, course)
                ):
                    save(point, work.model(point.state), prior)
                advance(note=note)
        except KeyboardInterrupt:
            if save is not None and point.state is not None:
                save(point, work.model(point.state), prior)
            if log is not None:
                log.interrupt(point.history)
            raise
    history = point.history
    stopped = "" if work.stop is None else work.stop.text
    if stopped:
        progress.log(f"training stopped: {stopped}")
    if chosen.federated:
        check_refusals(history, progress)
    sizes = work.update_sizes(point.state)
    if course.patience and point.best is not None:
        best_round = int(history.curve[history.best]["round"])
        return Fitted(work.model(point.best), best_round, history, prior, update_sizes=sizes)
    return Fitted(work.model(point.state), history.round, history, prior, stopped, sizes)


def evaluate_every(experiment: Experiment) -> int:
    """Steps between measurements: as set, or for about twenty measurements."""
    total = algorithm(experiment.choice.algorithm).steps(experiment.settings)
    return experiment.course.evaluate_every or max(1, total // MEASUREMENTS)


def n_measurements(experiment: Experiment) -> int:
    """Measurements of a whole run."""
    total = algorithm(experiment.choice.algorithm).steps(experiment.settings)
    return max(total // evaluate_every(experiment), 1)


def check_refusals(history: TrainingHistory, progress: Progress) -> None:
    """Raise if every update was refused; log a warning if many were."""
    given_up = history.refused[ABORTED]
    if given_up:
        progress.log(
            f"{given_up:,} updates were lost in aborted secure aggregations: too many of their "
            "clients dropped out. Lower client_dropout, or raise holders (secagg)."
        )
    by_reason = {
        reason: count for reason, count in sorted(history.refused.items()) if reason != ABORTED
    }
    if not by_reason:
        return
    refused = sum(by_reason.values())
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in by_reason.items())
    most_frequent = max(by_reason, key=lambda reason: by_reason[reason])
    remedy = REMEDIES[most_frequent]
    diverges = most_frequent in OF_TRAINING
    if not history.updates:
        kind = Diverged if diverges else ContractError
        cause = "training diverged" if diverges else "client_update returns invalid updates"
        raise kind(
            f"{cause}: every update was refused ({reasons}), so the model is untrained. {remedy}"
        )
    if refused > TOO_MANY * history.updates:
        cause = "training is close to diverging" if diverges else "client_update is at fault"
        progress.log(
            f"{refused:,} updates were refused and {history.updates:,} accepted ({reasons}): "
            f"{cause}. {remedy}"
        )


class CheckpointSchedule:
    """When to save: every `every` rounds, or, if 0, after the first and then every few seconds."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.last = -SECONDS_BETWEEN

    def is_due(self, round_: int) -> bool:
        if self.every:
            return round_ % self.every == 0
        if time.monotonic() - self.last < SECONDS_BETWEEN:
            return False
        self.last = time.monotonic()
        return True


def trainer(
    chosen: Algorithm, training: TrainingSet, settings: Settings, context: Context
) -> Trainer[Any]:
    if isinstance(chosen.train, Federation):
        return select.trainer(chosen.train, training, federation_settings(settings), context)
    return chosen.train(training, settings, context)


def begin(
    work: Trainer[Any],
    n_users: int,
    reuse: Callable[[Any], Any] | None = None,
    before: Costs | None = None,
) -> Point:
    """The initial state; `before` is what was spent before it."""
    state, costs = work.start()
    total = costs if before is None else before.and_exchange(costs)
    return Point(reuse(state) if reuse else state, TrainingHistory.begin(n_users, total))


def step(work: Trainer[Any], point: Point) -> Point:
    began = time.perf_counter()
    state, costs = work.step(point.state, point.history.round + 1)
    return Point(state, point.history.after(costs, time.perf_counter() - began), point.best)


def finish(work: Trainer[Any], point: Point) -> Point:
    """After the last step, before the model is measured: its time is that of training."""
    began = time.perf_counter()
    work.finish(point.state)
    return replace(point, history=point.history.finished(time.perf_counter() - began))


def measure(
    work: Trainer[Any],
    point: Point,
    evaluator: Evaluator,
    keep_best: bool,
    prior: PopularityPrior | None = None,
) -> Point:
    began = time.perf_counter()
    model = recommender(work.model(point.state), prior)
    metrics = evaluator.measure(model, point.history.round)
    seconds = time.perf_counter() - began
    history = point.history.measured(evaluator.part, metrics, evaluator.headline, seconds)
    is_best = history.best == len(history.curve) - 1
    return Point(point.state, history, point.state if keep_best and is_best else point.best)


def over(history: TrainingHistory, total: int, course: Course) -> bool:
    """Whether training is finished."""
    if history.round >= total:
        return True
    return bool(course.patience) and waited(history, course.patience_from) >= course.patience


def waited(history: TrainingHistory, since: int) -> int:
    """Measurements without improvement; those up to round `since` do not count."""
    later = history.curve[history.best + 1 :]
    return sum(line["round"] > since for line in later)


def models(
    chosen: Algorithm, training: TrainingSet, settings: Settings, context: Context
) -> Iterator[Recommender]:
    """The model after every step."""
    work = trainer(chosen, training, settings, context)
    point = begin(work, training.n_users)
    for _ in range(work.n_steps(chosen.steps(settings))):
        point = step(work, point)
        yield work.model(point.state)


def fit(
    chosen: Algorithm, training: TrainingSet, settings: Settings, context: Context
) -> Recommender:
    """Train to the end and return the last model."""
    # A loop holds one model at a time; a list would hold all of them.
    for model in models(chosen, training, settings, context):  # noqa: B007
        pass
    return model


def sampled(protocol: Protocol, parts: Split, seed: int, part: str = "test") -> Candidates:
    """The sampled candidates of the test part of a split."""
    for_each = protocol.candidates_for == "item"
    return sampling.sample(
        parts.test, parts.everything(), protocol.candidates, seed, part, for_each
    )


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Measures a model while it trains: on the validation part, or else on the test part."""

    part: str
    headline: str
    protocol: Protocol
    seen: Rows
    held: Interactions
    candidates: Candidates | None
    n_users: int
    """Users that are measured: all with held-out interactions, or a sample of them."""
    is_sample: bool = False

    @classmethod
    def of(cls, experiment: Experiment, parts: Split, candidates: Candidates | None) -> Evaluator:
        protocol = experiment.protocol
        headline = protocol.followed
        if parts.validation is None:
            sample = curve_sample(
                experiment, parts.test, candidates, len(parts.train), n_measurements(experiment)
            )
            return cls(
                "test",
                headline,
                protocol,
                parts.seen(),
                sample.held,
                sample.candidates,
                sample.n_users,
                is_sample=sample.held is not parts.test,
            )
        if candidates is not None:
            # Validation has its own candidates, so that nothing of the test part is used.
            n_negatives = protocol.candidates
            if protocol.candidates_file:
                n_negatives = candidates.items.shape[1] - 1
            as_many = protocol.model_copy(update={"candidates": n_negatives})
            candidates = sampled(as_many, parts.for_tuning(), experiment.choice.seed, "validation")
        held = parts.validation
        n_users = int(np.count_nonzero(held.rows.counts))
        return cls("validation", headline, protocol, parts.train.rows, held, candidates, n_users)

    def describe(self, value: float) -> str:
        """A measurement in words."""
        on_whom = f" on {self.n_users:,} sampled users" if self.is_sample else ""
        return f"{self.part} {self.headline} {value:.4f}{on_whom}"

    def measure(self, model: Recommender, round_: int) -> dict[str, float]:
        try:
            return quick(model, self.protocol, self.seen, self.held, self.candidates)
        except Diverged as error:
            raise Diverged(
                str(error).replace("diverged", f"diverged at round {round_}", 1)
            ) from None
