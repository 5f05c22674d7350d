"""Random search for settings on the validation part, with the same budget for every trial.

A trial trains until `patience` measurements bring no improvement, and its best measurement counts;
the number of epochs or rounds is part of the result. Factors that start near zero grow slowly, so
that a curve can be flat at first, longer with one seed than with another: patience counts only from
`patience_from` on. With patience=0 a trial trains to the end and
its last measurement counts. So does every trial of a search in which the learning rate decays
towards the last round: there a round means nothing without the total number of rounds.

The best of many noisy trials is partly luck, so finalists are trained again with other seeds and
the best mean wins. The test part is dropped before anything is trained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from coterie.algorithms.registry import algorithm, names
from coterie.core import streams
from coterie.core.progress import SILENT, Progress
from coterie.core.settings import SearchSpace
from coterie.errors import ConfigError, Diverged
from coterie.evaluation.direction import is_better, loss
from coterie.experiments.cell_cache import CellResult
from coterie.experiments.config import Course, Experiment
from coterie.experiments.plan import Method, Plan
from coterie.experiments.plan_runner import run_plan
from coterie.types import JsonObject

BUDGETS: dict[str, dict[str, int]] = {
    "epochs": {"epochs": 100, "evaluate_every": 4, "patience": 3, "patience_from": 20},
    # Federated curves begin flat and end noisy, hence the longer patience.
    "rounds": {"rounds": 400, "evaluate_every": 20, "patience": 5, "patience_from": 100},
    "": {},
}
"""How long a trial may train, by the setting that counts its steps. It is the same for every method
whose settings declare no `trial_steps`."""


@dataclass(frozen=True, slots=True)
class Search:
    """A search for one algorithm on one dataset."""

    algorithm: str
    dataset: str = "synthetic"
    protocol: str | None = None
    trials: int = 30
    finalists: int = 0
    """Number of best trials to train again with other seeds; 0 takes the best trial."""
    seeds: int = 4
    """Number of other seeds for finalists."""
    seed: int = 0
    held: Mapping[str, object] = field(default_factory=dict)
    """Fixed settings, which are not searched. For rounds or epochs it is the limit of a trial."""
    space: SearchSpace | None = None
    """The space to search; None takes the one in the algorithm's settings."""

    @property
    def searched(self) -> SearchSpace:
        """The space without the fixed settings."""
        space = space_of(self.algorithm) if self.space is None else self.space
        return {key: values for key, values in space.items() if key not in self.held}

    @property
    def steps(self) -> str:
        """The setting that counts the algorithm's steps; "" if there is only one step."""
        known = algorithm(self.algorithm).settings.model_fields
        return next((key for key in ("epochs", "rounds") if key in known), "")


@dataclass(frozen=True, slots=True)
class RankedTrial:
    """A trial with its value on the validation part."""

    value: float
    """The counted measurement; for finalists its mean over seeds."""
    settings: JsonObject
    """The searched and fixed settings of the algorithm, with the best number of steps."""
    popularity_prior: float = 0.0
    """How much popularity counted in the scores that were measured; for finalists the median."""


@dataclass(frozen=True, slots=True)
class TuningResult:
    """The trials of a search."""

    search: Search
    metric: str
    ranking: list[RankedTrial]
    """Best first, without diverged trials."""
    trials: list[CellResult]
    """All trials in the order of their draws, before finalists were trained again."""

    @property
    def best(self) -> RankedTrial:
        return self.ranking[0]

    def experiment(self) -> JsonObject:
        """The best trial as an experiment file's keys, to train on all but the test part.

        Popularity counts as in the trials: a run would derive another value from more data.
        """
        search = self.search
        own = algorithm(search.algorithm).settings.model_fields
        left_out = {*own, *Course.model_fields, "validation"}
        named: JsonObject = {"algorithm": search.algorithm, "dataset": search.dataset}
        if search.protocol:
            named["protocol"] = search.protocol
        named |= {key: value for key, value in search.held.items() if key not in left_out}
        named["popularity_prior"] = self.best.popularity_prior
        return named | Experiment.of(named | self.best.settings).settings.model_dump(mode="json")


