"""Settings of federated runs: the rounds, and the local training of a client."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from coterie.core.settings import SearchSpace
from coterie.federated.settings import FederationSettings


def as_sequence(value: object) -> object:
    """Accept layer sizes from the command line, where 32,16,8 is a string and 32 a number."""
    if isinstance(value, str):
        return value.split(",")
    return (value,) if isinstance(value, int) and not isinstance(value, bool) else value


Size = Annotated[int, Field(ge=1, le=4096)]
Layers = Annotated[
    tuple[Size, ...], BeforeValidator(as_sequence), Field(min_length=1, max_length=8)
]


class CohortSettings(FederationSettings):
    """Settings of an algorithm whose cohort is a share of the users, drawn every round."""

    rounds: int = Field(300, ge=1)
    """Communication rounds."""
    participation: float = Field(0.1, gt=0, le=1)
    """Share of the users in the cohort of a round (alpha)."""

    @property
    def n_steps(self) -> int:
        return self.rounds

    def selecting_more(self, factor: float) -> Self:
        share = min(1.0, self.participation * factor)
        return self.model_copy(update={"participation": share})


class Federated(CohortSettings):
    search_space: ClassVar[SearchSpace] = {
        "learning_rate": (0.005, 0.5),
        "reg": (1e-4, 0.1),
        "negatives": [2, 4, 8],
        "start_scale": [0.03, 0.1, 0.3],
        "local_epochs": [1, 2, 5],
        "final_rate": [0.03, 0.1, 1.0],
        "embedding_size": [8, 16, 32, 64],
    }

    model: Literal["gmf", "mlp", "neumf"] = "gmf"
    """Model to train; mlp is neumf without its GMF part."""
    embedding_size: int = Field(16, ge=1, le=4096)
    """Length of every user and item row; for neumf and mlp, of each of the two parts of a row."""
    layers: Layers = (32, 16, 8)
    """Layer sizes of the tower of neumf and mlp, from below; gmf ignores it."""
    local_epochs: int = Field(1, ge=1)
    """Passes of a client over its own data in a round."""
    optimizer: Literal["sgd", "adam"] = "sgd"
    """Optimiser of the clients. With neumf and mlp, Adam needs PyTorch."""
    moments: Literal["fresh", "averaged"] = "fresh"
    """Adam's moments: fresh ones start at zero in every round and stay on the client; averaged ones
    are sent and averaged like the parameters, at three times the bytes (gmf on the CPU only)."""
    batch_size: int = Field(1, ge=1)
    """Samples per local step (their mean gradient). Of neumf and mlp, more than one needs
    PyTorch."""
    learning_rate: float = Field(0.05, gt=0)
    """Learning rate of the clients."""
    final_rate: float = Field(1.0, gt=0, le=1)
    """Share of the learning rate left in the last round; it falls by the same factor each round."""
    reg: float = Field(0.01, ge=0)
    """Regularisation of user and item rows."""
    negatives: int = Field(4, ge=1)
    """Negatives drawn per positive (implicit feedback)."""
    start_scale: float = Field(0.1, ge=0)
    """Standard deviation of the initial values."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where clients are simulated: compiled kernels on the CPU, or batched PyTorch on a GPU."""

    @model_validator(mode="after")
    def _averaged_moments_need_adam(self) -> Federated:
        supported = (self.optimizer, self.model, self.device) == ("adam", "gmf", "cpu")
        if self.moments == "averaged" and not supported:
            raise ValueError(
                "moments=averaged needs optimizer=adam, model=gmf and device=cpu, but these are "
                f"{self.optimizer}, {self.model} and {self.device}. "
                "Set them so, or set moments=fresh"
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
        """Whether the kernels without batches apply, which are the fastest."""
        return self.batch_size == 1 and self.optimizer == "sgd"
