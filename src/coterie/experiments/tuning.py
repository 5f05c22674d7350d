"""Random search for settings on the validation part, with the same budget for every method.

A trial trains until `patience` measurements bring nothing better and counts with its best one; the number of epochs or
rounds is part of what is found. With patience=0 it trains to the end and counts with its last one, and so does every
trial of a search in which a learning rate falls towards the last round: there a round means nothing without the number of
all. The best of many noisy trials is partly luck: finalists are trained again with other seeds, and the best mean wins.
The test part is dropped before anything is trained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from coterie.algorithms.registry import ALGORITHMS, algorithm
from coterie.core import streams
from coterie.core.progress import SILENT, Progress
from coterie.errors import ConfigError, Diverged, UnknownName
from coterie.experiments.config import Course, Experiment
from coterie.experiments.plan import Method, Outcome, Plan, carry_out

Space = Mapping[str, tuple[float, float] | list[Any]]

FEDERATED: Space = {
    "learning_rate": (0.005, 0.5),
    "reg": (1e-4, 0.1),
    "negatives": [2, 4, 8],
    "start_scale": [0.03, 0.1, 0.3],
    "local_epochs": [1, 2, 5],
    "final_rate": [0.03, 0.1, 1.0],
}
CENTRALISED: Space = {
    "learning_rate": (0.005, 0.1),
    "reg": (1e-3, 0.1),
    "negatives": [2, 4, 8],
    "start_scale": [0.01, 0.03, 0.1],
    "embedding_size": [16, 32, 64],
}
RATES = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
PAIRWISE: Space = {
    "learning_rate": (0.003, 0.5),
    "reg_user": (1e-4, 0.1),
    "reg_positive": (1e-4, 0.1),
    "reg_negative": (1e-4, 0.1),
    "disclosure": RATES,
    "start_scale": [0.01, 0.03, 0.1],
    "embedding_size": [10, 20, 50],
}
TOWERS: Space = {
    "learning_rate": (1e-4, 3e-2),
    "smoothing": [1.0, 3.0, 10.0, 30.0],
    "dropout": [0.0, 0.2],
    "person": ["auto", "titles"],
    "negative_share": [0.5, 0.7, 0.9],
}
SPACES: dict[str, Space] = {
    "fedavg": FEDERATED,
    "fedfast": FEDERATED,
    "fedbso": FEDERATED,
    "fedavg+actvsamp": FEDERATED,
    "fedavg+actvagg": FEDERATED,
    "gmf": CENTRALISED,
    "neumf": CENTRALISED,
    "bpr": {
        "learning_rate": (0.01, 0.2),
        "reg_user": (1e-4, 0.1),
        "reg_positive": (1e-4, 0.1),
        "reg_negative": (1e-4, 0.1),
        "reg_bias": [0.0, 0.01],
        "start_scale": [0.01, 0.03, 0.1],
        "embedding_size": [16, 32, 64],
    },
    "als": {"alpha": (0.3, 50.0), "reg": (0.1, 100.0), "embedding_size": [16, 32, 64]},
    "ease": {"reg": (30.0, 5000.0)},
    "sfpl": PAIRWISE,
    "sfpl+": PAIRWISE,
    "pfpl": PAIRWISE,
    "pfpl+": PAIRWISE,
    "fcf": {
        "learning_rate": (0.003, 0.5),
        "alpha": (0.3, 50.0),
        "reg": (0.1, 100.0),
        "embedding_size": [10, 20, 50],
    },
    "fedmvmf": {
        "learning_rate": (0.003, 0.5),
        "alpha": (0.3, 50.0),
        "reg": (0.1, 100.0),
        "side": (0.1, 100.0),
        "embedding_size": [10, 20, 50],
    },
    **dict.fromkeys(("dssm", "clsm"), TOWERS),
    **dict.fromkeys(("fl-dssm", "fl-clsm", "sttfedrec-dssm", "sttfedrec-clsm"), TOWERS),
    "userknn": {
        "neighbours": [10, 20, 30, 50, 70, 100, 150, 200, 300],
        "shrink": [0.0, 1.0, 3.0, 10.0, 30.0],
    },
    "itemknn": {
        "neighbours": [10, 20, 30, 50, 70, 100, 150, 200, 300],
        "shrink": [0.0, 1.0, 3.0, 10.0, 30.0],
    },
    "multivae": {
        "learning_rate": (3e-4, 1e-2),
        "beta": [0.05, 0.1, 0.2, 0.5],
        "dropout": [0.3, 0.5, 0.7],
        "hidden": [200, 300, 600],
        "latent": [50, 100, 200],
        "batch_size": [100, 250, 500],
    },
}
"""What is searched: log-uniform between two numbers, or one of a list."""

BUDGETS: dict[str, dict[str, int]] = {
    "epochs": {"epochs": 100, "evaluate_every": 4, "patience": 3},
    "rounds": {
        "rounds": 400,
        "evaluate_every": 20,
        "patience": 5,
    },  # federated curves begin flat and end noisy
    "": {},
}
"""How long a trial may train, by what its steps are called; the same for every method."""


@dataclass(frozen=True, slots=True)
class Search:
    algorithm: str
    dataset: str = "synthetic"
    protocol: str | None = None
    trials: int = 30
    finalists: int = 0
    """So many of the best are trained again with other seeds; 0 takes the best trial."""
    seeds: int = 4
    """How many other seeds."""
    seed: int = 0
    held: Mapping[str, Any] = field(default_factory=dict)
    """Settings that are not searched. Of rounds or epochs it is the most that a trial may take."""

    @property
    def steps(self) -> str:
        """What its steps are called; "" if it has only one."""
        return next(
            (
                key
                for key in ("epochs", "rounds")
                if key in algorithm(self.algorithm).settings.model_fields
            ),
            "",
        )


@dataclass(frozen=True, slots=True)
class Tried:
    value: float
    """The best on validation; a mean over seeds for finalists."""
    settings: dict[str, Any]
    """Those of the algorithm that were searched or held, and the number of steps that was best."""


@dataclass(frozen=True, slots=True)
class Found:
    search: Search
    metric: str
    ranking: list[Tried]
    """Best first; those that diverged are not among them."""

    @property
    def best(self) -> Tried:
        return self.ranking[0]

    def experiment(self) -> dict[str, Any]:
        """The winner as the keys of an experiment file; it trains on everything that is not test."""
        search = self.search
        own = algorithm(search.algorithm).settings.model_fields
        named = {"algorithm": search.algorithm, "dataset": search.dataset}
        named |= {"protocol": search.protocol} if search.protocol else {}
        named |= {
            k: v
            for k, v in search.held.items()
            if k not in {*own, *Course.model_fields, "validation"}
        }
        return named | Experiment.of(named | self.best.settings).settings.model_dump(mode="json")


def tune(search: Search, folder: Path | None = None, progress: Progress = SILENT) -> Found:
    """Search; trials that a search before this one finished are not trained again."""
    _refuse_impossible(search)
    methods = [
        Method(f"trial {n + 1}", search.algorithm, point) for n, point in enumerate(points(search))
    ]
    outcomes = carry_out(_plan(search, methods, (search.seed,)), folder, progress)
    ranking = _ranked(search, methods, outcomes)
    if search.finalists:
        best = {trial.label: trial for trial, _ in ranking[: search.finalists]}
        seeds = tuple(range(search.seed + 1, search.seed + 1 + search.seeds))
        outcomes = carry_out(_plan(search, list(best.values()), seeds), folder, progress)
        ranking = _ranked(search, list(best.values()), outcomes)
    if outcomes[0].cell.experiment.course.patience:
        _warn_of_limit(search, ranking[0][1], progress)
    metric = next(outcome.result["metric"] for outcome in outcomes if not outcome.diverged)
    return Found(search, metric, [tried for _, tried in ranking])


def points(search: Search) -> list[dict[str, Any]]:
    """What is tried, drawn from the search's seed; what is held is left out."""
    space = {
        key: choice for key, choice in SPACES[search.algorithm].items() if key not in search.held
    }
    return [draw(space, search.seed, trial) for trial in range(search.trials)]


