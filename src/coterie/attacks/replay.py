"""A run's first rounds once more, with a curious server: from its config, with the same seed and so the same bits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coterie import kernels
from coterie.algorithms import fpl
from coterie.algorithms.registry import ALGORITHMS, algorithm
from coterie.attacks import attackers
from coterie.attacks.eavesdropper import Listening
from coterie.attacks.evidence import Attacker, Dossier, Server
from coterie.attacks.scores import Outcome, judge, summarise
from coterie.attacks.tables import ALL, Disclosure, Line, markdown
from coterie.core.progress import SILENT, Progress
from coterie.data.interactions import Interactions
from coterie.engines.local import LocalEngine
from coterie.errors import ConfigError, RunError
from coterie.evaluation.breakdown import groups
from coterie.experiments import folder as disk
from coterie.experiments.config import Experiment
from coterie.experiments.preparation import Prepared, prepare
from coterie.experiments.run import Run
from coterie.experiments.training import begin
from coterie.experiments.warm_start import reuse
from coterie.federated import trainer
from coterie.federated.federation import (
    AnyFederation,
    AnyWorld,
    Federation,
)
from coterie.federated.settings import federation_settings
from coterie.federated.trainer import Context
from coterie.types import Bools, Doubles

KNOWN: dict[str, tuple[Sequence[Attacker], Sequence[int]]] = {
    "coterie.algorithms.fpl": (attackers.ON_FPL, (10, 100)),
    "coterie.algorithms.fcf": (attackers.ON_FCF, (1,)),  # the first round tells everything
}
"""Attackers by the file of an algorithm, and after how many rounds they are asked if nobody says."""


def report(
    run: Run | str | Path,
    rounds: Sequence[int] | int | None = None,
    data: Interactions | None = None,
    progress: Progress = SILENT,
) -> Disclosure:
    """What a curious server knows about the users of a run after so many of its rounds, 10 and 100 for FPL. Nothing is written.

    `data` is for runs on data that has no name: the interactions that were given to `coterie.run`.
    """
    folder = _folder(run)
    config = disk.read_config(folder)
    _refuse_other(str(config.get("algorithm")))
    experiment = Experiment.of(config)
    name = experiment.choice.algorithm
    when = _checked(KNOWN[_file(name)][1] if rounds is None else rounds)
    ready = prepare(experiment, data, progress)
    _refuse_other_data(folder, ready)
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
    return Disclosure(about, {a.name: a.uses for a in replay.attackers}, tuple(lines))


def save(found: Disclosure, folder: Path) -> None:
    disk.write_text(folder, "disclosure.md", markdown(found))
    disk.write_text(
        folder, "disclosure.json", json.dumps(found.as_json(), indent=2, allow_nan=False) + "\n"
    )


@dataclass(frozen=True, slots=True)
class Replay:
    """A run to be listened to."""

    ready: Prepared
    federation: AnyFederation
    world: AnyWorld
    engine: LocalEngine
    attackers: Sequence[Attacker]
    dossier: Dossier

    @classmethod
    def of(cls, ready: Prepared) -> Replay:
        choice = ready.experiment.choice
        settings = federation_settings(ready.experiment.settings)
        training = ready.training
        federation = algorithm(choice.algorithm).train
        assert isinstance(federation, Federation)
        world = trainer.world_of(training, settings, choice.seed)
        engine = LocalEngine.over(world, training, world.settings.nodes or 1)
        against, _ = KNOWN[_file(choice.algorithm)]
        return cls(ready, federation, world, engine, against, Dossier(server_of(world), against))

    @property
    def n_rounds(self) -> int:
        """Of the run itself."""
        return trainer.n_rounds(self.federation, self.world)

    def play(self, when: Sequence[int], progress: Progress) -> Iterator[int]:
        """The rounds one by one; yields at each of those asked for, ascending."""
        choice = self.ready.experiment.choice
        for family in algorithm(choice.algorithm).kernels_for(self.world.settings):
            kernels.load(family, progress)
        heard = Listening(self.engine, self.dossier.hear)
        work = trainer.federated_trainer(
            self.federation, self.world, heard, Context(choice.seed, progress), by_round=True
        )
        state = begin(work, self.world.n_users, self._earlier()).state
        with progress.task(f"Listening to {choice.algorithm}", when[-1]) as advance:
            for n in range(1, when[-1] + 1):
                state, _ = work.step(state, n)
                advance()
                if n in when:
                    yield n

    def _earlier(self) -> Callable[[Any], Any] | None:
        """The weights that the run began with, if they are another run's."""
        earlier = self.ready.experiment.course.start_from
        return (
            reuse(Path(earlier), self.ready.catalogue, self.ready.parts.test) if earlier else None
        )

    def lines(self, k: int) -> Iterator[Line]:
        """What is known after k rounds, of all users and of those with the same disclosure rate."""
        truth = self.ready.training.positives
        heard = self.dossier.heard
        groups = {ALL: heard} | by_rate(rates(self.world, self.engine, k), heard)
        for name, claims in self.dossier.claims().items():
            outcome: Outcome = judge(claims, truth, self.world.n_items)
            for label, who in groups.items():
                yield Line(k, name, label, summarise(outcome, who))