def tune(
    search: Search, folder: Path | None = None, progress: Progress = SILENT, workers: int = 1
) -> TuningResult:
    """Search. Trials that an earlier search finished are not trained again.

    `workers` is the number of processes that share the trials.
    """
    _check(search)
    plan = trials_of(search)
    log = TrialLog(search.trials, progress)
    found = result_of(search, run_plan(plan, folder, progress, workers, finished=log.add))
    counted = found.trials
    if search.finalists:
        methods = [trial.cell.method for trial in found.trials]
        ranked = _ranked(search, methods, found.trials)
        finalists = [method for method, _ in ranked[: search.finalists]]
        seeds = tuple(range(search.seed + 1, search.seed + 1 + search.seeds))
        again = _plan(search, finalists, seeds)
        finals = FinalistLog(len(finalists), search.seeds, progress)
        counted = run_plan(again, folder, progress, workers, finished=finals.add)
        ranking = [trial for _, trial in _ranked(search, finalists, counted)]
        found = replace(found, ranking=ranking)
    if counted[0].cell.experiment.course.patience:
        _warn_of_limit(search, found.best, progress)
    return found


def result_of(search: Search, trials: list[CellResult]) -> TuningResult:
    """The result of a search without finalists whose trials were run."""
    methods = [trial.cell.method for trial in trials]
    ranking = [trial for _, trial in _ranked(search, methods, trials)]
    return TuningResult(search, _metric(trials), ranking, trials)


class TrialLog:
    """A line for every finished trial, with the best value so far."""

    def __init__(self, total: int, progress: Progress) -> None:
        self.total = total
        self.progress = progress
        self.best: CellResult | None = None

    def add(self, trial: CellResult) -> None:
        method = trial.cell.method
        settings = ", ".join(f"{key}={value}" for key, value in method.settings.items())
        name = f"{method.label} of {self.total}"
        if trial.diverged:
            self.progress.log(f"{name}: diverged ({settings})")
            return
        metric = str(trial.result["metric"])
        value = float(trial.result["value"])
        if self.best is None or is_better(metric, value, float(self.best.result["value"])):
            self.best = trial
        best = f"{self.best.result['value']:.4f}, {self.best.cell.method.label}"
        steps = trial.result["best_round"]
        self.progress.log(
            f"{name}: {metric} {value:.4f} at step {steps:,} (best {best}): {settings}"
        )


class FinalistLog:
    """A line for every finished run of a finalist, with its mean over the seeds so far."""

    def __init__(self, finalists: int, seeds: int, progress: Progress) -> None:
        self.total = finalists * seeds
        self.seeds = seeds
        self.progress = progress
        self.n_runs = 0
        self.values: dict[str, list[float]] = {}

    def add(self, run: CellResult) -> None:
        self.n_runs += 1
        label = run.cell.method.label
        seed = run.cell.experiment.choice.seed
        name = f"finalist run {self.n_runs} of {self.total}, {label} with seed {seed}"
        if run.diverged:
            self.progress.log(f"{name}: diverged")
            return
        value = float(run.result["value"])
        values = self.values.setdefault(label, [])
        values.append(value)
        self.progress.log(
            f"{name}: {run.result['metric']} {value:.4f} at step {run.result['best_round']:,} "
            f"(mean {np.mean(values):.4f} over {len(values)} of {self.seeds} seeds)"
        )


def trials_of(search: Search) -> Plan:
    """The trials of a search, before finalists are trained again."""
    methods = [
        Method(f"trial {n + 1}", search.algorithm, point) for n, point in enumerate(points(search))
    ]
    return _plan(search, methods, (search.seed,))


def tunable() -> list[str]:
    """The algorithms that declare a search space."""
    return [name for name in names() if space_of(name)]


def space_of(name: str) -> SearchSpace:
    """The search space of an algorithm, which stands in its own settings."""
    return algorithm(name).settings.search_space


def points(search: Search) -> list[JsonObject]:
    """The settings of every trial, drawn from the search's seed; fixed settings are left out."""
    return [draw(search.searched, search.seed, trial) for trial in range(search.trials)]


def draw(space: SearchSpace, seed: int, trial: int) -> JsonObject:
    """One point of a space."""
    rng = streams.at(seed, "tuning", trial)
    point: JsonObject = {}
    for key, values in space.items():
        if isinstance(values, list):
            point[key] = values[rng.integers(len(values))]
        else:
            point[key] = float(f"{np.exp(rng.uniform(*np.log(values))):.3g}")
    return point


