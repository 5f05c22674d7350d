"""Choose a federated algorithm on one's own data, by what may leave a client.

    sums        a server sees only sums over clients: algorithms that need nothing else, under
                secure aggregation
    updates     a server may see every client's update: all federated algorithms, in the clear
    disclosed   a server sees updates of the items that users disclose: algorithms with a disclosure
                rate, at the rate that is given

Every allowed algorithm is trained with its default settings within a share of the time, and
measured on the validation part. The test part is held out and dropped before anything is trained.
Training is in the clear for `sums`, too: sums have the same bits with and without protection.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from coterie import kernels
from coterie.algorithms.algorithm import Algorithm
from coterie.algorithms.registry import algorithm, names
from coterie.algorithms.two_tower.settings import FederatedTowers
from coterie.core import streams
from coterie.core.progress import SILENT, Progress
from coterie.data.interactions import Interactions
from coterie.data.splits import Split
from coterie.errors import ConfigError, DataError, Diverged, MissingExtra, UnknownName
from coterie.evaluation.evaluation import accuracy_per_user
from coterie.evaluation.popularity import popular_accuracy
from coterie.evaluation.significance import paired_t_test
from coterie.experiments import server_view
from coterie.experiments.choice_costs import ClientCosts, client_costs, masking_is_timed
from coterie.experiments.choice_progress import MethodTimes
from coterie.experiments.config import Experiment
from coterie.experiments.derived_defaults import popularity_prior, uses_prior
from coterie.experiments.history import Point
from coterie.experiments.preparation import load_data, split_data, training_set
from coterie.experiments.training import begin, check_refusals, finish, step, trainer
from coterie.federated import selection
from coterie.federated.costs import Costs
from coterie.federated.disclosure import Disclosing
from coterie.federated.federation import AnyFederation, AnyWorld, Federation
from coterie.federated.secagg.exposure import in_sums, in_the_clear, only_sums
from coterie.federated.settings import federation_settings
from coterie.federated.trainer import Context, Trainer, world_of
from coterie.models.popularity_prior import recommender
from coterie.models.recommender import Recommender
from coterie.types import Doubles, JsonObject

METRIC = "NDCG@10"
LEVELS = ("sums", "updates", "disclosed")
REFERENCES = ("ease", "als")
"""Centralised algorithms; the better one is shown for comparison."""
MOST_USERS = 10_000
"""Users that are trained on; of more, a sample is."""
MOST_SCORES = 200_000_000
"""Users times items of a comparison."""
FEWEST_USERS = 500
"""Users of a sample, however many items there are."""
FEWEST_INTERACTIONS = 3
"""Of a user with a training, a validation and a test item."""
CLEARLY = 0.05
"""The p-value below which a difference over users counts."""
NEARLY = 0.9
"""Share of the best accuracy that a cheaper algorithm has to reach to be named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceRequest:
    """What is to be compared."""

    dataset: str = "synthetic"
    may_leave: str
    disclosure: float | str | None = None
    """Rate that users disclose at, for `disclosed`; 0.1 if it is not given."""
    minutes: float = 4.0
    """Time for training all algorithms."""
    protocol: str | None = None
    seed: int = 0
    settings: Mapping[str, object] = field(default_factory=dict)
    """Settings of the data and of its split."""
    own: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Settings of single algorithms, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An allowed algorithm, as it was measured."""

    name: str
    value: float
    """NDCG@10 on the validation part."""
    by_user: Doubles
    steps: int
    all_steps: int
    """Rounds or epochs of a whole training; the time may have ended before."""
    step_name: str
    tuned: bool
    seconds: float
    """Of training, in this simulation."""
    costs: ClientCosts
    server_learns: str
    secure_aggregation: str = "none"
    """The protocol that protects it."""
    sums_reveal: bool = False
    """Whether attackers find histories in the sums that it sends."""

    @property
    def was_cut(self) -> bool:
        return self.steps < self.all_steps


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An algorithm that was not measured, and why."""

    name: str
    reason: str
    allowed: bool
    """Whether what may leave a client allows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A level of accuracy to compare with, which is not to be chosen."""

    name: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmChoice:
    """The allowed algorithms on one dataset, best first."""

    request: ChoiceRequest
    disclosure: float | str | None
    candidates: tuple[Candidate, ...]
    left_out: tuple[LeftOut, ...]
    popular: Reference
    centralised: Reference | None
    n_users: int
    """Users that were trained on."""
    all_users: int
    n_items: int
    tested_users: int
    masking_timed: bool

    @property
    def best(self) -> Candidate:
        """The most accurate one on the validation part."""
        return self.candidates[0]

    @property
    def recommended(self) -> Candidate | None:
        """The best one; None if the most popular items are as good."""
        return None if self.is_below_popular(self.best) else self.best

    def is_below_popular(self, candidate: Candidate) -> bool:
        return candidate.value <= self.popular.value

    @property
    def cheaper(self) -> Candidate | None:
        """The one with the fewest bytes among those nearly as good as the best, if not the best."""
        near = [one for one in self.candidates if one.value >= NEARLY * self.best.value]
        least = min(near, key=lambda one: one.costs.total_bytes)
        return None if least is self.best else least

    @property
    def without_known_attack(self) -> Candidate | None:
        """The best one in whose sums no attacker finds histories; None where updates are seen."""
        if self.request.may_leave != "sums":
            return None
        return next((one for one in self.candidates if not one.sums_reveal), None)

    def differs(self, one: Candidate, other: Candidate) -> bool:
        """Whether two differ over users by more than chance."""
        return paired_t_test(one.by_user - other.by_user) < CLEARLY

    def to_json(self) -> JsonObject:
        hiding = self.without_known_attack
        return {
            "dataset": self.request.dataset,
            "may_leave": self.request.may_leave,
            "disclosure": self.disclosure,
            "metric": METRIC,
            "part": "validation",
            "seed": self.request.seed,
            "users": self.n_users,
            "all_users": self.all_users,
            "items": self.n_items,
            "tested_users": self.tested_users,
            "recommended": None if self.recommended is None else self.recommended.name,
            "best": self.best.name,
            "without_known_attack": None if hiding is None else hiding.name,
            "candidates": [self._candidate(one) for one in self.candidates],
            "popular": self.popular.value,
            "centralised": None
            if self.centralised is None
            else {"algorithm": self.centralised.name, "value": self.centralised.value},
            "left_out": [
                {"algorithm": one.name, "allowed": one.allowed, "reason": one.reason}
                for one in self.left_out
            ],
        }

    def _candidate(self, one: Candidate) -> JsonObject:
        return {
            "algorithm": one.name,
            "value": one.value,
            "below_popular": self.is_below_popular(one),
            "steps": one.steps,
            "all_steps": one.all_steps,
            "step_name": one.step_name,
            "tuned": one.tuned,
            "messages": one.costs.messages,
            "bytes_up": one.costs.bytes_up,
            "bytes_down": one.costs.bytes_down,
            "model_bytes": one.costs.model_bytes,
            "client_seconds": one.costs.seconds,
            "server_learns": one.server_learns,
            "secure_aggregation": one.secure_aggregation,
            "sums_reveal": one.sums_reveal,
            "seconds": one.seconds,
        }


