"""Comparison of methods over several seeds: accuracy, cost and significance of differences.

Tests are paired over users. A user's metric is averaged over the seeds first: seeds repeat the same
users, and counting every repetition as another user would overstate significance. With folds, it is
averaged over the folds that test the user.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import reduce
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from coterie.core.progress import SILENT, Progress
from coterie.errors import ConfigError, Diverged
from coterie.evaluation.direction import is_better
from coterie.evaluation.significance import compare, holm
from coterie.experiments.cell_cache import CellResult
from coterie.experiments.plan import Cell
from coterie.report.conditions import reading_lines
from coterie.report.steps import is_federated, step_name
from coterie.report.users import quantiles
from coterie.types import Doubles, JsonObject

if TYPE_CHECKING:
    import pandas as pd

FULL = "full:"
COSTS = ("rounds", "seconds", "bytes_up", "bytes_down")


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and standard deviation over runs: seeds, folds and repeats."""

    mean: float
    deviation: float | None
    """None with a single run."""


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
    """Per run; None if it was not reached. Empty without a target."""
    updates_to_target: list[int | None]
    steps: str
    """What `rounds` counts: rounds, epochs, or one step."""
    federated: bool
    quantiles: dict[str, list[float]]
    """Of the headline metrics over users, each user's mean over seeds."""
    below_popular: list[str]
    """Headline metrics whose mean is below that of the most popular items."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One method minus another one, on one metric."""

    method: str
    """The first method of the comparison, unless all pairs are tested."""
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
    """Number of runs (seeds, folds and repeats) in which the mean of `method` is better."""


@dataclass(frozen=True, slots=True)
class Comparison:
    dataset: str
    data: str
    """The fingerprint of the data."""
    protocol: str
    seeds: list[int]
    headline: list[str]
    followed: str
    """The metric of the curve, its area and the target."""
    target: float | None
    tested_users: int
    standings: list[Standing]
    tests: list[Difference]
    all_pairs: bool
    """Whether every method was tested against every other one, not only the first."""
    folds: int = 1
    repeats: int = 1
    reading: list[str] = field(default_factory=list)
    """How the data was read, as sentences."""

    @property
    def runs(self) -> str:
        """The runs of every method in words: 3 seeds, 5 folds, 2 seeds of 5 folds."""
        draws = {"repeat": self.repeats, "fold": self.folds}
        counts = {"seed": len(self.seeds)} | {name: n for name, n in draws.items() if n > 1}
        if len(counts) > 1 and counts["seed"] == 1:
            del counts["seed"]
        return " of ".join(f"{n} {name}" + "s" * (n > 1) for name, n in counts.items())

    @property
    def unit(self) -> str:
        """What the runs of a method differ in: seeds, folds, repeats, or several of them (runs)."""
        counts = {"seeds": len(self.seeds), "folds": self.folds, "repeats": self.repeats}
        several = [name for name, n in counts.items() if n > 1]
        if len(several) > 1:
            return "runs"
        return several[0] if several else "seeds"

    @property
    def n_runs(self) -> int:
        return len(self.seeds) * self.folds * self.repeats

    @property
    def sampled(self) -> bool:
        """Whether metrics under full ranking differ from those under the protocol."""
        return any(standing.metrics != standing.full for standing in self.standings)

    def to_json(self) -> JsonObject:
        return asdict(self)


def comparison(
    results: Sequence[CellResult], all_pairs: bool = False, progress: Progress = SILENT
) -> Comparison:
    """Compare methods that were evaluated on the same users under the same protocol.

    The first method is tested against the others; with `all_pairs` every method is.
    """
    check_comparable([result.cell for result in results])
    _check_none_diverged(results)
    first = results[0]
    methods = _by_method(results)
    convergence = first.result["convergence"]
    protocols = [result.cell.experiment.protocol for result in results]
    of_first = _by_seed(next(iter(methods.values())))
    tables = {
        method: [[run.users() for run in runs] for runs in _by_seed(all_runs).values()]
        for method, all_runs in methods.items()
    }
    users = _common_users(
        {method: [_over_folds(runs) for runs in seeds] for method, seeds in tables.items()}
    )
    headline = first.result["headline"]
    return Comparison(
        dataset=first.result["dataset"],
        data=first.result["data"],
        protocol=first.result["protocol"],
        seeds=list(of_first),
        headline=list(first.result["headline"]),
        followed=convergence["metric"],
        target=convergence.get("target"),
        tested_users=_tested_users(next(iter(of_first.values()))),
        standings=[
            standing(method, runs, _quantiles(users[method], headline))
            for method, runs in methods.items()
        ],
        tests=tests(users, _single_runs(tables, users), headline, all_pairs, progress),
        all_pairs=all_pairs,
        folds=len({protocol.fold for protocol in protocols}),
        repeats=len({protocol.repeat for protocol in protocols}),
        reading=reading_lines(first.result),
    )


