"""An algorithm is a value: a name, a typed config, and a function that trains step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from coterie.models.recommender import Recommender
from coterie.progress import Watch
from coterie.settings import Settings
from coterie.types import Training


@dataclass(frozen=True, slots=True)
class Context:
    """What a training run is given beside its data and settings."""

    seed: int
    watch: Watch


@dataclass(frozen=True, slots=True)
class Algorithm:
    summary: str
    settings: type[Settings]
    train: Callable[..., Iterator[Recommender]]
    """(training, settings, context) -> the model after every epoch or round; the last one is the result."""
    steps: Callable[..., int]
    """settings -> how many models `train` yields."""
    kernels: tuple[str, ...] = ()
    """Kernel families it needs, compiled before the clock starts."""
    explicit: bool = False
    """Whether it can learn from ratings, not only from what was chosen."""
    paper: str = ""
    federated: bool = False


def fit(algorithm: Algorithm, training: Training, settings: Settings, context: Context) -> Recommender:
    """Train to the end and return the last model."""
    models = algorithm.train(training, settings, context)
    model = next(models)
    for model in models:  # noqa: B007  keeps one model, not all of them
        pass
    return model
