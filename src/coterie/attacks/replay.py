"""Replays a run's first rounds with a curious server; the rounds are bit-identical."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from coterie import kernels
from coterie.algorithms import fcf, fedals, fedease, fedslim, fpl
from coterie.algorithms.registry import ALGORITHMS, algorithm
from coterie.attacks import attackers, ring_evidence
from coterie.attacks.eavesdropper import Eavesdropper, Observation
from coterie.attacks.evidence import Collector, EvidenceCollector, ServerKnowledge
from coterie.attacks.ring_evidence import RingCollector
from coterie.attacks.scores import score, summarise
from coterie.attacks.tables import ALL, Disclosure, DisclosureLine, markdown
from coterie.attacks.vector_evidence import VectorCollector
from coterie.core.progress import SILENT, Progress
from coterie.core.records import Record
from coterie.data.interactions import Interactions
from coterie.engines.local import LocalEngine
from coterie.errors import ConfigError, RunError
from coterie.evaluation.breakdown import groups
from coterie.experiments import run_folder
from coterie.experiments.config import Experiment
from coterie.experiments.finished_run import Run
from coterie.experiments.preparation import Prepared, prepare
from coterie.experiments.training import begin
from coterie.experiments.warm_start import reuse
from coterie.federated import trainer
from coterie.federated.costs import NO_USERS
from coterie.federated.federation import (
    AnyFederation,
    AnyWorld,
    Federation,
)
from coterie.federated.settings import federation_settings
from coterie.federated.trainer import Context, Trainer
from coterie.types import Bools, Doubles, Ints


def collectors_for_rows(world: AnyWorld) -> tuple[Collector, ...]:
    against = attackers.ON_FPL if isinstance(world.settings, fpl.FPL) else attackers.ON_FCF
    return (EvidenceCollector(knowledge_of(world), against),)


def collectors_for_sums(world: AnyWorld) -> tuple[Collector, ...]:
    """FedALS, FedEASE and FedSLIM: item ids in the clear, or sums over rings."""
    is_fedals = isinstance(world.settings, fedals.FedALS)
    if world.settings.secure_aggregation != "none":
        against = ring_evidence.ON_FEDALS if is_fedals else ring_evidence.ON_PAIRS
        return (RingCollector(world, against),)
    server = ServerKnowledge(world.n_users, world.n_items, 0)
    ids = EvidenceCollector(server, attackers.ON_IDS)
    if is_fedals and not world.rated:
        return (ids, VectorCollector(world))
    return (ids,)


class Known(NamedTuple):
    collectors: Callable[[AnyWorld], tuple[Collector, ...]]
    rounds: Sequence[int]
    """After which figures are given by default."""


KNOWN = {
    fpl.__name__: Known(collectors_for_rows, (10, 100)),
    fcf.__name__: Known(collectors_for_rows, (1,)),  # the first round reveals everything
    fedals.__name__: Known(collectors_for_sums, (1, 10)),
    fedease.__name__: Known(collectors_for_sums, (1,)),  # a client sends once
    fedslim.__name__: Known(collectors_for_sums, (1,)),
}
"""Modules of algorithms that can be attacked."""


def report(
    run: Run | str | Path,
    rounds: Sequence[int] | int | None = None,
    data: Interactions | None = None,
    progress: Progress = SILENT,
) -> Disclosure:
    """What a curious server knows about the users of a run after some rounds. Writes nothing.

    `rounds`: by default 10 and 100 for FPL, 1 and 10 for FedALS, 1 for others.
    `data`: the interactions passed to `coterie.run`, for runs on data without a name.
    """
    folder = _folder(run)
    config = run_folder.read_settings(folder)
    _refuse_other(str(config.get("algorithm")))
    experiment = Experiment.of(config)
    name = experiment.choice.algorithm
    when = _checked(KNOWN[_module(name)].rounds if rounds is None else rounds)
    ready = prepare(experiment, data, progress)
    refuse_other_data(folder, ready)
    replay = Replay.of(ready)
    lines = [line for k in replay.play(when, progress) for line in replay.lines(k)]
    about = {
        "run": str(folder),
        "algorithm": name,
        "dataset": experiment.choice.dataset,
        "seed": experiment.choice.seed,
        "users": int(replay.world.members.sum()),
        "items": replay.world.n_items,
        "rounds_of_the_run": replay.n_rounds,
        "settings": experiment.settings.model_dump(mode="json"),
    }
    uses = {name: text for each in replay.collectors for name, text in each.uses.items()}
    return Disclosure(about, uses, tuple(lines))


def save(report: Disclosure, folder: Path) -> None:
    """Write disclosure.md and disclosure.json."""
    run_folder.write_text(folder, "disclosure.md", markdown(report))
    text = json.dumps(report.as_json(), indent=2, allow_nan=False)
    run_folder.write_text(folder, "disclosure.json", text + "\n")


class PlayedRound(NamedTuple):
    """The state after a round, and the clients that were selected for it."""

    n: int
    state: Record
    selected: Ints


@dataclass(frozen=True, slots=True)
class Replay:
    """A run that is replayed and observed."""

    ready: Prepared
    federation: AnyFederation
    world: AnyWorld
    engine: LocalEngine
    collectors: tuple[Collector, ...]
    listeners: tuple[Callable[[Observation], None], ...] = ()
    """Called with every observation, after the collectors."""

    @classmethod
    def of(cls, ready: Prepared) -> Replay:
        """With the attackers that there are for the algorithm; for some there are none."""
        choice = ready.experiment.choice
        settings = federation_settings(ready.experiment.settings)
        training = ready.training
        federation = algorithm(choice.algorithm).train
        assert isinstance(federation, Federation)
        world = trainer.world_of(training, settings, choice.seed, federation)
        known = KNOWN.get(_module(choice.algorithm))
        collectors = () if known is None else known.collectors(world)
        if known is not None and known.collectors is collectors_for_sums:
            # Sums in the clear have the same bits; a collector adds them up by ring.
            in_clear = settings.model_copy(update={"secure_aggregation": "none"})
            world = replace(world, settings=in_clear)
        engine = LocalEngine.over(world, training, world.settings.nodes or 1)
        return cls(ready, federation, world, engine, collectors)

    @property
    def n_rounds(self) -> int:
        """Number of rounds of the run."""
        return trainer.n_rounds(self.federation, self.world)

    def play(self, when: Sequence[int], progress: Progress) -> Iterator[int]:
        """Play the rounds one by one; yields the round number at each of `when`, ascending."""
        for played in self.rounds(self.trainer(progress), when[-1], progress):
            if played.n in when:
                yield played.n

    def trainer(self, progress: Progress) -> Trainer[Record]:
        """The run's own training, one round a step, before a curious server."""
        choice = self.ready.experiment.choice
        for family in algorithm(choice.algorithm).kernels_for(self.world.settings):
            kernels.load(family, progress)
        engine = Eavesdropper(self.engine, self._observe)
        context = Context(choice.seed, progress)
        return trainer.federated_trainer(
            self.federation, self.world, engine, context, by_round=True
        )

    def rounds(self, work: Trainer[Record], last: int, progress: Progress) -> Iterator[PlayedRound]:
        """The initial state as round 0, then the rounds one by one."""
        state = begin(work, self.world.n_users, self._warm_start()).state
        yield PlayedRound(0, state, NO_USERS)
        name = self.ready.experiment.choice.algorithm
        with progress.task(f"Replaying {name}", last) as advance:
            for n in range(1, last + 1):
                state, costs = work.step(state, n)
                advance()
                yield PlayedRound(n, state, costs.users)

    def _observe(self, observation: Observation) -> None:
        for collector in self.collectors:
            collector.add(observation)
        for listener in self.listeners:
            listener(observation)

    def _warm_start(self) -> Callable[[Any], Any] | None:
        """Puts the weights of another run into the initial state, if the run began with them."""
        earlier = self.ready.experiment.course.start_from
        if not earlier:
            return None
        return reuse(Path(earlier), self.ready.catalogue, self.ready.parts.test)

    def lines(self, k: int) -> Iterator[DisclosureLine]:
        """The figures after k rounds, for all users and by disclosure rate."""
        pi = rates(self.world, self.engine, k)
        for collector in self.collectors:
            observed = collector.observed
            by_pi = {ALL: observed} | by_rate(pi, observed)
            for name, claims in collector.claims().items():
                result = score(claims, self.ready.training.positives, self.world.n_items)
                for label, users in by_pi.items():
                    yield DisclosureLine(k, name, label, summarise(result, users))


