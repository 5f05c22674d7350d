"""Settings of the two-tower models."""

from __future__ import annotations

import math
from typing import ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from coterie.algorithms.local.settings import Layers
from coterie.algorithms.two_tower import TOWERS, Tower, tower
from coterie.core.settings import SearchSpace, Settings
from coterie.data.content import UserInput
from coterie.federated.settings import FederationSettings
from coterie.models.directions import Precision

POPULARITY_PRIOR = 50.0
"""How much popularity counts in scores from texts, in multiples of what the data suggests. A long
history does not make these scores much surer: on MovieLens, the best is to nearly rank by
popularity."""


class TwoTowers(Settings):
    search_space: ClassVar[SearchSpace] = {
        "learning_rate": (1e-4, 3e-2),
        "smoothing": [1.0, 3.0, 10.0, 30.0],
        "dropout": [0.0, 0.2],
        "person": ["auto", "titles"],
        "negative_share": [0.5, 0.7, 0.9],
        "embedding_size": [64, 128, 256],
    }

    tower: str = "dssm"
    """Architecture of both towers: dssm or clsm."""
    embedding_size: int = Field(128, ge=1, le=4096)
    """Length of the user and item vectors."""
    layers: Layers | None = None
    """Widths of the other layers, from below; by default as published: 256,128 (dssm) or 300
    (clsm)."""
    inputs: int = Field(1100, ge=1, le=1 << 20)
    """Number of inputs that letter trigrams are hashed into."""
    most_words: int = Field(50, ge=1)
    """Largest number of words of a text that clsm reads."""
    person: UserInput = "auto"
    """Input of the user tower: features, titles of the user's items, or (auto) features if the data
    has any."""
    titles: int = Field(5, ge=1, le=100)
    """Number of titles in a user's profile."""
    smoothing: float = Field(1.0, gt=0)
    """Factor of the cosines in the softmax; 1 in the paper, tuned in Huang et al. (2013)."""
    negative_share: float = Field(0.9, gt=0, lt=1)
    """Share of the compared items that the user did not click (rho)."""
    compared: int = Field(10, ge=2, le=200)
    """Items in a comparison, clicked or not (T)."""
    learning_rate: float = Field(1e-4, gt=0)
    """Learning rate of Adam."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """Decay of Adam's first moment."""
    beta2: float = Field(0.99, ge=0, lt=1)
    """Decay of Adam's second moment."""
    tau: float = Field(1e-8, gt=0)
    """Added to the root of Adam's second moment."""
    dropout: float = Field(0.2, ge=0, lt=1)
    """Share of hidden units dropped in training."""
    start_scale: float = Field(0.1, ge=0)
    """Standard deviation of the initial weights and biases."""
    precision: Precision = "float32"
    """Precision of the item vectors sent for ranking; float16 is half the bytes, int8 a quarter."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where the towers are computed."""

    @field_validator("tower")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in TOWERS:
            raise ValueError(f"expected one of {', '.join(TOWERS)}")
        return value

    @property
    def kind(self) -> Tower:
        """The architecture that `tower` names."""
        return tower(self.tower)

    @property
    def widths(self) -> tuple[int, ...]:
        """Widths of all layers of a tower; the last is that of the vector."""
        return (*(self.layers or self.kind.layers), self.embedding_size)

    @model_validator(mode="after")
    def _as_many_layers_as_the_tower_has(self) -> TwoTowers:
        if self.layers and self.tower == "clsm" and len(self.layers) != 1:
            raise ValueError(
                f"layers is {self.layers}, but clsm has one layer below its vectors. "
                "Pass --set layers=300"
            )
        return self

    @property
    def clicks(self) -> int:
        """How many of the compared items were clicked: at least one, and not all."""
        return min(max(round(self.compared * (1 - self.negative_share)), 1), self.compared - 1)


class FederatedTowers(TwoTowers, FederationSettings):
    rounds: int = Field(1000, ge=1)
    """Communication rounds."""
    users_per_round: int = Field(50, ge=1)
    """Users in the cohort of a round (K)."""
    decay: Literal["gentle", "literal", "none"] = "gentle"
    """How the learning rate falls every 10 rounds (in the paper, a "decay factor of 0.01"): by 1 %
    (gentle), to 1 % (literal), or not at all."""

    @property
    def n_steps(self) -> int:
        return self.rounds

    @property
    def on_gpu(self) -> bool:
        return self.device == "cuda"

    def selecting_more(self, factor: float) -> Self:
        return self.model_copy(update={"users_per_round": math.ceil(self.users_per_round * factor)})

    def learning_rate_at(self, t: int) -> float:
        """The learning rate of round t = 0, 1, ..."""
        factor = {"gentle": 0.99, "literal": 0.01, "none": 1.0}[self.decay]
        rate: float = self.learning_rate * factor ** (t // 10)
        return rate

    @property
    def request_policy(self) -> str:
        """How a client chooses the negatives of its requests: anew in every round."""
        return "resampled"


class SplitTowers(FederatedTowers):
    requests: Literal["resampled", "sticky", "whole"] = "resampled"
    """How a client hides its clicks when it requests item vectors: among negatives drawn anew in
    every round, as in the paper (resampled); among a fixed set (sticky); or by requesting all items
    (whole)."""

    @property
    def request_policy(self) -> str:
        """How a client chooses the items of its requests."""
        return self.requests