def standing(
    method: str, runs: Sequence[CellResult], over_users: dict[str, list[float]]
) -> Standing:
    """The means and spreads of one method over its seeds."""
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
        steps=step_name(results[0]),
        federated=is_federated(results[0]),
        quantiles=over_users,
        below_popular=_below_popular(results),
    )


def _quantiles(tables: Sequence[pd.DataFrame], names: Sequence[str]) -> dict[str, list[float]]:
    if tables[0].empty:
        return {}
    return {
        name: quantiles(_over_seeds(tables, name)) for name in names if name in tables[0].columns
    }


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


def tests(
    users: dict[str, list[pd.DataFrame]],
    by_run: dict[str, list[pd.DataFrame]],
    headline: Sequence[str],
    all_pairs: bool,
    progress: Progress,
) -> list[Difference]:
    """Paired tests on every headline metric with per-user values.

    `users` has a table per seed for every method, all with the same users; `by_run` has one per
    run. Holm's correction is over all tests that are returned.
    """
    first = next(iter(users))
    columns = users[first][0].columns
    names = [
        name for prefix in ("", FULL) for metric in headline if (name := prefix + metric) in columns
    ]
    # A paired test needs two methods and at least two users.
    if len(users) < 2 or len(users[first][0]) < 2:
        return []
    pairs = [
        (one, other, name)
        for one, other in combinations(users, 2)
        if all_pairs or one == first
        for name in names
    ]
    paired = []
    # Each test resamples all users: with many users and pairs this takes minutes.
    with progress.task(f"{len(pairs)} paired tests", len(pairs)) as advance:
        for one, other, name in pairs:
            test = compare(_over_seeds(users[one], name), _over_seeds(users[other], name))
            paired.append(test)
            advance()
    corrected = holm([test.p_value for test in paired])
    return [
        Difference(
            method=one,
            metric=name,
            other=other,
            difference=test.difference,
            low=test.low,
            high=test.high,
            p=test.p_value,
            p_holm=p_holm,
            seeds_ahead=_seeds_ahead(by_run[one], by_run[other], name),
        )
        for (one, other, name), test, p_holm in zip(pairs, paired, corrected, strict=True)
    ]


def _single_runs(
    tables: dict[str, list[list[pd.DataFrame]]], users: dict[str, list[pd.DataFrame]]
) -> dict[str, list[pd.DataFrame]]:
    """The tables of single runs, which may be ahead or not.

    Without folds and repeats, a run is ahead on the users of all runs; a fold on its own users.
    """
    if not any(len(runs) > 1 for seeds in tables.values() for runs in seeds):
        return users
    return {method: [table for runs in seeds for table in runs] for method, seeds in tables.items()}


def _common_users(tables: dict[str, list[pd.DataFrame]]) -> dict[str, list[pd.DataFrame]]:
    """The tables with only the users who were tested in every cell, all in the same order."""
    indices = [table.index for of_method in tables.values() for table in of_method]
    common = reduce(lambda one, other: one.intersection(other), indices)
    return {
        method: [table.loc[common] for table in of_method] for method, of_method in tables.items()
    }


def _by_seed(runs: Sequence[CellResult]) -> dict[int, list[CellResult]]:
    """The runs of one method by seed: one run each, or one for every fold and repeat."""
    seeds: dict[int, list[CellResult]] = {}
    for run in runs:
        seeds.setdefault(run.result["seed"], []).append(run)
    return seeds


def _tested_users(runs: Sequence[CellResult]) -> int:
    """The users that at least one of the runs tested."""
    if len(runs) == 1:
        return int(runs[0].result["tested_users"])
    return len(_over_folds([run.users() for run in runs]))


def _over_folds(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The mean of every user over the folds and repeats that tested the user."""
    import pandas as pd

    if len(tables) == 1:
        return tables[0]
    return pd.concat(tables).groupby(level=0, sort=False).mean()


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
    settings = {key: value for group in groups for key, value in group}
    return named | {key: settings[key] for key in settings if key not in ("fold", "repeat")}


def _check_none_diverged(results: Sequence[CellResult]) -> None:
    for result in results:
        if result.diverged:
            raise Diverged(f"{result.cell.name}: {result.diverged}")
