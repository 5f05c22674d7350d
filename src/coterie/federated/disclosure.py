"""Disclosure rates: the share of what a person liked that their device lets be known, which everybody sets for themselves.

A rate is one number for all, a number drawn by every device from a distribution, or what people said in a file, from any
epoch on. A disclosure rate is not a privacy guarantee.
"""

from __future__ import annotations

import re

import numpy as np
from pydantic import field_validator

from coterie.core import streams
from coterie.federated.federation import NodeData
from coterie.federated.settings import FederationSettings
from coterie.types import Bools, Doubles, Floats, Ints, Longs

DRAWN = re.compile(r"(uniform|beta|choice)\(([^()]*)\)")
RULE = "expected a number from 0 to 1, uniform(low, high), beta(a, b) or choice(rate, rate, ...)"


class Disclosing(FederationSettings):
    disclosure: float | str = 1.0
    """Share of the updates of chosen items that a user sends (pi): a number for all, or what everybody draws from: uniform(low, high), beta(a, b), choice(rate, ...). A disclosure rate, not a privacy guarantee."""
    disclosure_file: str | None = None
    """A file of user_id,disclosure and, if rates change, epoch: who is not in it keeps to `disclosure`."""
    private_items: str | None = None
    """A file of user_id,item_id: what people never share, whatever their rate."""

    @field_validator("disclosure")
    @classmethod
    def _known(cls, value: float | str) -> float | str:
        parse(value)
        return value


def parse(value: float | str) -> tuple[str, tuple[float, ...]]:
    """A number for all is a choice of one."""
    if not isinstance(value, str):
        return "choice", _between(float(value))
    found = DRAWN.fullmatch(value.replace(" ", ""))
    try:
        name, numbers = (
            (found[1], tuple(map(float, found[2].split(","))))
            if found
            else ("choice", (float(value),))
        )
    except ValueError:
        raise ValueError(RULE) from None
    if name == "beta":
        if len(numbers) != 2 or not all(0 < n < np.inf for n in numbers):
            raise ValueError("expected beta(a, b) with two numbers above 0")
        return name, numbers
    _between(*numbers)
    if name == "uniform" and (len(numbers) != 2 or numbers[0] > numbers[1]):
        raise ValueError("expected uniform(low, high) with low at most high")
    return name, numbers


def _between(*numbers: float) -> tuple[float, ...]:
    if not all(0 <= n <= 1 for n in numbers):
        raise ValueError(RULE)
    return numbers


def rates(settings: Disclosing, node: NodeData, users: Ints, epochs: Ints | Longs) -> Floats:
    """The rate of each user of a node in its epoch: what the user said by then, or else drew."""
    words = streams.words(streams.keys(node.seed, "disclosure", last=users), 0) >> np.uint64(11)
    drawn = _quantile(settings, (words.astype(np.float64) + 0.5) * 2.0**-53).astype(np.float32)
    if node.training.preferences is None:
        return drawn
    said = node.training.preferences.rates_at(node.positions(users), epochs)
    return np.where(np.isnan(said), drawn, said)


def hidden(node: NodeData) -> Bools:
    """Which positives of a node's users are never disclosed."""
    preferences = node.training.preferences
    return (
        np.zeros(len(node.training.positives.items), bool)
        if preferences is None
        else preferences.hidden
    )


def _quantile(settings: Disclosing, uniform: Doubles) -> Doubles:
    name, numbers = parse(settings.disclosure)
    if name == "uniform":
        return numbers[0] + (numbers[1] - numbers[0]) * uniform
    if name == "choice":
        return np.array(numbers)[(uniform * len(numbers)).astype(np.int64)]
    from scipy.special import betaincinv

    return np.asarray(betaincinv(numbers[0], numbers[1], uniform))
