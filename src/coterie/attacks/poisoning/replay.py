"""Replay a run with and without attackers, and measure both models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from coterie import kernels
from coterie.algorithms.registry import algorithm
from coterie.attacks.poisoning.colluders import Colluders, check_seed, check_share
from coterie.attacks.poisoning.contract import PoisoningAttack
from coterie.attacks.poisoning.federation import poisoned
from coterie.attacks.poisoning.measures import Measures, measure
from coterie.attacks.poisoning.registry import ATTACKS, attack
from coterie.core.heap import keep_large_blocks
from coterie.core.progress import SILENT, Progress
from coterie.data.interactions import Interactions
from coterie.engines import select
from coterie.errors import ConfigError, UnknownName
from coterie.experiments.config import Experiment
from coterie.experiments.derived_defaults import popularity_prior
from coterie.experiments.preparation import Prepared, prepare
from coterie.experiments.run_folder import read_settings
from coterie.experiments.training import begin
from coterie.experiments.warm_start import reuse
from coterie.federated.federation import AnyFederation, Federation
from coterie.federated.settings import federation_settings
from coterie.federated.trainer import Context
from coterie.models.popularity_prior import recommender
from coterie.types import Ints, JsonObject

HELD = ("algorithm", "dataset")
"""Settings without which a run is another one."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a run came to, as honest users see it."""

    measures: Measures
    selected: int
    """How often a colluder was selected."""
    steps: int
    """Rounds, or epochs of FPL, that were replayed."""
    refused: Counter[str]
    """Updates of all clients that were refused, by reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A run with and without attackers."""

    about: JsonObject
    clean: Measures
    attacked: Measures
    selected: tuple[int, int]
    """How often a colluder was selected: without the attack, and with it."""
    refused: Mapping[str, int]
    """Updates that were refused in the attacked run, by reason."""

    def as_json(self) -> JsonObject:
        return self.about | {
            "clean": self.clean.as_json(),
            "attacked": self.attacked.as_json(),
            "selected": {"clean": self.selected[0], "attacked": self.selected[1]},
            "refused": dict(self.refused),
        }


def attack_run(
    folder: Path,
    name: str,
    *,
    share: float = 0.01,
    target: str | None = None,
    seed: int = 0,
    settings: Mapping[str, object] | None = None,
    data: Interactions | None = None,
    progress: Progress = SILENT,
) -> Outcome:
    """Replay a run folder's configuration with and without attackers. Writes nothing.

    `target`: id of an item; a cold item by default. `settings`: of the attack, or of the run.
    """
    check_share(share)
    check_seed(seed)
    of_attack, changes = split_settings(name, settings or {})
    chosen = attack(name, of_attack)
    before = read_settings(folder)
    refuse_changes(name, changes, before)
    ready = prepare(Experiment.of(before | changes), data, progress)
    outcome = attack_prepared(
        ready, chosen, share=share, target=target, seed=seed, progress=progress
    )
    return replace(outcome, about={"run": str(folder), "changes": changes} | outcome.about)


def split_settings(name: str, settings: Mapping[str, object]) -> tuple[JsonObject, JsonObject]:
    """Settings of the attack, and changes of the run's own settings."""
    if name not in ATTACKS:
        raise UnknownName("attack", name, ATTACKS)
    own = ATTACKS[name].settings.model_fields
    of_attack = {key: value for key, value in settings.items() if key in own}
    return of_attack, {key: value for key, value in settings.items() if key not in own}


def refuse_changes(name: str, changes: JsonObject, before: JsonObject) -> None:
    """Reject another algorithm or dataset, and settings of another attack."""
    for key in HELD:
        if key in changes:
            raise ConfigError(
                f"setting {key!r} is {changes[key]!r}; expected that of the run, {before[key]!r}. "
                "Attack another run: coterie run ALGORITHM --dataset NAME."
            )
    for key in changes.keys() - before.keys():
        owners = [other for other in ATTACKS if key in ATTACKS[other].settings.model_fields]
        if owners:
            own = ", ".join(ATTACKS[name].settings.model_fields)
            raise ConfigError(
                f"setting {key!r} is of the attack {' or '.join(owners)}, and the attack is "
                f"{name}; expected one of {own}, or a setting of the run. Leave it out."
            )


