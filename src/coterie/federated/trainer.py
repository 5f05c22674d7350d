"""src/coterie/federated/trainer.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from coterie.core.progress import Progress
from coterie.federated.costs import Costs
from coterie.models.recommender import Recommender


@dataclass(frozen=True, slots=True)
class Context:
    """What a training run is given beside its data and settings."""

    seed: int
    progress: Progress


@dataclass(frozen=True, slots=True)
class Trainer:
    """Training as functions over a state that can be saved after any step."""

    start: Callable[[], tuple[Any, Costs]]
    step: Callable[[Any, int], tuple[Any, Costs]]
    """(state, n) -> the state after step n = 1, 2, ..."""
    model: Callable[[Any], Recommender]
