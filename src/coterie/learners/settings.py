"""Settings of every federated run: the round, and what a device does in it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from coterie.settings import Settings


def listed(value: Any) -> Any:
    """32,16,8 on the command line is text, and 32 a number."""
    if isinstance(value, str):
        return value.split(",")
    return (value,) if isinstance(value, int) and not isinstance(value, bool) else value


Size = Annotated[int, Field(ge=1, le=4096)]
Layers = Annotated[tuple[Size, ...], BeforeValidator(listed), Field(min_length=1, max_length=8)]


class Simulated(Settings):
    """Of every federation that is played here."""

    drop_out: float = Field(0.0, ge=0, lt=1)
    """Share of a round's users that never answer."""
    availability: Literal["always", "diurnal", "stretches"] = "always"
    """Who can be asked in a round: everybody, whoever is there at that time of day, or everybody but a third of the run."""
    availability_file: str | None = None
    """A trace of devices in place of a pattern: a file of user_id, from_round and to_round, in which a user is there."""
    rounds_a_day: int = Field(24, ge=2)
    """Rounds in a day, where availability is diurnal."""
    deadline: float = Field(0.0, ge=0)
    """A round closes after so many times what the median device takes; who is later is not heard. 0 waits for everybody."""
    over_select: float = Field(0.0, ge=0, le=10)
    """Users asked beyond those needed, as a share of them; the first who answer are heard."""
    engine: Literal["local", "ray"] = "local"
    """Where nodes run: in this process, or as actors on a Ray cluster. The outcome is the same."""
    nodes: int = Field(0, ge=0, le=1000)
    """Nodes that share out the users; more than one speak through the wire format. 0 is one, with Ray one for every core."""
    cluster: str = ""
    """Address of a Ray cluster; none starts one on this machine."""
    protect: Literal["none", "ring"] = "none"
    """What keeps single updates from servers: nothing, or rings in which users add up theirs in secret."""
    ring_size: int = Field(50, ge=5, le=50)
    """Most users of a ring, 5 to 50: what a device has to do does not grow with the cohort."""
    ring_rows: Literal["all", "union"] = "all"
    """Item rows that a ring adds up: all, or those that somebody in it touched, which the server then knows of everybody."""
    ring_way: Literal["seed", "numbers"] = "seed"
    """What members of a ring pass on: a seed of 32 bytes, or the numbers it grows into, as in the paper."""

    @model_validator(mode="after")
    def _a_pattern_or_a_trace(self) -> Self:
        if self.availability_file is not None and self.availability != "always":
            raise ValueError(
                f"setting 'availability' is {self.availability!r}, and availability_file names a trace; expected one of the two. Leave one out"
            )
        return self

    @model_validator(mode="after")
    def _a_ring_waits_for_its_members(self) -> Self:
        if self.protect == "ring" and self.over_select:
            raise ValueError(
                f"setting 'over_select' is {self.over_select!r}, but protect is 'ring', and a ring cannot close before its members have "
                "answered; expected one of the two. Leave one out"
            )
        return self

    @model_validator(mode="after")
    def _rings_are_asked_for(self) -> Self:
        """Nobody should think that a ring protects a run which has none."""
        fields = type(self).model_fields
        for name in ("ring_size", "ring_rows", "ring_way"):
            if self.protect == "none" and getattr(self, name) != fields[name].default:
                raise ValueError(
                    f"setting {name!r} is {getattr(self, name)!r}, but protect is 'none'; expected rings. Set protect=ring, or leave it out"
                )
        return self


class Federated(Simulated):
    model: Literal["gmf", "neumf"] = "gmf"
    """What is trained."""
    embedding_size: int = Field(16, ge=1, le=4096)
    """Length of every user and item row; for neumf, of each of a row's two parts."""
    layers: Layers = (32, 16, 8)
    """Sizes of the layers of neumf's tower, from below; no other model has one."""
    rounds: int = Field(300, ge=1)
    """Rounds of communication."""
    participation: float = Field(0.1, gt=0, le=1)
    """Share of the users that takes part in a round (alpha)."""
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
        if self.moments == "averaged" and (self.optimizer, self.model, self.device) != ("adam", "gmf", "cpu"):
            raise ValueError(
                f"moments=averaged is for optimizer=adam, model=gmf and device=cpu, but these are {self.optimizer}, {self.model} "
                f"and {self.device}. Set them so, or moments=fresh"
            )
        return self

    def rate_at(self, t: int) -> float:
        """The learning rate of round t = 0, 1, ..."""
        rate: float = self.learning_rate * self.final_rate ** (t / max(self.rounds - 1, 1))
        return rate

    @property
    def sample_by_sample(self) -> bool:
        """Whether the quickest kernels will do."""
        return self.batch_size == 1 and self.optimizer == "sgd"
