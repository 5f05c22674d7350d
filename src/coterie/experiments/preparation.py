"""src/coterie/experiments/preparation.py."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from coterie.core.progress import SILENT, Progress
from coterie.data import splits
from coterie.data.datasets import load
from coterie.data.filters import rated
from coterie.data.interactions import Interactions
from coterie.data.options import Reading
from coterie.data.reading import read
from coterie.data.splits import Split
from coterie.data.training_set import TrainingSet
from coterie.evaluation import candidates as sampling
from coterie.evaluation import leaks
from coterie.evaluation.candidates import Candidates
from coterie.experiments import folder as disk
from coterie.experiments.config import Experiment
from coterie.experiments.training import Evaluator, sampled
from coterie.federated.availability import with_presence
from coterie.federated.disclosure import Disclosing
from coterie.federated.preferences import with_preferences
from coterie.federated.settings import FederationSettings


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything that is known before training begins."""

    experiment: Experiment
    data: Interactions
    parts: Split
    candidates: Candidates | None
    training: TrainingSet
    evaluator: Evaluator

    @property
    def fingerprint(self) -> str:
        """Of the data and of what people want to keep for themselves."""
        preferences = self.training.preferences
        return self.data.fingerprint() + (
            "" if preferences is None else f"+{preferences.fingerprint()}"
        )

    @property
    def catalogue(self) -> disk.Catalogue:
        train = self.parts.train
        return disk.Catalogue(train.user_ids, train.item_ids, train.item_texts, self.parts.seen())


def prepare(experiment: Experiment, data: Interactions | None, progress: Progress) -> Prepared:
    """Load, split, check."""
    data = load_data(experiment, progress) if data is None else data
    parts, candidates = hold_out(experiment, data, progress)
    training = to_learn_from(experiment, parts, progress)
    return Prepared(
        experiment, data, parts, candidates, training, Evaluator.of(experiment, parts, candidates)
    )


def to_learn_from(experiment: Experiment, parts: Split, progress: Progress) -> TrainingSet:
    """All that training may see, checked, with what people want to keep for themselves."""
    training = parts.training(experiment.course.as_published)
    leaks.check(parts, training, experiment.course.as_published)
    if isinstance(experiment.settings, Disclosing):
        training = with_preferences(training, experiment.settings, parts.train, progress)
    if isinstance(experiment.settings, FederationSettings):
        training = with_presence(training, experiment.settings, parts.train, progress)
    return training


def load_data(experiment: Experiment, progress: Progress = SILENT) -> Interactions:
    choice = experiment.choice
    options = Reading(choice.columns, choice.skip_bad_rows, experiment.filters.duplicates)
    data = load(choice.dataset, experiment.filters, options, experiment.synthetic, progress)
    for note in data.notes:
        progress.log(note)
    return data


def hold_out(
    experiment: Experiment, data: Interactions, progress: Progress = SILENT
) -> tuple[Split, Candidates | None]:
    """The split and what test items are ranked against, both a function of the seed."""
    protocol = experiment.protocol
    seed = experiment.choice.seed
    published = (
        sampling.read_published(Path(protocol.candidates_file), data)
        if protocol.candidates_file
        else None
    )
    if published is not None:
        parts = splits.given(data, published.users, published.items[:, 0])
    elif protocol.split == "own":
        held = _own_files(experiment, progress)
        parts = splits.without_new_users(splits.own(data, *held))
        if strangers := len(held[0]) - len(parts.test):
            progress.log(
                f"{strangers:,} test interactions are by people without training data and are left out"
            )
    else:
        parts = splits.split(data, protocol.split, protocol.fraction, seed, protocol.validation)
    if protocol.validation and parts.validation is None:
        parts = splits.with_validation(parts, seed)
    if published is not None or not protocol.candidates:
        return parts, published
    return parts, sampled(protocol, parts, seed)


def _own_files(
    experiment: Experiment, progress: Progress
) -> tuple[Interactions, Interactions | None]:
    """The test part and, if named, the validation part of a split that somebody else made; rated as training is."""
    protocol = experiment.protocol
    choice = experiment.choice
    options = Reading(choice.columns, choice.skip_bad_rows, experiment.filters.duplicates)

    def part(path: str) -> Interactions:
        held = rated(read(Path(path), options), experiment.filters)
        for note in held.notes:
            progress.log(f"{path}: {note}")
        return held

    assert protocol.test_file is not None  # the protocol sees to it
    return part(protocol.test_file), part(
        protocol.validation_file
    ) if protocol.validation_file else None
