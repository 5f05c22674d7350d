"""Comparison of methods over several seeds: accuracy, cost and significance of differences.

Tests are paired over users. A user's metric is averaged over the seeds first: seeds repeat the same
users, and counting every repetition as another user would overstate significance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from coterie.errors import ConfigError, Diverged
from coterie.evaluation.direction import is_better
from coterie.evaluation.significance import compare, holm
from coterie.experiments.cell_cache import CellResult
from coterie.experiments.plan import Cell
from coterie.types import Doubles, JsonObject

if TYPE_CHECKING:
    import pandas as pd

FULL = "full:"
COSTS = ("rounds", "seconds", "bytes_up", "bytes_down")


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and standard deviation over seeds."""

    mean: float
    deviation: float | None
    """None with a single seed."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Accuracy and cost of one method."""

    method: str
    algorithm: str
    metrics: dict[str, Spread]
    """Under the protocol."""
    full: dict[str, Spread]
    """Under full ranking."""
    costs: dict[str, Spread]
    area: Spread | None
    """Area under the curve of the followed metric; None if training is a single step."""
    rounds_to_target: list[int | None]
    """Per seed; None if it was not reached. Empty without a target."""
    updates_to_target: list[int | None]
    below_popular: list[str]
    """Headline metrics whose mean is below that of the most popular items."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first method minus another one, on one metric."""

    metric: str
    """The prefix `full:` means full ranking."""
    other: str
    difference: float
    low: float
    high: float
    p: float
    p_holm: float
    """Corrected for all tests of the comparison."""
    seeds_ahead: int
    """Number of seeds with which the first method's mean is better."""


@dataclass(frozen=True, slots=True)
class Comparison:
    dataset: str
    protocol: str
    seeds: list[int]
    headline: list[str]
    followed: str
    """The metric of the curve, its area and the target."""
    target: float | None
    tested_users: int
    standings: list[Standing]
    tests: list[Difference]

    @property
    def sampled(self) -> bool:
        """Whether metrics under full ranking differ from those under the protocol."""
        return any(standing.metrics != standing.full for standing in self.standings)

    def to_json(self) -> JsonObject:
        return asdict(self)


def comparison(results: Sequence[CellResult]) -> Comparison:
    """Compare methods that were evaluated on the same users under the same protocol."""
    check_comparable([result.cell for result in results])
    _check_none_diverged(results)
    first = results[0]
    methods = _by_method(results)
    convergence = first.result["convergence"]
    return Comparison(
        dataset=first.result["dataset"],
        protocol=first.result["protocol"],
        seeds=[run.result["seed"] for run in next(iter(methods.values()))],
        headline=list(first.result["headline"]),
        followed=convergence["metric"],
        target=convergence.get("target"),
        tested_users=first.result["tested_users"],
        standings=[standing(method, runs) for method, runs in methods.items()],
        tests=tests(methods, first.result["headline"]),
    )


def standing(method: str, runs: Sequence[CellResult]) -> Standing:
    results = [run.result for run in runs]
    curves = [result["convergence"] for result in results]
    areas = [curve["area"] for curve in curves if curve["area"] is not None]
    has_target = "target" in curves[0]
    return Standing(
        method=method,
        algorithm=results[0]["algorithm"],
        metrics={
            name: spread([r["metrics"][name] for r in results]) for name in results[0]["metrics"]
        },
        full={name: spread([r["full"][name] for r in results]) for name in results[0]["full"]},
        costs={name: spread([r[name] for r in results]) for name in COSTS},
        area=spread(areas) if areas else None,
        rounds_to_target=[curve["rounds_to_target"] for curve in curves] if has_target else [],
        updates_to_target=[curve["updates_to_target"] for curve in curves] if has_target else [],
        below_popular=_below_popular(results),
    )


def _below_popular(results: Sequence[JsonObject]) -> list[str]:
    """Every seed may have another test part, so that means are compared with means."""
    # Runs of earlier versions have no such figures.
    return [
        name
        for name in results[0]["headline"]
        if all(name in r.get("popular", {}) for r in results)
        and sum(r["metrics"][name] for r in results) < sum(r["popular"][name] for r in results)
    ]


def spread(values: Sequence[float]) -> Spread:
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Spread(float(np.mean(values)), deviation)


def tests(methods: dict[str, list[CellResult]], headline: Sequence[str]) -> list[Difference]:
    """The first method against every other one, on every headline metric with per-user values."""
    first, *others = methods
    users = _common_users(
        {method: [run.users() for run in runs] for method, runs in methods.items()}
    )
    columns = users[first][0].columns
    names = [
        name for prefix in ("", FULL) for metric in headline if (name := prefix + metric) in columns
    ]
    # A paired test needs at least two users.
    if len(users[first][0]) < 2:
        return []
    pairs = [(name, other) for other in others for name in names]
    paired = [
        compare(_over_seeds(users[first], name), _over_seeds(users[other], name))
        for name, other in pairs
    ]
    corrected = holm([test.p_value for test in paired])
    return [
        Difference(
            metric=name,
            other=other,
            difference=test.difference,
            low=test.low,
            high=test.high,
            p=test.p_value,
            p_holm=p_holm,
            seeds_ahead=_seeds_ahead(users[first], users[other], name),
        )
        for (name, other), test, p_holm in zip(pairs, paired, corrected, strict=True)
    ]


def _common_users(tables: dict[str, list[pd.DataFrame]]) -> dict[str, list[pd.DataFrame]]:
    """The tables with only the users who were tested in every cell, all in the same order."""
    indices = [table.index for of_method in tables.values() for table in of_method]
    common = reduce(lambda one, other: one.intersection(other), indices)
    return {
        method: [table.loc[common] for table in of_method] for method, of_method in tables.items()
    }


def _over_seeds(tables: Sequence[pd.DataFrame], name: str) -> Doubles:
    """The mean over seeds of every user."""
    values: Doubles = np.mean([table[name].to_numpy(float) for table in tables], axis=0)
    return values


def _seeds_ahead(first: Sequence[pd.DataFrame], other: Sequence[pd.DataFrame], name: str) -> int:
    return sum(
        is_better(name, float(a[name].mean()), float(b[name].mean()))
        for a, b in zip(first, other, strict=True)
    )


def _by_method(results: Sequence[CellResult]) -> dict[str, list[CellResult]]:
    methods: dict[str, list[CellResult]] = {}
    for result in results:
        methods.setdefault(result.cell.method.label, []).append(result)
    return methods


def check_comparable(cells: Sequence[Cell]) -> None:
    """Methods may differ in how they train, but not in their data or evaluation."""
    first = cells[0]
    expected = _shared_settings(first)
    for cell in cells:
        for key, value in _shared_settings(cell).items():
            if value != expected[key]:
                raise ConfigError(
                    f"setting {key!r} is {value!r} for {cell.method.label} and {expected[key]!r} "
                    f"for {first.method.label}; expected one value for all compared methods. "
                    f"Set it for all with --set {key}=VALUE."
                )


def _shared_settings(cell: Cell) -> JsonObject:
    """The settings of data and evaluation, which compared methods must share."""
    experiment = cell.experiment
    groups = (experiment.filters, experiment.synthetic, experiment.protocol)
    named = experiment.choice.model_dump(exclude={"algorithm", "seed"})
    return named | {key: value for group in groups for key, value in group}


def _check_none_diverged(results: Sequence[CellResult]) -> None:
    for result in results:
        if result.diverged:
            raise Diverged(f"{result.cell.name}: {result.diverged}")