def knowledge_of(world: AnyWorld) -> ServerKnowledge:
    """What the server of a run knows in advance."""
    settings = world.settings
    sizes = (world.n_users, world.n_items, world.settings.embedding_size)
    if isinstance(settings, fpl.FPL):
        _, positive, negative = settings.regularisation()
        return ServerKnowledge(*sizes, positive, negative)
    return ServerKnowledge(*sizes)


def rates(world: AnyWorld, engine: LocalEngine, k: int) -> Doubles | None:
    """Each user's mean disclosure rate over the first k rounds; None if the algorithm has none."""
    if not isinstance(world.settings, fpl.FPL):
        return None
    a_step = fpl.rounds_an_epoch(world)
    total = np.zeros(world.n_users)
    for first in range(0, k, a_step):
        for node in engine.nodes:
            pi = fpl.disclosed(world, node, node.users, np.full(len(node.users), first))
            total[node.users] += pi.astype(np.float64) * (min(k, first + a_step) - first)
    return total / k


def by_rate(pi: Doubles | None, observed: Bools) -> dict[str, Bools]:
    """Observed users by their disclosure rate; empty if all have the same."""
    if pi is None:
        return {}
    parts = [(low, high, observed & users) for low, high, users in groups(pi)]
    parts = [part for part in parts if part[2].any()]
    if len(parts) < 2:
        return {}
    return {f"{low:g}" if low == high else f"{low:g} to {high:g}": who for low, high, who in parts}


