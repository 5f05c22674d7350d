"""Settings of every federated run: the round, and what a device does in it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from coterie.federated.settings import FederationSettings


def listed(value: Any) -> Any:
    """32,16,8 on the command line is text, and 32 a number."""
    if isinstance(value, str):
        return value.split(",")
    return (value,) if isinstance(value, int) and not isinstance(value, bool) else value


Size = Annotated[int, Field(ge=1, le=4096)]
Layers = Annotated[tuple[Size, ...], BeforeValidator(listed), Field(min_length=1, max_length=8)]


class CohortSettings(FederationSettings):
    """Settings of an algorithm whose cohort is a share of the users, drawn every round."""

    rounds: int = Field(300, ge=1)
    """Rounds of communication."""
    participation: float = Field(0.1, gt=0, le=1)
    """Share of the users that takes part in a round (alpha)."""

    @property
    def n_steps(self) -> int:
        return self.rounds

    def selecting_more(self, factor: float) -> Self:
        share = min(1.0, self.participation * factor)
        return self.model_copy(update={"participation": share})


class Federated(CohortSettings):
    model: Literal["gmf", "neumf"] = "gmf"
    """What is trained."""
    embedding_size: int = Field(16, ge=1, le=4096)
    """Length of every user and item row; for neumf, of each of a row's two parts."""
    layers: Layers = (32, 16, 8)
    """Sizes of the layers of neumf's tower, from below; no other model has one."""
    local_epochs: int = Field(1, ge=1)
    """Passes of a device over its own data in a round."""
    optimizer: Literal["sgd", "adam"] = "sgd"
    """How a device takes its steps. For neumf Adam needs PyTorch."""
    moments: Literal["fresh", "averaged"] = "fresh"
    """Adam's memory: it begins anew every round and never leaves the device, or it survives: it is sent and averaged like the
    parameters it belongs to, at three times the bytes (gmf on the CPU)."""
    batch_size: int = Field(1, ge=1)
    """Samples a step: the gradient is the mean over them. For neumf more than one needs PyTorch."""
    learning_rate: float = Field(0.05, gt=0)
    """Step size on the device."""
    final_rate: float = Field(1.0, gt=0, le=1)
    """Share of the learning rate that is left in the last round; it falls by the same factor every round."""
    reg: float = Field(0.01, ge=0)
    """Regularisation of user and item rows."""
    negatives: int = Field(4, ge=1)
    """Negatives drawn for every positive (implicit feedback)."""
    start_scale: float = Field(0.1, ge=0)
    """Standard deviation of the start values."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where devices are simulated: compiled kernels on the CPU, or batched PyTorch on a GPU."""

    @model_validator(mode="after")
    def _averaged_moments_need_adam(self) -> Federated:
        if self.moments == "averaged" and (self.optimizer, self.model, self.device) != (
            "adam",
            "gmf",
            "cpu",
        ):
            raise ValueError(
                f"moments=averaged is for optimizer=adam, model=gmf and device=cpu, but these are {self.optimizer}, {self.model} "
                f"and {self.device}. Set them so, or moments=fresh"
            )
        return self

    @property
    def on_gpu(self) -> bool:
        return self.device == "cuda"

    def learning_rate_at(self, t: int) -> float:
        """The learning rate of round t = 0, 1, ..."""
        rate: float = self.learning_rate * self.final_rate ** (t / max(self.rounds - 1, 1))
        return rate

    @property
    def sample_by_sample(self) -> bool:
        """Whether the quickest kernels will do."""
        return self.batch_size == 1 and self.optimizer == "sgd"