def attack_prepared(
    ready: Prepared,
    chosen: PoisoningAttack,
    *,
    share: float,
    target: str | None = None,
    seed: int = 0,
    progress: Progress = SILENT,
) -> Outcome:
    """The same for an experiment whose data is loaded and split."""
    choice = ready.experiment.choice
    federation = algorithm(choice.algorithm).train
    if not isinstance(federation, Federation):
        raise ConfigError(
            f"the run's algorithm is {choice.algorithm}, which is centralised; expected a "
            "federated one, whose clients can attack. Name the folder of such a run."
        )
    item = None if target is None else item_index(ready, target)
    colluders = Colluders.of(ready.training, share=share, target=item, seed=seed)
    # Attacked first: an attack that is refused costs no training.
    bad = poisoned(federation, chosen, colluders)
    attacked = replay(ready, bad, colluders, progress, "with attackers")
    clean = replay(ready, federation, colluders, progress, "without attackers")
    return Outcome(
        about=describe(ready, chosen, colluders, share) | {"steps": attacked.steps},
        clean=clean.measures,
        attacked=attacked.measures,
        selected=(clean.selected, attacked.selected),
        refused=attacked.refused,
    )


def describe(
    ready: Prepared, chosen: PoisoningAttack, colluders: Colluders, share: float
) -> JsonObject:
    counts = np.bincount(ready.training.positives.items, minlength=ready.training.n_items)
    choice = ready.experiment.choice
    return {
        "algorithm": choice.algorithm,
        "dataset": ready.experiment.data_label,
        "robust": federation_settings(ready.experiment.settings).robust,
        "attack": chosen.name,
        "settings": chosen.settings.model_dump(mode="json"),
        "share": share,
        "seed": colluders.seed,
        "attackers": len(colluders.users),
        "users": int((ready.training.positives.counts > 0).sum()),
        "target": str(ready.parts.train.item_ids[colluders.target]),
        "target_interactions": int(counts[colluders.target]),
    }


def item_index(ready: Prepared, target: str) -> int:
    ids = [str(each) for each in ready.parts.train.item_ids]
    if target not in ids:
        raise UnknownName("item", target, ids, " in --target")
    return ids.index(target)


def replay(
    ready: Prepared,
    federation: AnyFederation,
    colluders: Colluders,
    progress: Progress = SILENT,
    label: str = "",
) -> Replayed:
    """All steps of the run on nodes in this process. Patience does not stop it."""
    keep_large_blocks()
    experiment = ready.experiment
    name = experiment.choice.algorithm
    settings = federation_settings(experiment.settings).model_copy(update={"engine": "local"})
    for family in (*algorithm(name).kernels_for(settings), "ranking"):
        kernels.load(family, progress)
    work = select.trainer(
        federation, ready.training, settings, Context(experiment.choice.seed, progress)
    )
    earlier = experiment.course.start_from
    warm = reuse(Path(earlier), ready.catalogue, ready.parts.test) if earlier else None
    state = begin(work, ready.training.n_users, warm).state
    total = work.n_steps(algorithm(name).steps(settings))
    selected = 0
    refused: Counter[str] = Counter()
    with progress.task(f"Replaying {name} {label}".rstrip(), total) as advance:
        for n in range(1, total + 1):
            state, costs = work.step(state, n)
            selected += times_selected(costs.users, colluders)
            refused += costs.refused
            advance()
    work.finish(state)
    prior, _ = popularity_prior(experiment, ready.training)
    model = recommender(work.model(state), prior)
    measures = measure(model, ready.parts, ready.candidates, colluders.users, colluders.target)
    return Replayed(measures, selected, total, refused)


def times_selected(users: Ints, colluders: Colluders) -> int:
    return int(np.isin(users, colluders.users).sum())
