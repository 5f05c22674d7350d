"""Settings of every federated run: the round, and what a device does in it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from coterie.settings import Settings


class Federated(Settings):
    model: Literal["gmf"] = "gmf"
    """What is trained."""
    embedding_size: int = Field(16, ge=1, le=4096)
    """Length of every user and item row."""
    rounds: int = Field(300, ge=1)
    """Rounds of communication."""
    participation: float = Field(0.1, gt=0, le=1)
    """Share of the users that takes part in a round (alpha)."""
    local_epochs: int = Field(1, ge=1)
    """Passes of a device over its own data in a round."""
    learning_rate: float = Field(0.05, gt=0)
    """Step size on the device."""
    reg: float = Field(0.01, ge=0)
    """Regularisation of user and item rows."""
    negatives: int = Field(4, ge=1)
    """Negatives drawn for every positive (implicit feedback)."""
    start_scale: float = Field(0.1, ge=0)
    """Standard deviation of the start values."""
    drop_out: float = Field(0.0, ge=0, lt=1)
    """Share of a round's users that never answer."""
    nodes: int = Field(1, ge=1, le=1000)
    """Simulated nodes that share out the users; more than one speak through the wire format."""