# What may leave


@dataclass(frozen=True, slots=True)
class _Method:
    """An algorithm that is ready to be trained."""

    name: str
    experiment: Experiment

    @property
    def algorithm(self) -> Algorithm:
        return algorithm(self.name)

    @property
    def steps(self) -> int:
        return self.algorithm.steps(self.experiment.settings)


def choose(
    request: ChoiceRequest, given: Interactions | None = None, progress: Progress = SILENT
) -> AlgorithmChoice:
    """Train and measure every allowed algorithm on the validation part."""
    _check(request)
    base = Experiment.of(_keys(request, "popular"))
    loaded = (load_data(base, progress) if given is None else given).without_ratings()
    data = sample_users(loaded, request.seed)
    parts = validation_split(base, data)
    methods: list[_Method] = []
    left_out: list[LeftOut] = []
    for name in federated_algorithms():
        made = _method(request, name)
        excluded = refusal(request, name, made.experiment, parts)
        if excluded is None:
            methods.append(made)
        else:
            left_out.append(excluded)
    references = [_Method(name, Experiment.of(_keys(request, name))) for name in REFERENCES]
    found, failed = _measure_all(request, [*methods, *references], parts, progress)
    left_out += [one for one in failed if one.name not in REFERENCES]
    candidates = [one for one in found if isinstance(one, Candidate)]
    if not candidates:
        reasons = "; ".join(f"{one.name}: {one.reason}" for one in left_out if one.allowed)
        raise ConfigError(
            f"no algorithm that --may-leave {request.may_leave} allows could be trained "
            f"({reasons}); expected at least one. Filter the data, for example with --set core=5."
        )
    levels = [one for one in found if isinstance(one, Reference)]
    protocol = base.protocol
    return AlgorithmChoice(
        request=request,
        disclosure=rate_of(request),
        candidates=tuple(sorted(candidates, key=lambda c: (-c.value, c.costs.total_bytes))),
        left_out=tuple(left_out),
        popular=Reference(name="popular", value=popular_accuracy(parts, protocol, None)[METRIC]),
        centralised=max(levels, key=lambda one: one.value, default=None),
        n_users=data.n_users,
        all_users=loaded.n_users,
        n_items=data.n_items,
        tested_users=int(np.count_nonzero(parts.test.rows.counts)),
        masking_timed=request.may_leave != "sums" or masking_is_timed(),
    )


