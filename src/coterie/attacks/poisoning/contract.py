"""The contract of a poisoning attack: pure functions of what colluders see.

An attack receives the message that the server sent to its clients, the updates that they would
send honestly, and its own memory of earlier messages. It returns the updates that they send. All
of it is in the wire format, so that an attacked node could talk to a real server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from pydantic import Field

from coterie.attacks.poisoning.colluders import Colluders
from coterie.attacks.poisoning.surface import Surface
from coterie.core.settings import Settings
from coterie.federated.federation import AnyWorld
from coterie.types import Message, Rows, Updates

Memory: TypeAlias = Mapping[str, np.ndarray]
"""What colluders remember between rounds, by name. It is empty before the first."""


class AttackSettings(Settings):
    """Settings of every attack."""

    active: float = Field(1.0, gt=0, le=1)
    """Share of the rounds in which a colluder attacks, drawn for each colluder and round."""
    otherwise: Literal["honest", "away"] = "honest"
    """What a colluder does in other rounds: send its honest update, or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackView:
    """What the colluders of a cohort see in one exchange, and what they can compute."""

    world: AnyWorld
    """What every node knows: the settings of the run and the size of the data."""
    message: Message
    """The message to the colluders."""
    honest: Updates
    """What they would send honestly."""
    histories: Rows
    """Their own histories, in the order of the message's users."""
    colluders: Colluders
    memory: Memory
    rng: np.random.Generator
    train_on: Callable[[Rows], Updates]
    """Other histories -> what the colluders would send if these were theirs."""

    @property
    def target(self) -> int:
        return self.colluders.target


AnySettings: TypeAlias = Any
"""The settings of one attack: its functions know which."""


def remember_nothing(memory: Memory, message: Message) -> Memory:
    return memory


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackKind:
    """A poisoning attack, whatever its settings."""

    summary: str
    settings: type[AttackSettings]
    poison: Callable[[AttackView, AnySettings], Updates]
    """(view, settings) -> the updates that the colluders send in a round."""
    paper: str = ""
    poison_setup: Callable[[AttackView, AnySettings], Updates] | None = None
    """The same for the exchange before the first round; None where they stay honest in it."""
    remember: Callable[[Memory, Message], Memory] = remember_nothing
    """(memory, message) -> the memory after a round's message, once a round."""
    refusal: Callable[[Surface], str] = lambda surface: ""
    """Why the attack makes no sense for an algorithm; "" where it does."""
    is_targeted: bool = False
    """Whether it promotes the target, and does not only do damage."""


@dataclass(frozen=True, slots=True)
class PoisoningAttack:
    """A poisoning attack with its settings."""

    name: str
    kind: AttackKind
    settings: AttackSettings
