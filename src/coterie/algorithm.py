"""An algorithm is a value: a typed config, and how to train step by step from one saved state to the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from coterie.federation import Federation
from coterie.models.recommender import Recommender
from coterie.progress import Watch
from coterie.records import Record
from coterie.settings import Settings
from coterie.tally import Tally
from coterie.types import Training


@dataclass(frozen=True, slots=True)
class Context:
    """What a training run is given beside its data and settings."""

    seed: int
    watch: Watch


@dataclass(frozen=True, slots=True)
class Trainer:
    """Training as functions over a state that can be saved after any step."""

    start: Callable[[], tuple[Any, Tally]]
    step: Callable[[Any, int], tuple[Any, Tally]]
    """(state, n) -> the state after step n = 1, 2, ..."""
    model: Callable[[Any], Recommender]


Make = Callable[[Training, Any, Context], Trainer]


@dataclass(frozen=True, slots=True)
class Algorithm:
    summary: str
    settings: type[Settings]
    train: Make | Federation
    """How it is trained: on all data in one place, or as a federation."""
    state: type[Record]
    """What is carried from step to step."""
    steps: Callable[..., int]
    """settings -> how many steps there are."""
    kernels: tuple[str, ...] | Callable[..., tuple[str, ...]] = ()
    """Kernel families it needs, compiled before the clock starts; or settings -> families, where it depends on them."""
    explicit: bool = False
    """Whether it can learn from ratings, not only from what was chosen."""
    paper: str = ""

    @property
    def federated(self) -> bool:
        return isinstance(self.train, Federation)

    def kernels_for(self, settings: Any) -> tuple[str, ...]:
        return self.kernels(settings) if callable(self.kernels) else self.kernels


def stepwise(start: Callable[..., Recommender], step: Callable[..., Recommender]) -> Make:
    """Centralised training whose state is the model: start(training, settings, context), step(model, n, ...)."""

    def make(training: Training, settings: Any, context: Context) -> Trainer:
        return Trainer(
            lambda: (start(training, settings, context), Tally()),
            lambda model, n: (step(model, n, training, settings, context), Tally()),
            lambda model: model,
        )

    return make


def at_once(solve: Callable[..., Recommender]) -> Make:
    """Centralised training in a single step."""

    def make(training: Training, settings: Any, context: Context) -> Trainer:
        return Trainer(
            lambda: (None, Tally()), lambda _, n: (solve(training, settings, context), Tally()), lambda model: model
        )

    return make
