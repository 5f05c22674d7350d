"""Disclosure rates: the share of a user's positive items whose updates the device sends (FPL's pi).

A rate is one number for all users, a number that every device draws from a distribution, or a
user's own choice from a file, which may change by epoch. A disclosure rate is not a privacy
guarantee.
"""

from __future__ import annotations

import re

import numpy as np
from pydantic import Field, field_validator

from coterie.core import streams
from coterie.federated.federation import NodeData
from coterie.federated.settings import FederationSettings
from coterie.types import Bools, Doubles, Floats, Ints, Longs

DISTRIBUTION = re.compile(r"(uniform|beta|choice)\(([^()]*)\)")
NOTHING: Bools = np.empty(0, bool)
RULE = "expected a number from 0 to 1, uniform(low, high), beta(a, b) or choice(rate, rate, ...)"


class Disclosing(FederationSettings):
    """Settings of algorithms with disclosure rates."""

    disclosure: float | str = Field(
        1.0,
        description=(
            "Share of the updates of chosen items that a user sends (pi): a number for all users, "
            "or a distribution that each user draws from: uniform(low, high), beta(a, b), "
            "choice(rate, ...). A disclosure rate, not a privacy guarantee."
        ),
    )
    disclosure_file: str | None = None
    """A file of user_id,disclosure and, if rates change, epoch. Others use `disclosure`."""
    private_items: str | None = None
    """A file of user_id,item_id: items that users never share, whatever their rate."""

    @field_validator("disclosure")
    @classmethod
    def _valid_disclosure(cls, value: float | str) -> float | str:
        parse(value)
        return value


def parse(value: float | str) -> tuple[str, tuple[float, ...]]:
    """The distribution's name and parameters; one number for all is a choice of one."""
    if not isinstance(value, str):
        return "choice", _in_unit_interval(float(value))
    match = DISTRIBUTION.fullmatch(value.replace(" ", ""))
    name = match[1] if match else "choice"
    texts = match[2].split(",") if match else [value]
    try:
        numbers = tuple(map(float, texts))
    except ValueError:
        raise ValueError(RULE) from None
    if name == "beta":
        if len(numbers) != 2 or not all(0 < n < np.inf for n in numbers):
            raise ValueError("expected beta(a, b) with two numbers above 0")
        return name, numbers
    _in_unit_interval(*numbers)
    if name == "uniform" and (len(numbers) != 2 or numbers[0] > numbers[1]):
        raise ValueError("expected uniform(low, high) with low at most high")
    return name, numbers


def _in_unit_interval(*numbers: float) -> tuple[float, ...]:
    if not all(0 <= n <= 1 for n in numbers):
        raise ValueError(RULE)
    return numbers


def rates(settings: Disclosing, node: NodeData, users: Ints, epochs: Ints | Longs) -> Floats:
    """The rate of each user of a node in its epoch: from the file, or else drawn."""
    words = streams.words(streams.keys(node.seed, "disclosure", last=users), 0) >> np.uint64(11)
    drawn = _quantile(settings, (words.astype(np.float64) + 0.5) * 2.0**-53).astype(np.float32)
    if node.training.preferences is None:
        return drawn
    chosen = node.training.preferences.rates_at(node.positions(users), epochs)
    return np.where(np.isnan(chosen), drawn, chosen)


def hidden(node: NodeData) -> Bools:
    """Which positives of a node's users are private and never disclosed; empty if none are."""
    preferences = node.training.preferences
    return NOTHING if preferences is None else preferences.hidden


def _quantile(settings: Disclosing, uniform: Doubles) -> Doubles:
    """The quantiles of the settings' distribution at uniform numbers in (0, 1)."""
    name, numbers = parse(settings.disclosure)
    if name == "uniform":
        return numbers[0] + (numbers[1] - numbers[0]) * uniform
    if name == "choice":
        return np.array(numbers)[(uniform * len(numbers)).astype(np.int64)]
    from scipy.special import betaincinv

    return np.asarray(betaincinv(numbers[0], numbers[1], uniform))