def _module(name: str) -> str:
    """The module of an algorithm; "" of one that another package adds."""
    return ALGORITHMS.get(name, "").partition(":")[0]


def _refuse_other(name: str) -> None:
    if name in ALGORITHMS and _module(name) not in KNOWN:
        names = ", ".join(n for n in ALGORITHMS if _module(n) in KNOWN)
        raise ConfigError(
            f"the run's algorithm is {name}, for which there is no attacker; expected one of "
            f"{names}. Name the folder of such a run."
        )


def refuse_other_data(folder: Path, ready: Prepared) -> None:
    if not (folder / "result.json").exists():
        return
    if run_folder.read_result(folder)["trained_on"] != ready.fingerprint:
        raise RunError(
            f"{folder}: dataset {ready.experiment.choice.dataset!r}, or its privacy preferences, "
            "differ from those the run was trained on; expected the same. Train again; for a run "
            "on interactions of your own, pass them here, too (from Python: data=)."
        )


def _folder(run: Run | str | Path) -> Path:
    if not isinstance(run, Run):
        return Path(run)
    if run.result["run"] is None:
        raise RunError(f"{run!r} has no folder; expected a run with one. Pass out= to coterie.run.")
    return Path(run.result["run"])


def _checked(wanted: Sequence[int] | int) -> list[int]:
    wanted = [wanted] if isinstance(wanted, int) else list(wanted)
    if not wanted or not all(isinstance(n, int) and n > 0 for n in wanted):
        raise ConfigError(
            f"rounds are {wanted}; expected one or more, each at least 1. "
            "Pass for example 10 and 100."
        )
    return sorted(set(wanted))