def federated_algorithms() -> list[str]:
    return [name for name in names() if algorithm(name).federated]


def rate_of(request: ChoiceRequest) -> float | str | None:
    """The disclosure rate of all algorithms; None where users do not choose one."""
    if request.may_leave != "disclosed":
        return None
    return 0.1 if request.disclosure is None else request.disclosure


def refusal(
    request: ChoiceRequest, name: str, experiment: Experiment, parts: Split
) -> LeftOut | None:
    """Why an algorithm is not trained; None if it is."""
    settings = federation_settings(experiment.settings)
    federation = _federation(experiment)
    if request.may_leave == "disclosed" and not isinstance(settings, Disclosing):
        return LeftOut(name, "no disclosure rate can be set", False)
    if request.may_leave == "sums":
        protected = world_of(parts.training(), settings.protected(), 0)
        if not only_sums(federation, protected):
            seen = in_the_clear(federation, protected) or ["its own update"]
            reason = "in spite of secure aggregation a server sees of every client: "
            return LeftOut(name, reason + "; ".join(seen), False)
    if isinstance(settings, FederatedTowers):
        if parts.train.item_texts is None:
            return LeftOut(name, "item texts are needed, and the data has none", True)
        return LeftOut(name, "towers are too slow here; train one with coterie run", True)
    try:
        world = _world(request, experiment, parts)
        # Some algorithms refuse a catalogue or a cohort only when they start.
        cohort = federation.sample(world, federation.init(world).without_private(), 0)
        if len(cohort) < world.settings.fewest_clients:
            return LeftOut(name, _too_few(len(cohort), world.settings.fewest_clients), True)
        selection.check_size(world, cohort)
    except (ConfigError, MissingExtra) as error:
        return LeftOut(name, for_one(name, str(error)), True)
    return None


def _too_few(n_clients: int, fewest: int) -> str:
    clients = "client" if n_clients == 1 else "clients"
    return (
        f"a round selects {n_clients} {clients}, and secure aggregation hides a client only among "
        f"at least {fewest}"
    )


def for_one(name: str, complaint: str) -> str:
    """A complaint whose remedies are options of this command: --set sets them for one algorithm."""
    known = algorithm(name).settings.model_fields

    def option(found: re.Match[str]) -> str:
        return f"--set {name}.{found[1]}=" if found[1] in known else found[0]

    return re.sub(r"--set (\w+)=", option, complaint)


