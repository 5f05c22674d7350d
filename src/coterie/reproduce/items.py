"""The records that declare a paper's experiments: tables, figures, trials and claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from coterie.experiments.plan import Method
from coterie.types import JsonObject

Holds = Literal["holds", "holds in part", "does not hold", "cannot be tested"]
MeasuredRows: TypeAlias = dict[str, dict[str, float]]
"""Row -> column -> value of a measurement."""


class Verdict(NamedTuple):
    """The verdict on a claim for one dataset."""

    verdict: Holds
    evidence: str
    """Our numbers, with the paired test and its confidence interval where there is one."""


@dataclass(frozen=True, slots=True)
class MethodPair:
    """Two methods that are compared user by user."""

    first: str
    other: str


Check = Callable[[JsonObject], Verdict]
"""Takes the findings of one dataset; `findings.py` documents their keys."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement of a paper with the check that tests it."""

    name: str
    text: str
    where: str
    check: Check
    datasets: tuple[str, ...] = ()
    """The datasets the claim is about; empty means all datasets of its item."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Methods on one dataset, and the figures the paper prints for them."""

    dataset: str
    methods: tuple[Method, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    protocol: str | None = None
    seeds: int = 3
    paper: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Method -> figures, in the order of the item's metrics."""
    part: Literal["test", "validation"] = "test"
    stand_in: bool = False
    """The data is synthetic and replaces a dataset that is not available. It tests no claim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A measurement of the running system other than accuracy: times, message sizes, counts."""

    dataset: str
    measure: Callable[[], MeasuredRows]
    paper: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Row -> figures, in the order of the item's metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A table or figure of a paper."""

    key: str
    title: str
    about: str = ""
    """What a reader needs to know to read it."""
    metrics: tuple[str, ...]
    trials: tuple[Trial | Measurement, ...]
    by: str = ""
    """The setting on the x-axis of its figure; empty means rounds."""
    quick_at: tuple[float, ...] = ()
    """The values of that setting that a quick look runs; empty means all."""
    claims: tuple[Claim, ...] = ()
    absent: tuple[str, ...] = ()
    """The parts that are not reproduced, each with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """A paper: its reference, its tables and figures, and the limits of a quick look."""

    name: str
    title: str
    reference: str
    items: tuple[Item, ...]
    quick: Mapping[str, float] = field(default_factory=dict)
    """Upper limits of settings in a quick look."""