def draw(space: Space, seed: int, trial: int) -> dict[str, Any]:
    """One point of a space."""
    rng = streams.at(seed, "tuning", trial)
    point: dict[str, Any] = {}
    for key, choice in space.items():
        if isinstance(choice, list):
            point[key] = choice[rng.integers(len(choice))]
        else:
            point[key] = float(f"{np.exp(rng.uniform(*np.log(choice))):.3g}")
    return point


def _plan(search: Search, methods: Sequence[Method], seeds: tuple[int, ...]) -> Plan:
    settings = (
        {"validation": True, "headline": ["NDCG"]} | BUDGETS[search.steps] | dict(search.held)
    )
    if _rate_may_fall(search):
        settings["patience"] = 0
    return Plan(
        (search.dataset,), tuple(methods), settings, seeds, search.protocol, part="validation"
    )


def _rate_may_fall(search: Search) -> bool:
    """Then trials train to the end: a rate that was cut off at the best round is one that nobody can train again.

    Trials and finalists of a search are judged by the same rule, whatever was drawn.
    """
    held: float = search.held.get("final_rate", 1)
    return held != 1 or (
        "final_rate" in SPACES[search.algorithm] and "final_rate" not in search.held
    )


def _ranked(
    search: Search, methods: Sequence[Method], outcomes: Sequence[Outcome]
) -> list[tuple[Method, Tried]]:
    """Methods that trained with every seed, by their mean on validation; the first of equals first."""
    tried = []
    for method in methods:
        mine = [outcome for outcome in outcomes if outcome.cell.method == method]
        if not any(outcome.diverged for outcome in mine):
            tried.append((method, _tried(search, method, mine)))
    if not tried:
        raise Diverged(
            f"every trial of {search.algorithm} diverged ({outcomes[0].diverged}); expected one that does not. "
            "Hold a smaller step with --set learning_rate=VALUE."
        )
    return sorted(tried, key=lambda pair: -pair[1].value)