def server_of(world: AnyWorld) -> Server:
    settings = world.settings
    sizes = (world.n_users, world.n_items, world.settings.embedding_size)
    if isinstance(settings, fpl.FPL):
        _, positive, negative = settings.regularisation()
        return Server(*sizes, positive, negative)
    return Server(*sizes)


def rates(world: AnyWorld, engine: LocalEngine, k: int) -> Doubles | None:
    """Everybody's own disclosure rate, on average over the first k rounds; None where an algorithm knows no such thing."""
    if not isinstance(world.settings, fpl.FPL):
        return None
    a_step = fpl.rounds_an_epoch(world)
    total = np.zeros(world.n_users)
    for first in range(0, k, a_step):
        for node in engine.nodes:
            pi = fpl.disclosed(world, node, node.users, np.full(len(node.users), first))
            total[node.users] += pi.astype(np.float64) * (min(k, first + a_step) - first)
    return total / k


def by_rate(pi: Doubles | None, heard: Bools) -> dict[str, Bools]:
    """Users by their rate, where it is not the same for all."""
    if pi is None:
        return {}
    found = [(low, high, heard & who) for low, high, who in groups(pi) if (heard & who).any()]
    if len(found) < 2:
        return {}
    return {f"{low:g}" if low == high else f"{low:g} to {high:g}": who for low, high, who in found}


def _file(name: str) -> str:
    return ALGORITHMS[name].partition(":")[0]


def _refuse_other(name: str) -> None:
    if name in ALGORITHMS and _file(name) not in KNOWN:
        names = ", ".join(n for n in ALGORITHMS if _file(n) in KNOWN)
        raise ConfigError(
            f"the run is one of {name}, which no attacker is written for; expected one of {names}. Name the folder of such a run."
        )


def _refuse_other_data(folder: Path, ready: Prepared) -> None:
    if (folder / "result.json").exists() and disk.read_result(folder)[
        "trained_on"
    ] != ready.fingerprint:
        raise RunError(
            f"{folder}: the data {ready.experiment.choice.dataset!r}, or what people disclose, is not what the run was trained on any more. Train again; "
            "for a run on interactions of your own, pass them here too (from Python: data=)."
        )


def _folder(run: Run | str | Path) -> Path:
    if not isinstance(run, Run):
        return Path(run)
    if run.result["run"] is None:
        raise RunError(
            f"{run!r} left no folder; expected a run with one. Pass out= to coterie.run."
        )
    return Path(run.result["run"])


def _checked(wanted: Sequence[int] | int) -> list[int]:
    wanted = [wanted] if isinstance(wanted, int) else list(wanted)
    if not wanted or not all(isinstance(n, int) and n > 0 for n in wanted):
        raise ConfigError(
            f"rounds are {wanted}; expected one or more, each at least 1. Ask for example for 10 and 100."
        )
    return sorted(set(wanted))