def _plan(search: Search, methods: Sequence[Method], seeds: tuple[int, ...]) -> Plan:
    settings: JsonObject = {"validation": True, "headline": ["NDCG"]}
    settings |= budget(search) | dict(search.held)
    if _learning_rate_may_decay(search):
        settings["patience"] = 0
    return Plan(
        datasets=(search.dataset,),
        methods=tuple(methods),
        settings=settings,
        seeds=seeds,
        protocol=search.protocol,
        part="validation",
    )


def budget(search: Search) -> dict[str, int]:
    """How long a trial may train, and when it is measured.

    With another limit of steps, patience counts from the same share of it.
    """
    steps = search.steps
    usual = BUDGETS[steps]
    if not steps:
        return usual
    declared = algorithm(search.algorithm).settings.trial_steps or usual[steps]
    fixed = search.held.get(steps)
    limit = fixed if isinstance(fixed, int) else declared
    if declared == 1:
        # Fixed steps beyond the first, for clients that miss it, are measured only at their end.
        return {steps: limit, "evaluate_every": limit, "patience": 0}
    return {
        steps: limit,
        "evaluate_every": max(usual["evaluate_every"] * declared // usual[steps], 1),
        "patience": usual["patience"],
        "patience_from": usual["patience_from"] * limit // usual[steps],
    }


def _learning_rate_may_decay(search: Search) -> bool:
    """Whether trials must train to the end.

    A decaying learning rate that is cut off at the best round cannot be reproduced by a run of that
    many rounds. The rule is the same for all trials and finalists of a search, whatever was drawn.
    """
    if "final_rate" in search.held:
        return search.held["final_rate"] != 1
    return "final_rate" in search.searched


def _ranked(
    search: Search, methods: Sequence[Method], results: Sequence[CellResult]
) -> list[tuple[Method, RankedTrial]]:
    """Methods that diverged with no seed, by their mean on validation; ties in given order."""
    ranked = []
    for method in methods:
        own = [result for result in results if result.cell.method == method]
        if not any(result.diverged for result in own):
            ranked.append((method, _ranked_trial(search, method, own)))
    if not ranked:
        raise Diverged(
            f"every trial of {search.algorithm} diverged ({results[0].diverged}); "
            "expected at least one that does not. "
            "Fix a smaller learning rate with --set learning_rate=VALUE."
        )
    metric = _metric(results)
    return sorted(ranked, key=lambda pair: loss(metric, pair[1].value))


def _metric(results: Sequence[CellResult]) -> str:
    """The metric that trials are ranked by; diverged ones measured none."""
    return str(next(result.result["metric"] for result in results if not result.diverged))


def _ranked_trial(search: Search, method: Method, results: Sequence[CellResult]) -> RankedTrial:
    own = algorithm(search.algorithm).settings.model_fields
    settings = dict(method.settings)
    settings |= {key: value for key, value in search.held.items() if key in own}
    if search.steps:
        settings[search.steps] = int(np.median([r.result["best_round"] for r in results]))
    return RankedTrial(
        value=float(np.mean([r.result["value"] for r in results])),
        settings=settings,
        popularity_prior=float(np.median([r.result["popularity_prior"] for r in results])),
    )


def _check(search: Search) -> None:
    if search.held.get("epsilon") is not None:
        raise ConfigError(
            f"setting 'epsilon' is {search.held['epsilon']}, but every trial of a search looks at "
            "users' data, and the budget would not pay for it; expected no epsilon. Search on "
            "public data, and pass what you find to coterie run with --set."
        )
    if search.space is None and not space_of(search.algorithm):
        raise ConfigError(
            f"algorithm {search.algorithm!r} has no search space; "
            f"expected one of {', '.join(tunable())}. "
            "Declare `search_space` in its settings."
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


def _warn_of_limit(search: Search, best: RankedTrial, progress: Progress) -> None:
    """If the best round is the last one allowed, more rounds might be better."""
    steps = search.steps
    if not steps:
        return
    most = budget(search)[steps]
    if best.settings[steps] == most:
        progress.log(
            f"the best trial used all {steps} allowed ({most}); --set {steps}=N allows more"
        )
