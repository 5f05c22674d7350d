"""A leaderboard: every algorithm on the same data, with settings from equally many trials.

On each dataset:

    applicable    the algorithms that can learn from the data; the others are listed with a reason
    trials        the same number of random settings for every algorithm that has any to search,
                  measured on the validation part
    runs          the best settings, trained with every seed and measured on the test part
    tests         the best algorithm against every other one, paired over users, Holm's correction

Settings that an earlier search found are not used: all begin with the defaults of their files.
Popularity is left out of all scores. Every run is kept, so that the same command resumes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean

from coterie.algorithms.local.batched import find_device
from coterie.algorithms.registry import algorithm, names
from coterie.core.progress import SILENT, Progress
from coterie.data.interactions import Interactions
from coterie.errors import ConfigError, DataError, Diverged, MissingExtra, UnknownName
from coterie.evaluation.direction import loss
from coterie.experiments.cell_cache import CellResult
from coterie.experiments.comparison import Difference, Spread, comparison, standing
from coterie.experiments.config import Experiment, tuned_settings
from coterie.experiments.leaderboard_facts import Facts, facts_of
from coterie.experiments.plan import Method, Plan
from coterie.experiments.plan_progress import RunLog
from coterie.experiments.plan_runner import run_plan, run_plans
from coterie.experiments.preparation import load_data, prepare
from coterie.experiments.training import begin, trainer
from coterie.experiments.tuning import Search, TuningResult, budget, result_of, space_of, trials_of
from coterie.federated.trainer import Context
from coterie.types import JsonObject
from coterie.version import __version__

DATASETS = ("ml-100k", "ml-1m", "foursquare-italy", "yelp", "pinterest", "tripadvisor")
PROTOCOL = "loo-99"
"""The protocol of most papers of the field: 99 candidates beside the held-out item."""
NOT_WANTED = "left out by --without"
QUICK_STEPS = {"rounds": 60, "epochs": 15}
"""Most steps of a trial in a quick leaderboard, where an algorithm has more."""
FINAL: JsonObject = {"evaluate_every": 1_000_000_000, "headline": ["NDCG", "HR"]}
"""Final runs are measured at their end only; algorithms are tested on these two metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderboardRequest:
    """What is to be compared, on one dataset."""

    dataset: str
    algorithms: tuple[str, ...] = ()
    """Names; all algorithms if there are none."""
    without: tuple[str, ...] = ()
    """Names of algorithms that are left out, such as those that would take days."""
    gpu: tuple[str, ...] = ()
    """Names of algorithms that train on a GPU."""
    protocol: str = PROTOCOL
    trials: int = 10
    seeds: int = 3
    quick: bool = False
    """Whether training may be cut short."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Settings of the data, its split and its evaluation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchTrial:
    """A trial of a search."""

    settings: JsonObject
    value: float | None
    """The metric on the validation part; None if training diverged."""
    steps: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placing:
    """An algorithm on the leaderboard of one dataset."""

    algorithm: str
    facts: Facts
    trials: list[SearchTrial]
    settings: JsonObject
    """The best settings."""
    metrics: dict[str, Spread]
    """Over seeds, under the protocol."""
    full: dict[str, Spread]
    """Over seeds, by full ranking."""
    steps: float
    seconds: float
    """Of training, on this machine."""
    messages: float
    """Rounds that select the average client; 0 without a federation, like the bytes."""
    bytes_up: float
    bytes_down: float
    """Of the average client, in the whole training."""
    behind: list[Difference]
    """The best algorithm minus this one; empty for the best."""


@dataclass(frozen=True, slots=True)
class NotCompared:
    """An algorithm that was not measured."""

    algorithm: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaderboard:
    """All algorithms on one dataset, the best first."""

    dataset: str
    data: str
    """The fingerprint of the data."""
    protocol: str
    metric: str
    """Algorithms are tuned and ranked by it, under the protocol."""
    users: int
    items: int
    interactions: int
    tested_users: int
    n_trials: int
    seeds: list[int]
    quick: bool
    version: str
    entries: list[Placing]
    left_out: list[NotCompared]

    def to_json(self) -> JsonObject:
        return asdict(self)

    @classmethod
    def from_json(cls, values: JsonObject) -> Leaderboard:
        entries = [_entry_from_json(entry) for entry in values["entries"]]
        left_out = [NotCompared(**one) for one in values["left_out"]]
        return cls(**values | {"entries": entries, "left_out": left_out})


def _entry_from_json(values: JsonObject) -> Placing:
    def spreads(group: str) -> dict[str, Spread]:
        return {name: Spread(**one) for name, one in values[group].items()}

    return Placing(
        **values
        | {
            "facts": Facts(**values["facts"]),
            "trials": [SearchTrial(**one) for one in values["trials"]],
            "metrics": spreads("metrics"),
            "full": spreads("full"),
            "behind": [Difference(**one) for one in values["behind"]],
        }
    )


def leaderboard(
    request: LeaderboardRequest,
    folder: Path | None = None,
    progress: Progress = SILENT,
    workers: int = 1,
    given: Interactions | None = None,
) -> Leaderboard:
    """Tune, train and test every algorithm. Finished runs in `folder` are not repeated."""
    _check(request)
    data = load_data(_experiment(request, "popular"), progress) if given is None else given
    data = data.without_ratings()
    entrants, left_out = _applicable(request, data, progress)
    searches = [_search(request, name) for name in entrants if space_of(name)]
    progress.log(
        f"{request.dataset}: {len(entrants)} algorithms, {request.trials} trials for each of the "
        f"{len(searches)} that have settings to search, then final runs"
    )
    plans = [trials_of(search) for search in searches]
    trained = run_plans(plans, folder, progress, workers, given)
    found: dict[str, TuningResult] = {}
    for search, trials in zip(searches, trained, strict=True):
        try:
            found[search.algorithm] = result_of(search, trials)
        except Diverged as error:
            left_out.append(NotCompared(search.algorithm, str(error)))
    methods = [
        Method(name, name, _chosen(request, name, found.get(name)))
        for name in entrants
        if name in found or not space_of(name)
    ]
    # The longest first: at the end, processes wait for the last run.
    methods.sort(key=lambda method: -_seconds(searches, trained, method.label))
    runs = _final_runs(request, methods, folder, progress, workers, given)
    runs.sort(key=lambda run: entrants.index(run.cell.method.label))
    diverged = {run.cell.method.label: run.diverged for run in runs if run.diverged}
    left_out += [NotCompared(name, reason) for name, reason in diverged.items()]
    kept = [run for run in runs if run.cell.method.label not in diverged]
    return _ranked(request, data, kept, found, left_out, progress)


# Who takes part


def _applicable(
    request: LeaderboardRequest, data: Interactions, progress: Progress
) -> tuple[list[str], list[NotCompared]]:
    """The algorithms that can begin to train on the data, and why the others cannot."""
    entrants: list[str] = []
    left_out: list[NotCompared] = []
    named = request.algorithms or tuple(names())
    left_out += [NotCompared(name, NOT_WANTED) for name in named if name in request.without]
    wanted = [name for name in named if name not in request.without]
    with progress.task("Checking algorithms", len(wanted)) as advance:
        for name in wanted:
            try:
                ready = prepare(_experiment(request, name), data, SILENT)
                settings = ready.experiment.settings
                work = trainer(algorithm(name), ready.training, settings, Context(0, SILENT))
                begin(work, ready.training.n_users)
                entrants.append(name)
            except (ConfigError, DataError, MissingExtra) as error:
                left_out.append(NotCompared(name, str(error)))
            advance()
    if not entrants:
        reasons = "; ".join(f"{one.algorithm}: {one.reason}" for one in left_out)
        raise ConfigError(
            f"no algorithm can learn from {request.dataset} ({reasons}); expected at least one. "
            "Name others with --only, or use other data."
        )
    return entrants, left_out


# Settings


def _shared(request: LeaderboardRequest) -> JsonObject:
    """Settings of the data and its evaluation, which are the same for all."""
    return {"popularity_prior": 0.0, **request.settings}


def _untuned(request: LeaderboardRequest, name: str) -> JsonObject:
    """The defaults of an algorithm's file, for all settings that an earlier search has changed.

    And the hardware that trains it, if that is not the processor.
    """
    defaults = algorithm(name).settings.of({})
    earlier = tuned_settings(request.dataset, name)
    hardware = {"device": "cuda"} if name in request.gpu else {}
    return {key: getattr(defaults, key) for key in earlier} | hardware


def _experiment(request: LeaderboardRequest, name: str) -> Experiment:
    keys: JsonObject = {
        "algorithm": name,
        "dataset": request.dataset,
        "protocol": request.protocol,
    }
    return Experiment.of(keys | _untuned(request, name) | _shared(request))


def _search(request: LeaderboardRequest, name: str) -> Search:
    """The search of one algorithm: all have the same number of trials and the same seed."""
    plain = Search(name, request.dataset, request.protocol, request.trials)
    searched = {*space_of(name), plain.steps}
    held = {key: value for key, value in _untuned(request, name).items() if key not in searched}
    if request.quick and plain.steps:
        usual = budget(plain)[plain.steps]
        held[plain.steps] = min(usual, QUICK_STEPS[plain.steps])
    return Search(
        name,
        request.dataset,
        request.protocol,
        request.trials,
        held=held | _shared(request),
    )


def _chosen(request: LeaderboardRequest, name: str, found: TuningResult | None) -> JsonObject:
    """The settings of an algorithm's final runs: the best trial's, or the defaults."""
    return _untuned(request, name) | ({} if found is None else found.best.settings)


def _seconds(
    searches: Sequence[Search], trained: Sequence[Sequence[CellResult]], name: str
) -> float:
    """How long the longest trial of an algorithm took; 0 if it has none."""
    return max(
        (
            float(trial.result.get("seconds", 0.0))
            for search, trials in zip(searches, trained, strict=True)
            if search.algorithm == name
            for trial in trials
        ),
        default=0.0,
    )


def _final_runs(
    request: LeaderboardRequest,
    methods: Sequence[Method],
    folder: Path | None,
    progress: Progress,
    workers: int,
    given: Interactions | None,
) -> list[CellResult]:
    plan = Plan(
        datasets=(request.dataset,),
        methods=tuple(methods),
        settings=FINAL | _shared(request),
        seeds=tuple(range(request.seeds)),
        protocol=request.protocol,
    )
    log = RunLog(len(methods) * request.seeds, progress)
    return run_plan(plan, folder, progress, workers, given, finished=log.add)


# The result


def _ranked(
    request: LeaderboardRequest,
    data: Interactions,
    runs: Sequence[CellResult],
    found: Mapping[str, TuningResult],
    left_out: list[NotCompared],
    progress: Progress,
) -> Leaderboard:
    """Entries in the order of their mean on the test part, tested against the first."""
    by_name: dict[str, list[CellResult]] = {}
    for run in runs:
        by_name.setdefault(run.cell.method.label, []).append(run)

    metric = _metric(runs[0])

    def value(name: str) -> float:
        return mean(loss(metric, run.result["metrics"][metric]) for run in by_name[name])

    order = sorted(by_name, key=value)
    compared = comparison([run for name in order for run in by_name[name]], False, progress)
    entries = []
    with progress.task("Timing clients", len(order)) as advance:
        for name in order:
            tests = [test for test in compared.tests if test.other == name]
            entries.append(_entry(name, by_name[name], found.get(name), tests, data))
            advance()
    first = runs[0].result
    return Leaderboard(
        dataset=request.dataset,
        data=compared.data,
        protocol=compared.protocol,
        metric=metric,
        users=first["users"],
        items=first["items"],
        interactions=len(data),
        tested_users=compared.tested_users,
        n_trials=request.trials,
        seeds=compared.seeds,
        quick=request.quick,
        version=__version__,
        entries=entries,
        left_out=left_out,
    )


def _metric(run: CellResult) -> str:
    """NDCG at the protocol's first cut-off, by which searches rank trials."""
    cutoff = run.cell.experiment.protocol.cutoffs[0]
    return f"NDCG@{cutoff}"


