"""src/coterie/federated/settings.py."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from coterie.core.settings import Settings


class FederationSettings(Settings):
    """Of every federation that is played here."""

    client_dropout: float = Field(0.0, ge=0, lt=1)
    """Share of a round's users that never answer."""
    availability: Literal["always", "diurnal", "stretches"] = "always"
    """Who can be asked in a round: everybody, whoever is there at that time of day, or everybody but a third of the run."""
    availability_file: str | None = None
    """A trace of devices in place of a pattern: a file of user_id, from_round and to_round, in which a user is there."""
    rounds_per_day: int = Field(24, ge=2)
    """Rounds in a day, where availability is diurnal."""
    deadline: float = Field(0.0, ge=0)
    """A round closes after so many times what the median device takes; who is later is not heard. 0 waits for everybody."""
    over_selection: float = Field(0.0, ge=0, le=10)
    """Users asked beyond those needed, as a share of them; the first who answer are heard."""
    engine: Literal["local", "ray"] = "local"
    """Where nodes run: in this process, or as actors on a Ray cluster. The outcome is the same."""
    nodes: int = Field(0, ge=0, le=1000)
    """Nodes that share out the users; more than one speak through the wire format. 0 is one, with Ray one for every core."""
    cluster: str = ""
    """Address of a Ray cluster; none starts one on this machine."""
    secure_aggregation: Literal["none", "ring"] = "none"
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
        if self.secure_aggregation == "ring" and self.over_selection:
            raise ValueError(
                f"setting 'over_selection' is {self.over_selection!r}, but secure_aggregation is 'ring', and a ring cannot close before its members have "
                "answered; expected one of the two. Leave one out"
            )
        return self

    @model_validator(mode="after")
    def _rings_are_asked_for(self) -> Self:
        """Nobody should think that a ring protects a run which has none."""
        fields = type(self).model_fields
        for name in ("ring_size", "ring_rows", "ring_way"):
            if self.secure_aggregation == "none" and getattr(self, name) != fields[name].default:
                raise ValueError(
                    f"setting {name!r} is {getattr(self, name)!r}, but secure_aggregation is 'none'; expected rings. Set secure_aggregation=ring, or leave it out"
                )
        return self

    @property
    def n_steps(self) -> int:
        """Steps of the whole training: rounds, or epochs where the paper counts in epochs."""
        raise NotImplementedError(f"{type(self).__name__} does not say how many steps it has")

    @property
    def on_gpu(self) -> bool:
        """Whether clients are simulated on a GPU."""
        return False

    def selecting_more(self, factor: float) -> Self:
        """The same settings with cohorts larger by a factor, for over-selection."""
        raise NotImplementedError(f"{type(self).__name__} does not say how large a cohort is")


def federation_settings(settings: Settings) -> FederationSettings:
    """The settings of a federated algorithm, for code that handles every algorithm."""
    if not isinstance(settings, FederationSettings):
        raise TypeError(f"{type(settings).__name__} are not the settings of a federated algorithm")
    return settings
