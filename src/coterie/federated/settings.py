"""Settings of every simulated federation: dropout, availability, engine, secure aggregation."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from coterie.core.settings import Settings
from coterie.federated.privacy.settings import PrivacySettings

PROTOCOL_SETTINGS = {
    "ring": ("ring_size", "ring_rows", "ring_shares"),
    "secagg": ("group_size", "holders", "colluders", "smallest_group", "group_rows"),
}
"""The settings of each protocol of secure aggregation."""


class FederationSettings(PrivacySettings):
    """Settings that all simulated federations share."""

    client_dropout: float = Field(0.0, ge=0, lt=1)
    """Share of a round's clients that drop out."""
    availability: Literal["always", "diurnal", "stretches", "heavy_away"] = "always"
    """Available clients: all; by time of day; all but for one stretch of a third of the run each;
    or all but the tenth with the most interactions, each away for two thirds of the run."""
    availability_file: str | None = None
    """An availability trace in place of a pattern: a file of user_id, from_round and to_round."""
    rounds_per_day: int = Field(24, ge=2)
    """Rounds in a day, for diurnal availability."""
    deadline: float = Field(0.0, ge=0)
    """A round closes after this multiple of the median client's time; 0 waits for all clients."""
    over_selection: float = Field(0.0, ge=0, le=10)
    """Share of clients selected beyond those needed; the first to reply are aggregated."""
    engine: Literal["local", "ray"] = "local"
    """Where nodes run: in this process, or as actors on a Ray cluster. Results are the same."""
    nodes: int = Field(0, ge=0, le=1000)
    """Nodes that share the users; several use the wire format. 0 is one, with Ray one per core."""
    cluster: str = ""
    """Address of a Ray cluster; empty starts one on this machine."""
    secure_aggregation: Literal["none", "secagg", "ring"] = "none"
    """Protection of single updates from servers: none; `secagg`, which withstands a server that
    lies; or `ring`, STTFedRec's protocol for a server that is curious but honest."""
    group_size: int = Field(100, ge=5, le=1000)
    """secagg: largest number of users in a group, up to 1,000, and at least twice smallest_group
    less one: a round is split into groups of about the same size."""
    holders: int = Field(50, ge=2, le=200)
    """secagg: users that hold shares of each user's secrets, up to 200. More withstand more
    dropouts."""
    colluders: int = Field(2, ge=0, le=100)
    """secagg: how many of a user's holders may collude with the server."""
    smallest_group: int = Field(10, ge=3, le=1000)
    """secagg: smallest group that a client takes part in, at least three more than colluders. A
    server that composes groups could put its colluders into a small one."""
    group_rows: Literal["all", "union"] = "all"
    """secagg: item rows that a group sums: all, or those its users touched, found in secret."""
    robust: Literal["none", "bounded", "trimmed", "groups"] = "none"
    """Defence against hostile clients: none; bounds on what a client sends, from all clients of the
    round; bounds, and extremes of each component trimmed; or bounds, and extreme sums over groups
    of clients left out. Compares updates in the clear: only groups goes with secure aggregation,
    without bounds, and none with epsilon. trimmed halves the accuracy of fcf and fedmvmf, and costs
    fedfast much of it."""
    clip: float = Field(0.3, gt=0)
    """Under a privacy budget: the largest L2 norm of an update; longer ones are shortened. For
    algorithms whose clients send updates of a model."""
    noise: Literal["central", "distributed", "local"] = "central"
    """Who draws the noise of differential privacy: the server, which is trusted to; all clients of
    a secagg group together, so that the server never sees a sum without it; or each client alone,
    which costs most accuracy."""
    sampling: Literal["fixed", "poisson"] = "fixed"
    """How a cohort is drawn: so many clients, or each client by itself with the same probability
    (Poisson). With noise=central the latter needs less noise. It counts only against those who do
    not know the cohorts, and never against the server."""
    noise_margin: float = Field(0.1, ge=0, lt=1)
    """noise=distributed: share of a group's clients that may drop out. A group in which more do is
    abandoned; fewer leave up to 1 / (1 - noise_margin) of the noise that is needed."""
    ring_size: int = Field(50, ge=5, le=50)
    """ring: largest number of users in a ring, 5 to 50. A device's work does not grow with it."""
    ring_rows: Literal["all", "union"] = "all"
    """ring: item rows that are summed: all, or those users touched (the server learns whose)."""
    ring_shares: Literal["seed", "vector"] = "seed"
    """ring: what a user sends the next one: a 32-byte seed, or the vector it expands to."""

    @model_validator(mode="after")
    def _one_source_of_availability(self) -> Self:
        if self.availability_file is not None and self.availability != "always":
            raise ValueError(
                f"setting 'availability' is {self.availability!r}, and availability_file is "
                f"{self.availability_file!r}; expected one of the two. Leave one out"
            )
        return self

    @model_validator(mode="after")
    def _no_over_selection_in_secret(self) -> Self:
        if self.secure_aggregation != "none" and self.over_selection:
            raise ValueError(
                f"setting 'over_selection' is {self.over_selection!r}, but secure_aggregation is "
                f"{self.secure_aggregation!r}, which cannot close before its clients have replied; "
                "expected one of the two. Leave one out"
            )
        return self

    @model_validator(mode="after")
    def _defences_see_updates(self) -> Self:
        in_groups = self.robust == "groups" and self.epsilon is None
        hidden = self.secure_aggregation != "none" or self.epsilon is not None
        if self.robust != "none" and hidden and not in_groups:
            raise ValueError(
                f"setting 'robust' is {self.robust!r}, with secure_aggregation="
                f"{self.secure_aggregation} and epsilon={self.epsilon}; expected neither: a "
                "defence compares single updates, and bounds from other clients are not private. "
                "Set robust=none, or robust=groups with secure aggregation"
            )
        return self

    @model_validator(mode="after")
    def _settings_need_their_protocol(self) -> Self:
        """A setting without its protocol is an error: it must not look like protection."""
        fields = type(self).model_fields
        for protocol, names in PROTOCOL_SETTINGS.items():
            for name in names:
                value = getattr(self, name)
                if self.secure_aggregation != protocol and value != fields[name].default:
                    raise ValueError(
                        f"setting {name!r} is {value!r}, but secure_aggregation is "
                        f"{self.secure_aggregation!r}; expected {protocol!r}. "
                        f"Set secure_aggregation={protocol}, or leave the setting out"
                    )
        return self

    @model_validator(mode="after")
    def _poisson_sampling_is_for_privacy(self) -> Self:
        if self.sampling == "poisson" and (self.epsilon is None or self.noise != "central"):
            raise ValueError(
                f"setting 'sampling' is 'poisson', with epsilon={self.epsilon} and "
                f"noise={self.noise}; expected a privacy budget and noise=central: a server that "
                "is not trusted knows whom it samples. Set sampling=fixed"
            )
        return self

    @model_validator(mode="after")
    def _clients_draw_noise_in_groups(self) -> Self:
        if self.noise == "central":
            return self
        if self.epsilon is None:
            raise ValueError(
                f"setting 'noise' is {self.noise!r}, but 'epsilon' is not set; expected a privacy "
                "budget. Add --epsilon VALUE, or leave noise out"
            )
        if self.secure_aggregation != "secagg" or self.group_rows != "all":
            raise ValueError(
                f"setting 'noise' is {self.noise!r}, with secure_aggregation="
                f"{self.secure_aggregation} and group_rows={self.group_rows}; expected secagg and "
                "all: clients add noise to every entry that they upload. "
                "Add --secure-aggregation secagg, or set noise=central"
            )
        return self

    @model_validator(mode="after")
    def _threshold_can_be_reached(self) -> Self:
        if self.colluders + 2 > self.holders:
            raise ValueError(
                f"setting 'colluders' is {self.colluders}, but 'holders' is {self.holders}; "
                f"expected at most {self.holders - 2}: two holders of each user must be honest. "
                "Lower colluders, or raise holders"
            )
        return self

    @model_validator(mode="after")
    def _every_group_is_large_enough(self) -> Self:
        # A round of group_size + 1 users has two groups of about half as many.
        in_group = self.fewest_in_group
        least = 2 * in_group - 1
        if self.secure_aggregation == "secagg" and self.group_size < least:
            raise ValueError(
                f"setting 'group_size' is {self.group_size}, but each group needs {in_group} users "
                f"(smallest_group, and three more than colluders); expected at least {least}: a "
                "round is split into groups of about the same size. "
                "Raise group_size, or lower smallest_group or colluders"
            )
        return self

    @property
    def largest_group(self) -> int:
        """How many users are summed in secret at most."""
        return self.ring_size if self.secure_aggregation == "ring" else self.group_size

    @property
    def fewest_in_group(self) -> int:
        """How many clients a group of `secagg` has at least: three that do not collude."""
        return max(self.colluders + 3, self.smallest_group)

    @property
    def fewest_clients(self) -> int:
        """How many clients a round needs at least, so that secure aggregation hides each."""
        return {"none": 1, "ring": 3, "secagg": self.fewest_in_group}[self.secure_aggregation]

    @property
    def is_unprotected(self) -> bool:
        """Whether all updates are summed, in the open and without noise."""
        in_the_open = self.secure_aggregation == "none" and self.epsilon is None
        return in_the_open and self.robust == "none"

    def protected(self) -> Self:
        """The same settings under secure aggregation: `secagg`, unless a protocol is set."""
        if self.secure_aggregation != "none":
            return self
        return self.model_copy(update={"secure_aggregation": "secagg"})

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
