"""Settings of differential privacy. A run without `epsilon` has none."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from coterie.core.settings import Settings
from coterie.federated.privacy.accountant import MAX_EPSILON, MIN_EPSILON, default_delta

MAX_MULTIPLIER = 1e4
"""With more, what a user adds to a sum would be few grid units."""


class PrivacySettings(Settings):
    """What a run of any algorithm may spend."""

    epsilon: float | None = Field(None, ge=MIN_EPSILON, le=MAX_EPSILON)
    """Privacy budget of each user for the whole run (user-level differential privacy); without it
    no noise is added."""
    delta: float | None = Field(None, gt=0, lt=1)
    """Delta of differential privacy; by default 1e-5 or users^-1.1, whichever is less."""
    noise_multiplier: float | None = Field(None, gt=0, le=MAX_MULTIPLIER)
    """Standard deviation of the noise, as a multiple of what one user can add to a sum; by default
    the least with which the whole run stays within epsilon. With less, training stops before the
    round that would exceed epsilon (exit code 4)."""
    noise_source: Literal["seeded", "system"] = "seeded"
    """Where noise comes from in a simulation: the seed of the run, so that results repeat, or the
    operating system. A federation always takes the latter."""

    @model_validator(mode="after")
    def _others_need_epsilon(self) -> Self:
        for name in ("delta", "noise_multiplier"):
            value = getattr(self, name)
            if value is not None and self.epsilon is None:
                raise ValueError(
                    f"setting {name!r} is {value}, but 'epsilon' is not set; expected both or "
                    "epsilon alone. Add --epsilon VALUE"
                )
        return self

    def delta_for(self, n_users: int) -> float:
        """Delta as set, or the default for so many users."""
        return default_delta(n_users) if self.delta is None else self.delta


def is_private(settings: Settings) -> bool:
    """Whether a run has a privacy budget."""
    return isinstance(settings, PrivacySettings) and settings.epsilon is not None


def noise_kernels(settings: Settings) -> tuple[str, ...]:
    """The kernel families that a private run needs."""
    return ("discrete_gaussian",) if is_private(settings) else ()


def clipping_kernels(settings: Settings) -> tuple[str, ...]:
    """The kernel families that a private run needs whose clients clip their updates."""
    return ("norms", *noise_kernels(settings)) if is_private(settings) else ()
