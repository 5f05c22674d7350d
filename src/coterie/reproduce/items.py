"""What a paper's experiments are made of, as data: the list of a paper reads like its section on experiments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from coterie.experiments.plan import Method

Holds = Literal["holds", "holds in part", "does not hold", "cannot be tested"]
Rows = dict[str, dict[str, Any]]


class Verdict(NamedTuple):
    """What became of a claim on one dataset."""

    verdict: Holds
    found: str
    """Our numbers, the paired test and its interval where there is one."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two methods that are to be compared user by user."""

    first: str
    other: str


Check = Callable[[Mapping[str, Any]], Verdict]
"""Of what was found on one dataset; see `found.py`."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence of a paper's that can be tested, or why it cannot."""

    name: str
    said: str
    where: str
    check: Check
    datasets: tuple[str, ...] = ()
    """Those that it is about; all of its item where none is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Methods on one dataset, and what the paper prints for them."""

    dataset: str
    methods: tuple[Method, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    protocol: str | None = None
    seeds: int = 3
    paper: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """By method, in the order of the item's metrics."""
    part: Literal["test", "validation"] = "test"
    stand_in: bool = False
    """Made-up data in place of what is not at hand: it shows that everything runs, and tests no claim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What is measured of a running system and is no accuracy: times and bytes of messages."""

    dataset: str
    measure: Callable[[], Rows]
    """Row -> column -> number."""
    paper: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A table or figure of a paper."""

    key: str
    title: str
    about: str = ""
    """What a reader has to know to read it."""
    metrics: tuple[str, ...]
    trials: tuple[Trial | Measurement, ...]
    by: str = ""
    """The setting that its figure is drawn over; without one, its figure is drawn over rounds."""
    quick_at: tuple[float, ...] = ()
    """What of that setting a quick look is at; everything where nothing is named."""
    claims: tuple[Claim, ...] = ()
    absent: tuple[str, ...] = ()
    """What of it cannot be repeated, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    name: str
    title: str
    reference: str
    items: tuple[Item, ...]
    quick: Mapping[str, float] = field(default_factory=dict)
    """Settings that a quick look does not exceed."""
