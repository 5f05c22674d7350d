"""An algorithm is a value: typed settings, and training as steps between saved states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from coterie.core.records import Record
from coterie.core.settings import Settings
from coterie.data.training_set import TrainingSet
from coterie.federated.costs import Costs
from coterie.federated.federation import AnyFederation, Federation
from coterie.federated.robust.defence import defence_kernels
from coterie.federated.trainer import Context, Trainer
from coterie.models.new_user import HistoryScorer, NewUser, SampledLossScorer
from coterie.models.recommender import Recommender
from coterie.types import Floats

Make = Callable[[TrainingSet, Any, Context], Trainer[Any]]
"""(training set, settings of the algorithm, context) -> the trainer."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    summary: str
    settings: type[Settings]
    train: Make | AnyFederation
    """How it is trained: on all data in one place, or as a federation."""
    state: type[Record]
    """What is carried from step to step."""
    steps: Callable[..., int] = lambda settings: settings.n_steps
    """settings -> the number of steps. The settings of a federation have it as `n_steps`."""
    kernels: tuple[str, ...] | Callable[..., tuple[str, ...]] = ()
    """Kernel families it needs, or settings -> families. They are compiled before timing starts."""
    explicit: bool = False
    """Whether it can learn from ratings as well as from implicit feedback. With ratings, the
    model's score is the predicted rating in the scale of the data; RMSE and MAE depend on it."""
    paper: str = ""
    score_new_user: Callable[..., Floats] | None = None
    """(model, new user, settings) -> the scores of all items for a user who was not in training,
    with the model frozen; None if the algorithm cannot serve such users."""
    item_based: bool = False
    """Whether its model is an `ItemBased`, which names the items of the history that a
    recommendation comes from."""
    popularity_prior: float = 0.0
    """How much popularity counts in its scores by default, in multiples of what the data suggests.
    A loss over sampled negatives learns little of popularity from few interactions."""
    in_the_clear: str = ""
    """What a server receives of every client that it selects, without secure aggregation. Runs,
    their reports and `coterie choose` show it."""

    @property
    def federated(self) -> bool:
        return isinstance(self.train, Federation)

    def kernels_for(self, settings: Settings) -> tuple[str, ...]:
        own = self.kernels(settings) if callable(self.kernels) else self.kernels
        return (*own, *defence_kernels(settings))


def stepwise(start: Callable[..., Recommender], step: Callable[..., Recommender]) -> Make:
    """Centralised training whose state is the model.

    `start(training, settings, context)`, then `step(model, n, training, settings, context)`.
    """

    def make(training: TrainingSet, settings: Settings, context: Context) -> Trainer[Recommender]:
        settings = settings.for_data(training.size)
        return Trainer(
            lambda: (start(training, settings, context), Costs()),
            lambda model, n: (step(model, n, training, settings, context), Costs()),
            lambda model: model,
        )

    return make


def score_history(model: HistoryScorer, user: NewUser, settings: Settings) -> Floats:
    """`score_new_user` of an algorithm whose model needs the history and nothing else."""
    return model.score_new_user(user.items)


class SampledLoss(Protocol):
    """Settings of a loss over positives and drawn negatives."""

    @property
    def negatives(self) -> int: ...

    @property
    def reg(self) -> float: ...


def score_by_sampled_loss(model: SampledLossScorer, user: NewUser, settings: SampledLoss) -> Floats:
    """`score_new_user` of an algorithm whose model fits a row to the loss of its training."""
    return model.score_new_user(user.items, settings.negatives, settings.reg)


def at_once(solve: Callable[..., Recommender]) -> Make:
    """Centralised training in a single step."""

    def make(training: TrainingSet, settings: Settings, context: Context) -> Trainer[Any]:
        return Trainer(
            lambda: (None, Costs()),
            lambda _, n: (solve(training, settings, context), Costs()),
            lambda model: model,
        )

    return make