def _tried(search: Search, method: Method, outcomes: Sequence[Outcome]) -> Tried:
    own = algorithm(search.algorithm).settings.model_fields
    held = {key: value for key, value in search.held.items() if key in own}
    steps = (
        {search.steps: int(np.median([o.result["best_round"] for o in outcomes]))}
        if search.steps
        else {}
    )
    return Tried(
        float(np.mean([o.result["value"] for o in outcomes])), dict(method.settings) | held | steps
    )


def _refuse_impossible(search: Search) -> None:
    if search.algorithm not in ALGORITHMS:
        raise UnknownName("algorithm", search.algorithm, ALGORITHMS)
    if search.algorithm not in SPACES:
        raise ConfigError(
            f"algorithm {search.algorithm!r} has no search space; expected one of {', '.join(SPACES)}. "
            "Declare one in coterie/tuning.py."
        )
    for name, value, least in (
        ("trials", search.trials, 1),
        ("finalists", search.finalists, 0),
        ("seeds", search.seeds, 1),
    ):
        if value < least:
            raise ConfigError(
                f"{name} is {value}; expected at least {least}. Change it with --{name} N."
            )


def _warn_of_limit(search: Search, best: Tried, progress: Progress) -> None:
    """The best round being the last one allowed says that more might be better still."""
    steps = search.steps
    most = (BUDGETS[steps] | dict(search.held)).get(steps)
    if steps and best.settings[steps] == most:
        progress.log(
            f"the best is the last that was allowed, {steps}={most}; --set {steps}=N allows more"
        )
