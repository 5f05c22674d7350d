"""Plans: a table of experiments as data. A cell of the table is one run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from coterie.algorithms.registry import algorithm
from coterie.core.settings import Settings, hint
from coterie.data.filters import Filters
from coterie.data.synthetic import Synthetic
from coterie.errors import ConfigError
from coterie.evaluation.protocols import Protocol
from coterie.experiments.config import Choice, Course, Experiment

Part = Literal["test", "validation"]
RESERVED = {
    "algorithm": "the methods",
    "dataset": "--dataset",
    "protocol": "--protocol",
    "seed": "--seeds",
}
"""Settings that the plan itself determines, and where to change them."""
OF_FOLDS = {"split": "--folds", "folds": "--folds", "fold": "--folds"}
OF_REPEATS = {"repeat": "--repeats"}
"""Those that it determines if it has folds or repeats."""


class Method(NamedTuple):
    label: str
    algorithm: str
    settings: Mapping[str, object] = {}


@dataclass(frozen=True, slots=True)
class Plan:
    """Every method on every dataset with every seed."""

    datasets: tuple[str, ...]
    methods: tuple[str | Method | tuple[str, str, Mapping[str, object]], ...]
    """The name of an algorithm, or (label, algorithm, settings of this method)."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Settings of all methods; a method ignores those it does not have."""
    seeds: tuple[int, ...] = (0,)
    protocol: str | None = None
    """The default is the dataset's own protocol."""
    part: Part = "test"
    """The part that cells are evaluated on. `validation` drops the test part before training."""
    folds: int = 0
    """With 2 or more, every method is cross-validated: one cell for every fold."""
    repeats: int = 1
    """Repetitions of a random split; each holds out other interactions."""

    def draws(self) -> list[dict[str, int | str]]:
        """The settings of every fold and repetition; one without settings if there are none."""
        folds: list[dict[str, int | str]] = [
            {"split": "k-fold", "folds": self.folds, "fold": fold} for fold in range(self.folds)
        ]
        repeats = range(self.repeats) if self.repeats > 1 else ()
        numbered: list[dict[str, int | str]] = [{"repeat": repeat} for repeat in repeats]
        return [repeat | fold for repeat in numbered or [{}] for fold in folds or [{}]]


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of a plan."""

    method: Method
    experiment: Experiment
    part: Part

    @property
    def name(self) -> str:
        choice = self.experiment.choice
        protocol = self.experiment.protocol
        name = f"{self.method.label} on {choice.dataset}, seed {choice.seed}"
        if protocol.repeat:
            name += f", repeat {protocol.repeat}"
        return f"{name}, fold {protocol.fold}" if protocol.folds else name


def cells(plan: Plan) -> list[Cell]:
    """Every run of a plan: all methods for one seed, then for the next. No data is loaded."""
    methods = [Method(m, m) if isinstance(m, str) else Method(*m) for m in plan.methods]
    _check_names(plan, methods)
    _check_settings(plan, methods)
    return [
        Cell(method, _experiment(plan, method, dataset, seed, draw), plan.part)
        for dataset in plan.datasets
        for seed in plan.seeds
        for draw in plan.draws()
        for method in methods
    ]


def _experiment(
    plan: Plan, method: Method, dataset: str, seed: int, draw: Mapping[str, int | str]
) -> Experiment:
    known = _known_settings(method, dataset)
    shared = {key: value for key, value in plan.settings.items() if key in known}
    named: dict[str, object] = {"algorithm": method.algorithm, "dataset": dataset, "seed": seed}
    if plan.protocol:
        named["protocol"] = plan.protocol
    try:
        experiment = Experiment.of(named | shared | dict(method.settings) | dict(draw))
    except ConfigError as error:
        raise ConfigError(f"{method.label}: {error}") from None
    start_from = experiment.course.start_from
    if plan.part == "validation" and start_from:
        raise ConfigError(
            f"{method.label}: start_from is {start_from!r}, a run that may have been trained on "
            "the validation part; expected untrained weights. Remove start_from."
        )
    return experiment


def _known_settings(method: Method, dataset: str) -> set[str]:
    """The settings that a method has on a dataset."""
    groups: list[type[Settings]] = [
        Choice,
        Course,
        Filters,
        Protocol,
        algorithm(method.algorithm).settings,
    ]
    if dataset == "synthetic":
        groups.append(Synthetic)
    return {key for group in groups for key in group.model_fields}


def _check_names(plan: Plan, methods: Sequence[Method]) -> None:
    """Datasets, methods and seeds must be given, and be distinct."""
    if plan.folds == 1 or plan.folds < 0 or plan.repeats < 1:
        raise ConfigError(
            f"the plan has {plan.folds} folds and {plan.repeats} repeats; expected 0 or at least 2 "
            "folds, and at least 1 repeat. Change them."
        )
    named: dict[str, Sequence[object]] = {
        "dataset": plan.datasets,
        "method": [method.label for method in methods],
        "seed": plan.seeds,
    }
    for kind, values in named.items():
        if not values:
            raise ConfigError(f"the plan has no {kind}; expected at least one. Name one.")
        if repeated := [value for value, n in Counter(values).items() if n > 1]:
            remedy = "Label the methods: LABEL=NAME." if kind == "method" else "Remove one."
            raise ConfigError(
                f"{kind} {repeated[0]!r} is given more than once; expected different ones. {remedy}"
            )


def _check_settings(plan: Plan, methods: Sequence[Method]) -> None:
    """No setting may belong to the plan itself, and every shared one to at least one method."""
    reserved = RESERVED | (OF_FOLDS if plan.folds else {})
    reserved |= OF_REPEATS if plan.repeats > 1 else {}
    for settings in (plan.settings, *(method.settings for method in methods)):
        for key in reserved.keys() & settings.keys():
            raise ConfigError(
                f"setting {key!r} is {settings[key]!r}, but the plan determines it. "
                f"Use {reserved[key]}."
            )
    known = {
        key
        for dataset in plan.datasets
        for method in methods
        for key in _known_settings(method, dataset)
    }
    for key, value in plan.settings.items():
        if key not in known:
            raise ConfigError(
                f"unknown setting {key!r} (value {value!r}): no compared method has it. "
                f"{hint(key, sorted(known))}"
            )
