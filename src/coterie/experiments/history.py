"""How far a run has come: the state, the curve and the costs so far, as values that can be saved and gone on from."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from coterie.core.records import Record
from coterie.federated.costs import Costs
from coterie.types import Bools, Longs


@dataclass(frozen=True, slots=True)
class TrainingHistory:
    selections: Longs
    """How often every user was asked."""
    round: int = 0
    seconds: float = 0.0
    updates: int = 0
    """Updates of users that were accepted."""
    dropped: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    bytes_up: int = 0
    bytes_down: int = 0
    curve: tuple[dict[str, Any], ...] = ()
    best: int = -1
    """Which measurement was the best; -1 before the first."""

    @classmethod
    def begin(cls, n_users: int, costs: Costs) -> TrainingHistory:
        nobody = np.zeros(n_users, np.int64)
        return cls(
            nobody, refused=costs.refused, bytes_up=costs.bytes_up, bytes_down=costs.bytes_down
        )

    def after(self, costs: Costs, seconds: float) -> TrainingHistory:
        """One step further."""
        selections = self.selections
        if len(costs.users):
            selections = selections + np.bincount(costs.users, minlength=len(selections))
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

    def measured(self, part: str, metrics: dict[str, float], headline: str) -> TrainingHistory:
        """With one more measurement on the curve."""
        line: dict[str, Any] = {
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
        better = self.best < 0 or metrics[headline] > self.curve[self.best][headline]
        return replace(self, curve=curve, best=len(curve) - 1 if better else self.best)

    def costs(self, members: Bools) -> dict[str, Any]:
        """What a result says about a federated run's costs; only members can be asked."""
        asked = self.selections[members]
        spread = {
            "users": int((asked > 0).sum()),
            "least": int(asked.min()),
            "most": int(asked.max()),
        }
        return {
            "asked": int(asked.sum()),
            "updates": self.updates,
            "dropped": self.dropped,
            "refused": dict(self.refused),
            "selections": spread | {"mean": float(asked.mean()), "deviation": float(asked.std())},
        }

    def to_json(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "selections"}

    @classmethod
    def from_json(cls, values: dict[str, Any], selections: Longs) -> TrainingHistory:
        made = {"refused": Counter(values["refused"]), "curve": tuple(values["curve"])}
        return cls(selections, **values | made)


@dataclass(frozen=True, slots=True)
class Point:
    """Where training stands: all that is needed to go on from there."""

    state: Any
    """A Record; None before a method of a single step has taken it."""
    history: TrainingHistory
    best: Record | None = None
    """The state at the best measurement, where patience may ask for it."""


def area(curve: tuple[dict[str, Any], ...], name: str) -> float | None:
    """Area under a convergence curve, by rounds, from 0 to 1: the mean over training; None without a curve."""
    if len(curve) < 2:
        return None
    rounds = np.array([line["round"] for line in curve], float)
    values = np.array([line[name] for line in curve], float)
    return float(np.trapezoid(values, rounds) / (rounds[-1] - rounds[0]))


def first_at(curve: tuple[dict[str, Any], ...], name: str, target: float) -> dict[str, Any] | None:
    """The first measurement that reaches a target, if one does."""
    return next((line for line in curve if line[name] >= target), None)