def _entry(
    name: str,
    runs: Sequence[CellResult],
    found: TuningResult | None,
    behind: list[Difference],
    data: Interactions,
) -> Placing:
    results = [run.result for run in runs]
    measured = standing(name, runs, {})
    users = results[0]["users"]
    return Placing(
        algorithm=name,
        facts=facts_of(runs[0].cell.experiment, data),
        trials=[] if found is None else [_trial(trial) for trial in found.trials],
        settings=dict(runs[0].cell.method.settings),
        metrics=measured.metrics,
        full=measured.full,
        steps=measured.costs["rounds"].mean,
        seconds=measured.costs["seconds"].mean,
        messages=mean(result.get("asked", 0) for result in results) / users,
        bytes_up=measured.costs["bytes_up"].mean / users,
        bytes_down=measured.costs["bytes_down"].mean / users,
        behind=behind,
    )


def _trial(trial: CellResult) -> SearchTrial:
    settings = dict(trial.cell.method.settings)
    if trial.diverged:
        return SearchTrial(settings=settings, value=None, steps=None)
    result = trial.result
    return SearchTrial(settings=settings, value=result["value"], steps=result["best_round"])


def _check(request: LeaderboardRequest) -> None:
    for option, given in (
        ("--only", request.algorithms),
        ("--without", request.without),
        ("--gpu", request.gpu),
    ):
        for name in given:
            if name not in names():
                raise UnknownName("algorithm", name, names(), f" in {option}")
    _check_gpu(request.gpu)
    for option, value in (("trials", request.trials), ("seeds", request.seeds)):
        if value < 1:
            raise ConfigError(
                f"{option} is {value}; expected at least 1. Change it with --{option} N."
            )


def _check_gpu(wanted: Sequence[str]) -> None:
    """Refuse algorithms that cannot train on a GPU, and any of them where there is none."""
    able = [name for name in names() if "device" in algorithm(name).settings.model_fields]
    for name in wanted:
        if name not in able:
            raise ConfigError(
                f"--gpu is {name!r}, which cannot train on a GPU; expected one of "
                f"{', '.join(able)}. Leave it out, and it trains on the processor."
            )
    if wanted:
        _find_gpu()


def _find_gpu() -> None:
    try:
        find_device("cuda")
    except ConfigError:
        raise ConfigError(
            "--gpu is given, but PyTorch finds no GPU here; expected one. "
            "Leave --gpu out, or install a PyTorch made for your GPU."
        ) from None
