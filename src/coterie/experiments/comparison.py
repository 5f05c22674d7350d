"""Methods side by side over several seeds: what they reach, what they cost, and whether differences are real.

Tests are paired over users. A user's metric is averaged over the seeds first: seeds repeat the same people, and counting
every repetition as a person of its own would make any difference look certain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.errors import ConfigError, Diverged
from coterie.evaluation.significance import compare, holm
from coterie.experiments.plan import Cell, Outcome
from coterie.types import Doubles

if TYPE_CHECKING:
    import pandas as pd

FULL = "full:"
COSTS = ("rounds", "seconds", "bytes_up", "bytes_down")


@dataclass(frozen=True, slots=True)
class Spread:
    """Over seeds."""

    mean: float
    deviation: float | None
    """None for a single seed."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What one method reached, and what it cost."""

    method: str
    algorithm: str
    metrics: dict[str, Spread]
    """By the protocol."""
    full: dict[str, Spread]
    """By full ranking."""
    costs: dict[str, Spread]
    area: Spread | None
    """Under the curve of the followed metric; None where training is a single step."""
    rounds_to_target: list[int | None]
    """For every seed; None where it was not reached. Empty without a target."""
    updates_to_target: list[int | None]


@dataclass(frozen=True, slots=True)
class Difference:
    """The first method against another one."""

    metric: str
    """`full:` before it means full ranking."""
    other: str
    difference: float
    low: float
    high: float
    p: float
    p_holm: float
    """Corrected for all tests of the comparison."""
    seeds_ahead: int
    """With how many seeds the first method's mean is higher."""


@dataclass(frozen=True, slots=True)
class Comparison:
    dataset: str
    protocol: str
    seeds: list[int]
    headline: list[str]
    followed: str
    """The metric that the curve, its area and the target are about."""
    target: float | None
    tested_users: int
    standings: list[Standing]
    tests: list[Difference]

    @property
    def sampled(self) -> bool:
        """Whether full ranking says something of its own."""
        return any(standing.metrics != standing.full for standing in self.standings)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def comparison(outcomes: Sequence[Outcome]) -> Comparison:
    """Compare methods that were judged on the same people by the same protocol."""
    refuse_incomparable([outcome.cell for outcome in outcomes])
    _refuse_diverged(outcomes)
    first = outcomes[0]
    methods = _by_method(outcomes)
    convergence = first.result["convergence"]
    return Comparison(
        dataset=first.result["dataset"],
        protocol=first.result["protocol"],
        seeds=[outcome.result["seed"] for outcome in next(iter(methods.values()))],
        headline=list(first.result["headline"]),
        followed=convergence["metric"],
        target=convergence.get("target"),
        tested_users=first.result["tested_users"],
        standings=[standing(method, runs) for method, runs in methods.items()],
        tests=tests(methods, first.result["headline"]),
    )


def standing(method: str, runs: Sequence[Outcome]) -> Standing:
    results = [run.result for run in runs]
    curves = [result["convergence"] for result in results]
    areas = [curve["area"] for curve in curves if curve["area"] is not None]
    aimed = "target" in curves[0]
    return Standing(
        method=method,
        algorithm=results[0]["algorithm"],
        metrics={
            name: spread([r["metrics"][name] for r in results]) for name in results[0]["metrics"]
        },
        full={name: spread([r["full"][name] for r in results]) for name in results[0]["full"]},
        costs={name: spread([r[name] for r in results]) for name in COSTS},
        area=spread(areas) if areas else None,
        rounds_to_target=[curve["rounds_to_target"] for curve in curves] if aimed else [],
        updates_to_target=[curve["updates_to_target"] for curve in curves] if aimed else [],
    )


def spread(values: Sequence[float]) -> Spread:
    return Spread(
        float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None
    )


def tests(methods: dict[str, list[Outcome]], headline: Sequence[str]) -> list[Difference]:
    """The first method against every other one, by every headline metric that users have one by one."""
    first, *others = methods
    users = _same_people(
        {method: [run.users() for run in runs] for method, runs in methods.items()}
    )
    columns = users[first][0].columns
    names = [
        name for prefix in ("", FULL) for metric in headline if (name := prefix + metric) in columns
    ]
    if len(users[first][0]) < 2:  # nothing can be said of one person
        return []
    pairs = [(name, other) for other in others for name in names]
    found = [
        compare(_over_seeds(users[first], name), _over_seeds(users[other], name))
        for name, other in pairs
    ]
    corrected = holm([c.p_value for c in found])
    return [
        Difference(
            name,
            other,
            c.difference,
            c.low,
            c.high,
            c.p_value,
            p,
            _seeds_ahead(users[first], users[other], name),
        )
        for (name, other), c, p in zip(pairs, found, corrected, strict=True)
    ]


def _same_people(tables: dict[str, list[pd.DataFrame]]) -> dict[str, list[pd.DataFrame]]:
    """Those who were tested in every cell, in one order."""
    everybody = [table.index for of_method in tables.values() for table in of_method]
    common = reduce(lambda one, other: one.intersection(other), everybody)
    return {
        method: [table.loc[common] for table in of_method] for method, of_method in tables.items()
    }


def _over_seeds(tables: Sequence[pd.DataFrame], name: str) -> Doubles:
    """Every user's mean over seeds."""
    values: Doubles = np.mean([table[name].to_numpy(float) for table in tables], axis=0)
    return values


def _seeds_ahead(first: Sequence[pd.DataFrame], other: Sequence[pd.DataFrame], name: str) -> int:
    return sum(bool(a[name].mean() > b[name].mean()) for a, b in zip(first, other, strict=True))


def _by_method(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    methods: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        methods.setdefault(outcome.cell.method.label, []).append(outcome)
    return methods


def refuse_incomparable(cells: Sequence[Cell]) -> None:
    """Methods may differ in how they train, not in what they learn from or how they are judged."""
    first = cells[0]
    expected = _judged_by(cells[0])
    for cell in cells:
        for key, value in _judged_by(cell).items():
            if value != expected[key]:
                raise ConfigError(
                    f"setting {key!r} is {value!r} for {cell.method.label} and {expected[key]!r} for {first.method.label}; "
                    f"expected one value for all methods that are compared. Set it for all with --set {key}=VALUE."
                )


def _judged_by(cell: Cell) -> dict[str, Any]:
    chosen = cell.experiment
    groups = (chosen.filters, chosen.synthetic, chosen.protocol)
    named = chosen.choice.model_dump(exclude={"algorithm", "seed"})
    return named | {key: value for group in groups for key, value in group}


def _refuse_diverged(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        if outcome.diverged:
            raise Diverged(f"{outcome.cell.name}: {outcome.diverged}")
