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


class Effect(NamedTuple):
    """The figure that a verdict rests on: one line of the page's plot of effects."""

    label: str
    """What was compared: "HR@10: fedfast, fedavg"."""
    scale: Literal["difference", "ratio"]
    value: float
    low: float
    high: float
    """The confidence interval over users of a difference; the range over seeds of a ratio."""
    threshold: float
    """Where the claim begins to hold: 0 for a difference, 1 for a ratio, or as the claim says."""
    p: float | None = None
    """Corrected by Holm's method over all tests of the dataset."""
    tolerance: bool = False
    """Whether the claim is that the difference is within the threshold, on either side of zero."""


class ClaimPart(NamedTuple):
    """One tested part of a claim, such as one metric."""

    verdict: Holds
    evidence: str
    """Our figures, in one short line."""
    effect: Effect | None = None


class Verdict(NamedTuple):
    """The verdict on a claim for one dataset."""

    verdict: Holds
    parts: tuple[ClaimPart, ...]

    @classmethod
    def of(cls, verdict: Holds, evidence: str, effect: Effect | None = None) -> Verdict:
        """The verdict on a claim of a single part."""
        return cls(verdict, (ClaimPart(verdict, evidence, effect),))

    def to_json(self) -> JsonObject:
        parts = [
            {
                "verdict": part.verdict,
                "evidence": part.evidence,
                "effect": part.effect._asdict() if part.effect else None,
            }
            for part in self.parts
        ]
        return {"verdict": self.verdict, "parts": parts}


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
    ours: bool = False
    """The paper does not make this claim; it is counted apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsSearch:
    """How the settings of a method were found."""

    trials: int
    """Number of settings tried on the validation part; 0 means that the paper gives them."""
    space: Mapping[str, Any] = field(default_factory=dict)
    """Setting -> the values tried, or the smallest and largest one."""
    note: str = ""
    """What a reader should know: not converged, or chosen for another method."""


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
    searches: Mapping[str, SettingsSearch] = field(default_factory=dict)
    """Method -> how its settings were found."""
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
