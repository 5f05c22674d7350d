"""Training step by step, measured on the way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie import kernels
from coterie.algorithm import Context
from coterie.config import Experiment
from coterie.data.interactions import Interactions
from coterie.errors import ConfigError, Diverged
from coterie.evaluate import candidates as sampling
from coterie.evaluate.candidates import Candidates
from coterie.evaluate.evaluation import quick
from coterie.evaluate.protocols import Protocol
from coterie.models.recommender import Recommender
from coterie.progress import Watch
from coterie.registry import algorithm
from coterie.runtime import folder as disk
from coterie.splits import Split
from coterie.types import Rows, Training

MEASUREMENTS = 20


@dataclass(frozen=True, slots=True)
class Fitted:
    model: Recommender
    rounds: int
    """How many were trained."""
    best_round: int
    """The one whose model this is."""
    seconds: float
    curve: list[dict[str, Any]]


def train(experiment: Experiment, training: Training, ruler: Ruler, out: Path | None, watch: Watch) -> Fitted:
    """Train to the end, or until `patience` measurements brought nothing better; then the best model counts."""
    chosen, patience = algorithm(experiment.choice.algorithm), experiment.course.patience
    if patience and ruler.part != "validation":
        raise ConfigError(
            "patience chooses a model, which only a validation part may do; there is none. Set validation=true."
        )
    total = chosen.steps(experiment.settings)
    every = experiment.course.evaluate_every or max(1, total // MEASUREMENTS)
    for family in chosen.kernels:
        kernels.load(family, watch)
    models = chosen.train(training, experiment.settings, Context(experiment.choice.seed, watch))
    curve: list[dict[str, Any]] = []
    seconds, best, best_at = 0.0, None, 0
    with watch.task(f"Training {experiment.choice.algorithm}", total) as advance:
        for n, (model, took) in enumerate(timed(models), 1):
            seconds += took
            if n % every and n != total:
                advance()
                continue
            curve.append(ruler.measure(model, n, seconds))
            if out is not None:
                disk.append_metrics(out, curve[-1])
            advance(note=f"{ruler.part} {ruler.headline} {curve[-1][ruler.headline]:.4f}")
            if best is None or curve[-1][ruler.headline] > curve[best_at][ruler.headline]:
                best, best_at = model, len(curve) - 1
            if patience and len(curve) - 1 - best_at >= patience:
                break
    if patience and best is not None:
        return Fitted(best, n, int(curve[best_at]["round"]), seconds, curve)
    return Fitted(model, n, n, seconds, curve)


@dataclass(frozen=True, slots=True)
class Ruler:
    """What a model is measured on while it trains."""

    part: str
    headline: str
    protocol: Protocol
    seen: Rows
    held: Interactions
    candidates: Candidates | None

    @classmethod
    def of(cls, experiment: Experiment, parts: Split, candidates: Candidates | None) -> Ruler:
        protocol = experiment.protocol
        headline = protocol.followed
        if parts.validation is None:
            return cls("test", headline, protocol, parts.seen(), parts.test, candidates)
        if candidates is not None:  # the test part stays out of sight: validation has candidates of its own
            known = parts.for_tuning().everything()
            n_negatives = candidates.items.shape[1] - int(candidates.relevant.max())
            candidates = sampling.sample(parts.validation, known, n_negatives, experiment.choice.seed, "validation")
        return cls("validation", headline, protocol, parts.train.rows, parts.validation, candidates)

    def measure(self, model: Recommender, n: int, seconds: float) -> dict[str, Any]:
        try:
            metrics = quick(model, self.protocol, self.seen, self.held, self.candidates)
        except Diverged as error:
            raise Diverged(str(error).replace("diverged", f"diverged at round {n}", 1)) from None
        return {"round": n, "seconds": round(seconds, 6), "part": self.part} | metrics


def timed(models: Iterator[Recommender]) -> Iterator[tuple[Recommender, float]]:
    """Every model with the seconds it took."""
    while True:
        start = time.perf_counter()
        model = next(models, None)
        if model is None:
            return
        yield model, time.perf_counter() - start