def _world(request: ChoiceRequest, experiment: Experiment, parts: Split) -> AnyWorld:
    """The world of an algorithm, protected as what may leave a client demands."""
    settings = federation_settings(experiment.settings)
    if request.may_leave == "sums":
        settings = settings.protected()
    training = training_set(experiment, parts, SILENT)
    return world_of(training, settings, experiment.choice.seed, _federation(experiment))


def _federation(experiment: Experiment) -> AnyFederation:
    federation = algorithm(experiment.choice.algorithm).train
    assert isinstance(federation, Federation)
    return federation


def server_learns(request: ChoiceRequest, experiment: Experiment, world: AnyWorld) -> str:
    """One sentence, from what the algorithm declares."""
    if request.may_leave == "sums":
        sums = f"sums over at most {world.settings.largest_group} clients"
        revealed = in_sums(_federation(experiment), world)
        return "; ".join([sums, *revealed]) if revealed else f"{sums}, nothing of a single one"
    return f"of every client: {'; '.join(server_view.in_the_clear(experiment, world))}"


# Data


def sample_users(data: Interactions, seed: int) -> Interactions:
    """The data, or a random sample of its users where training on all takes too long."""
    most = min(MOST_USERS, max(MOST_SCORES // max(data.n_items, 1), FEWEST_USERS))
    if data.n_users <= most:
        return data
    drawn = streams.at(seed, "users to choose on").choice(data.n_users, most, replace=False)
    return data.of_users(np.sort(drawn))


def validation_split(base: Experiment, data: Interactions) -> Split:
    """The training part, and the validation part in the place of the test part."""
    if data.rows.counts.max(initial=0) < FEWEST_INTERACTIONS:
        raise DataError(
            f"{base.data_label} has no user with {FEWEST_INTERACTIONS} interactions; expected "
            "some, to hold out a validation and a test part. Use more data."
        )
    parts, _ = split_data(base, data)
    return parts.for_tuning()


# Training within the time


def _measure_all(
    request: ChoiceRequest, methods: Sequence[_Method], parts: Split, progress: Progress
) -> tuple[list[Candidate | Reference], list[LeftOut]]:
    """Measure methods, quick ones first, so that they leave their time to the others."""
    found: list[Candidate | Reference] = []
    failed: list[LeftOut] = []
    queue = sorted(methods, key=lambda method: method.steps)
    times = MethodTimes([method.name for method in queue], 60 * request.minutes)
    label = f"Choosing among {len(queue)}"
    with progress.estimated_task(label, len(queue), times.left) as advance:
        for place, method in enumerate(queue):
            times.begin(method.name)
            forward = partial(times.move, advance)
            try:
                result = _measure(request, method, parts, times.allowed, forward)
            except (ConfigError, MissingExtra, Diverged, UnknownName) as error:
                failed.append(LeftOut(method.name, for_one(method.name, str(error)), True))
                text = f"left out: {error}"
            else:
                found.append(result)
                text = f"{METRIC} {result.value:.4f}"
            forward(1.0)
            times.end()
            seconds = times.seconds[method.name]
            progress.log(f"{place + 1} of {len(queue)}: {method.name}: {text}, {seconds:.1f} s")
    return found, failed


def _measure(
    request: ChoiceRequest,
    method: _Method,
    parts: Split,
    seconds: float,
    forward: Callable[[float], None],
) -> Candidate | Reference:
    """Train one method within its time, and measure it."""
    chosen = method.algorithm
    experiment = method.experiment
    for family in (*chosen.kernels_for(experiment.settings), "ranking"):
        kernels.load(family, SILENT)
    training = training_set(experiment, parts, SILENT)
    context = Context(experiment.choice.seed, SILENT)
    work = trainer(chosen, training, experiment.settings, context)
    prior, counting = popularity_prior(experiment, training)
    point = train_within(work, training.n_users, method.steps, seconds, forward, counting)
    model = work.model(point.state)
    by_user = ndcg_by_user(recommender(model, prior), experiment, parts)
    value = float(by_user.mean())
    if not chosen.federated:
        return Reference(name=method.name, value=value)
    check_refusals(point.history, SILENT)
    world = _world(request, experiment, parts)
    return Candidate(
        name=method.name,
        value=value,
        by_user=by_user,
        steps=point.history.round,
        all_steps=method.steps,
        step_name="epochs" if "epochs" in chosen.settings.model_fields else "rounds",
        tuned=experiment.tuned,
        seconds=point.history.seconds,
        costs=client_costs(
            _federation(experiment),
            world,
            training,
            point.state,
            point.history,
            model,
            counting if uses_prior(experiment) else None,
        ),
        server_learns=server_learns(request, experiment, world),
        secure_aggregation=world.settings.secure_aggregation,
        sums_reveal=request.may_leave == "sums" and bool(in_sums(_federation(experiment), world)),
    )


def train_within(
    work: Trainer[Any],
    n_users: int,
    total: int,
    seconds: float,
    forward: Callable[[float], None] = lambda share: None,
    counting: Costs | None = None,
) -> Point:
    """Train to the end, or until another step would exceed the time; at least one step."""
    began = time.perf_counter()
    point = begin(work, n_users, before=counting)
    while point.history.round < total:
        before = point.history.seconds
        point = step(work, point)
        forward(point.history.round / total)
        last = point.history.seconds - before
        if time.perf_counter() - began + last > seconds:
            break
    return finish(work, point)


def ndcg_by_user(model: Recommender, experiment: Experiment, parts: Split) -> Doubles:
    """NDCG@10 of every user with held-out items, by full ranking."""
    table = accuracy_per_user(
        model, experiment.protocol, parts.train.rows, parts.test.rows, parts.test.n_items, None
    )
    return table[METRIC]


# The request


def _method(request: ChoiceRequest, name: str) -> _Method:
    keys = _keys(request, name) | dict(request.own.get(name, {}))
    rate = rate_of(request)
    if rate is not None and "disclosure" in algorithm(name).settings.model_fields:
        keys["disclosure"] = rate
    return _Method(name, Experiment.of(keys))


def _keys(request: ChoiceRequest, name: str) -> dict[str, object]:
    keys: dict[str, object] = {
        "algorithm": name,
        "dataset": request.dataset,
        "seed": request.seed,
        **request.settings,
        "validation": True,
        "candidates": 0,
        "cutoffs": (10,),
        "headline": ("NDCG",),
    }
    return keys if request.protocol is None else keys | {"protocol": request.protocol}


def _check(request: ChoiceRequest) -> None:
    if request.may_leave not in LEVELS:
        raise ConfigError(
            f"--may-leave is {request.may_leave!r}; expected {', '.join(LEVELS[:-1])} or "
            f"{LEVELS[-1]}. docs/choosing.md says what each allows."
        )
    if request.disclosure is not None and request.may_leave != "disclosed":
        raise ConfigError(
            f"--disclosure is {request.disclosure!r}, but --may-leave is {request.may_leave!r}; "
            "expected a rate only where users choose one. Set --may-leave disclosed."
        )
    if not request.minutes > 0:
        raise ConfigError(f"--minutes is {request.minutes}; expected more than 0. Raise it.")
    if request.settings.get("feedback") == "explicit":
        raise ConfigError(
            "setting 'feedback' is 'explicit', but algorithms are chosen by their rankings; "
            "expected implicit feedback. Remove the setting."
        )
    _check_owners(request)
    for name in request.own:
        if name not in federated_algorithms():
            raise UnknownName("federated algorithm", name, federated_algorithms(), " in --set")


def _check_owners(request: ChoiceRequest) -> None:
    """A setting of algorithms has to name the algorithm."""
    for key, value in request.settings.items():
        if key in Experiment.of({"algorithm": "popular"}).flat():
            continue
        for name in federated_algorithms():
            if key in algorithm(name).settings.model_fields:
                raise ConfigError(
                    f"setting {key!r} (value {value}) is one of algorithms, not of the data; "
                    "expected ALGORITHM.KEY=VALUE. "
                    f"Write for example --set {name}.{key}={value}."
                )
