"""The training history: curve and costs so far, as a value that a checkpoint saves."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from coterie.core.records import Record
from coterie.core.row_versions import next_version
from coterie.evaluation.direction import is_better, reaches
from coterie.federated.costs import Costs
from coterie.report.users import quantiles
from coterie.types import Bools, JsonObject, Longs


@dataclass(frozen=True, slots=True)
class TrainingHistory:
    """The curve and the communication costs of a run up to a round."""

    selections: Longs
    """Number of rounds that selected a user, for every user."""
    round: int = 0
    seconds: float = 0.0
    """Of training, without measurements."""
    curve_seconds: float = 0.0
    """Of measurements."""
    updates: int = 0
    """Accepted updates."""
    dropped: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    bytes_up: int = 0
    bytes_down: int = 0
    curve: tuple[JsonObject, ...] = ()
    best: int = -1
    """Index of the best measurement; -1 before the first."""

    @classmethod
    def begin(cls, n_users: int, costs: Costs) -> TrainingHistory:
        return cls(
            selections=np.zeros(n_users, np.int64),
            refused=costs.refused,
            bytes_up=costs.bytes_up,
            bytes_down=costs.bytes_down,
        )

    def after(self, costs: Costs, seconds: float) -> TrainingHistory:
        """With one more step."""
        selections = self.selections
        if len(costs.users):
            selections = next_version(selections, costs.users)
            np.add.at(selections, costs.users, 1)
        return replace(
            self,
            selections=selections,
            round=self.round + 1,
            seconds=self.seconds + seconds,
            updates=self.updates + costs.accepted,
            dropped=self.dropped + costs.dropped,
            refused=self.refused + costs.refused,
            bytes_up=self.bytes_up + costs.bytes_up,
            bytes_down=self.bytes_down + costs.bytes_down,
        )

    def finished(self, seconds: float) -> TrainingHistory:
        """With what was computed after the last step."""
        return replace(self, seconds=self.seconds + seconds)

    def measured(
        self, part: str, metrics: dict[str, float], headline: str, seconds: float = 0.0
    ) -> TrainingHistory:
        """With one more measurement on the curve, which took so many seconds."""
        line: JsonObject = {
            "round": self.round,
            "seconds": round(self.seconds, 6),
            "part": part,
        }
        if self.bytes_down:
            line |= {
                "updates": self.updates,
                "bytes_up": self.bytes_up,
                "bytes_down": self.bytes_down,
            }
        curve = (*self.curve, line | metrics)
        is_best = self.best < 0 or is_better(
            headline, metrics[headline], self.curve[self.best][headline]
        )
        return replace(
            self,
            curve=curve,
            best=len(curve) - 1 if is_best else self.best,
            curve_seconds=self.curve_seconds + seconds,
        )

    def costs(self, members: Bools) -> JsonObject:
        """The costs of a federated run, as its result reports them; only members are selected."""
        selections = self.selections[members]
        return {
            "asked": int(selections.sum()),
            "updates": self.updates,
            "dropped": self.dropped,
            "refused": dict(self.refused),
            "selections": {
                "users": int((selections > 0).sum()),
                "least": int(selections.min()),
                "most": int(selections.max()),
                "mean": float(selections.mean()),
                "deviation": float(selections.std()),
                "quantiles": quantiles(selections.astype(np.float64)),
            },
        }

    def to_json(self) -> JsonObject:
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "selections"}

    @classmethod
    def from_json(cls, values: JsonObject, selections: Longs) -> TrainingHistory:
        converted = {"refused": Counter(values["refused"]), "curve": tuple(values["curve"])}
        return cls(selections, **values | converted)


@dataclass(frozen=True, slots=True)
class Point:
    """A point of training: everything needed to resume from it."""

    state: Any
    """A Record; None before the only step of a single-step method."""
    history: TrainingHistory
    best: Record | None = None
    """The state at the best measurement, if `patience` is set."""


def area(curve: tuple[JsonObject, ...], name: str) -> float | None:
    """Area under a curve over rounds, divided by the rounds; None with fewer than two points."""
    if len(curve) < 2:
        return None
    rounds = np.array([line["round"] for line in curve], float)
    values = np.array([line[name] for line in curve], float)
    return float(np.trapezoid(values, rounds) / (rounds[-1] - rounds[0]))


def first_at(curve: tuple[JsonObject, ...], name: str, target: float) -> JsonObject | None:
    """The first measurement that reaches a target, if one does."""
    return next((line for line in curve if reaches(name, line[name], target)), None)
