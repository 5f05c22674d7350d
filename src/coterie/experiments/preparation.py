"""src/coterie/experiments/preparation.py."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from coterie.core.progress import SILENT, Watch
from coterie.data import splits
from coterie.data.datasets import load
from coterie.data.filters import rated
from coterie.data.interactions import Interactions
from coterie.data.options import Reading
from coterie.data.reading import read
from coterie.data.splits import Split
from coterie.data.training_set import Training
from coterie.evaluation import candidates as sampling
from coterie.evaluation import leaks
from coterie.evaluation.candidates import Candidates
from coterie.experiments import folder as disk
from coterie.experiments.config import Experiment
from coterie.experiments.training import Ruler, sampled
from coterie.federated.availability import with_presence
from coterie.federated.disclosure import Disclosing
from coterie.federated.preferences import with_wishes
from coterie.federated.settings import Simulated


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything that is known before training begins."""

    experiment: Experiment
    data: Interactions
    parts: Split
    candidates: Candidates | None
    training: Training
    ruler: Ruler

    @property
    def fingerprint(self) -> str:
        """Of the data and of what people want to keep for themselves."""
        wishes = self.training.wishes
        return self.data.fingerprint() + ("" if wishes is None else f"+{wishes.fingerprint()}")

    @property
    def catalogue(self) -> disk.Catalogue:
        train = self.parts.train
        return disk.Catalogue(train.user_ids, train.item_ids, train.item_texts, self.parts.seen())


def prepare(experiment: Experiment, data: Interactions | None, watch: Watch) -> Prepared:
    """Load, split, check."""
    data = load_data(experiment, watch) if data is None else data
    parts, candidates = hold_out(experiment, data, watch)
    training = to_learn_from(experiment, parts, watch)
    return Prepared(
        experiment, data, parts, candidates, training, Ruler.of(experiment, parts, candidates)
    )


def to_learn_from(experiment: Experiment, parts: Split, watch: Watch) -> Training:
    """All that training may see, checked, with what people want to keep for themselves."""
    training = parts.training(experiment.course.as_published)
    leaks.check(parts, training, experiment.course.as_published)
    if isinstance(experiment.settings, Disclosing):
        training = with_wishes(training, experiment.settings, parts.train, watch)
    if isinstance(experiment.settings, Simulated):
        training = with_presence(training, experiment.settings, parts.train, watch)
    return training


def load_data(experiment: Experiment, watch: Watch = SILENT) -> Interactions:
    choice = experiment.choice
    options = Reading(choice.columns, choice.skip_bad_rows, experiment.filters.duplicates)
    data = load(choice.dataset, experiment.filters, options, experiment.synthetic, watch)
    for note in data.notes:
        watch.say(note)
    return data


def hold_out(
    experiment: Experiment, data: Interactions, watch: Watch = SILENT
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
        held = _own_files(experiment, watch)
        parts = splits.without_newcomers(splits.own(data, *held))
        if strangers := len(held[0]) - len(parts.test):
            watch.say(
                f"{strangers:,} test interactions are by people without training data and are left out"
            )
    else:
        parts = splits.split(data, protocol.split, protocol.fraction, seed, protocol.validation)
    if protocol.validation and parts.validation is None:
        parts = splits.with_validation(parts, seed)
    if published is not None or not protocol.candidates:
        return parts, published
    return parts, sampled(protocol, parts, seed)


def _own_files(experiment: Experiment, watch: Watch) -> tuple[Interactions, Interactions | None]:
    """The test part and, if named, the validation part of a split that somebody else made; rated as training is."""
    protocol = experiment.protocol
    choice = experiment.choice
    options = Reading(choice.columns, choice.skip_bad_rows, experiment.filters.duplicates)

    def part(path: str) -> Interactions:
        held = rated(read(Path(path), options), experiment.filters)
        for note in held.notes:
            watch.say(f"{path}: {note}")
        return held

    assert protocol.test_file is not None  # the protocol sees to it
    return part(protocol.test_file), part(
        protocol.validation_file
    ) if protocol.validation_file else None
