"""Settings of everything with two towers."""

from __future__ import annotations

import math
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from coterie.algorithms.local.settings import Layers
from coterie.algorithms.two_tower import TOWERS, Tower, tower
from coterie.core.settings import Settings
from coterie.data.content import Person
from coterie.federated.settings import FederationSettings
from coterie.models.directions import Precision


class TwoTowers(Settings):
    tower: str = "dssm"
    """What reads items and people: dssm or clsm."""
    embedding_size: int = Field(128, ge=1, le=4096)
    """Length of the vectors that towers make."""
    layers: Layers | None = None
    """Widths of the layers below, from below; as published by default: 256,128 (dssm) or 300 (clsm)."""
    inputs: int = Field(1100, ge=1, le=1 << 20)
    """How many inputs letter trigrams are hashed into."""
    most_words: int = Field(50, ge=1)
    """Words of a text that clsm reads."""
    person: Person = "auto"
    """What is told of people: their features, titles of what they did, or features where the data has any."""
    titles: int = Field(5, ge=1, le=100)
    """How many titles tell of a person."""
    smoothing: float = Field(1.0, gt=0)
    """What cosines are multiplied by in the softmax; the paper's is 1, that of Huang et al. (2013) was searched."""
    negative_share: float = Field(0.9, gt=0, lt=1)
    """Share of the items that a click is compared in that were not clicked (rho)."""
    compared: int = Field(10, ge=2, le=200)
    """How many items are compared at a time (T)."""
    learning_rate: float = Field(1e-4, gt=0)
    """Step size of Adam."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """How much of the mean gradient Adam remembers."""
    beta2: float = Field(0.99, ge=0, lt=1)
    """How much of the mean squared gradient Adam remembers."""
    tau: float = Field(1e-8, gt=0)
    """What is added to the root of the mean squared gradient."""
    dropout: float = Field(0.2, ge=0, lt=1)
    """Share of hidden units that are hidden in training."""
    start_scale: float = Field(0.1, ge=0)
    """Standard deviation of the start values of weights and biases."""
    precision: Precision = "float32"
    """How items' vectors travel to whoever ranks with them: float16 is half the bytes, int8 a quarter."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where towers are computed."""

    @field_validator("tower")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in TOWERS:
            raise ValueError(f"expected one of {', '.join(TOWERS)}")
        return value

    @property
    def kind(self) -> Tower:
        return tower(self.tower)

    @property
    def widths(self) -> tuple[int, ...]:
        """Of all layers of a tower; the last is that of the vector."""
        return (*(self.layers or self.kind.layers), self.embedding_size)

    @model_validator(mode="after")
    def _as_many_layers_as_the_tower_has(self) -> TwoTowers:
        if self.layers and self.tower == "clsm" and len(self.layers) != 1:
            raise ValueError(
                f"layers is {self.layers}, but clsm has one layer below its vectors. Pass --set layers=300"
            )
        return self

    @property
    def clicks(self) -> int:
        """How many of the items compared were clicked: at least one, and not all."""
        return min(max(round(self.compared * (1 - self.negative_share)), 1), self.compared - 1)


class FederatedTowers(TwoTowers, FederationSettings):
    rounds: int = Field(1000, ge=1)
    """Rounds of communication."""
    users_per_round: int = Field(50, ge=1)
    """How many users take part in a round (K)."""
    decay: Literal["gentle", "literal", "none"] = "gentle"
    """"Decay factor of 0.01 after every 10 rounds": the rate loses a hundredth, or all but a hundredth, or nothing."""

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
    def asks(self) -> str:
        """How items that nobody clicked are chosen: drawn anew every round."""
        return "resampled"


class SplitTowers(FederatedTowers):
    requests: Literal["resampled", "sticky", "whole"] = "resampled"
    """How a device hides clicks when it asks for vectors: among items drawn anew every round, as in the paper; among items that
    it keeps; or by asking for all."""

    @property
    def asks(self) -> str:
        return self.requests
