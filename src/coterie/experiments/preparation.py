"""Preparation of an experiment: load the data, split it, check for leaks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from coterie.algorithms.registry import algorithm
from coterie.core.progress import SILENT, Progress
from coterie.data import splits
from coterie.data.datasets import load
from coterie.data.filters import apply_ratings
from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.data.reading import read
from coterie.data.splits import Split
from coterie.data.training_set import TrainingSet
from coterie.errors import ConfigError
from coterie.evaluation import candidates as sampling
from coterie.evaluation import leaks
from coterie.evaluation.candidates import Candidates
from coterie.evaluation.list_values import check_categories
from coterie.evaluation.rating_errors import check_ratings
from coterie.experiments import run_folder
from coterie.experiments.config import OF_NODES, Experiment
from coterie.experiments.training import Evaluator, sampled
from coterie.federated.availability import with_availability_trace
from coterie.federated.disclosure import Disclosing
from coterie.federated.preferences import with_preferences
from coterie.federated.settings import FederationSettings

MANY_SCORES = 5_000_000_000
"""Scores from which a final evaluation may take minutes. Six times as many took ALS nine minutes on
a busy machine."""


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
        """Fingerprint of the data and of the users' privacy preferences."""
        preferences = self.training.preferences
        suffix = "" if preferences is None else f"+{preferences.fingerprint()}"
        return self.data.fingerprint() + suffix

    @property
    def catalogue(self) -> run_folder.Catalogue:
        train = self.parts.train
        return run_folder.Catalogue(
            train.user_ids, train.item_ids, train.item_texts, self.parts.seen()
        )


def prepare(
    experiment: Experiment, given: Interactions | Split | None, progress: Progress
) -> Prepared:
    """Load the data unless it is given, split it unless it is given in parts, check the split."""
    if given is None:
        given = load_data(experiment, progress)
    if not algorithm(experiment.choice.algorithm).explicit:
        # Given data may have ratings, but the scores of this algorithm do not predict them.
        given = given.without_ratings()
    if isinstance(given, Split):
        data = given.train
        parts, candidates = from_given_parts(experiment, given, progress)
    else:
        data = given
        parts, candidates = split_data(experiment, data, progress)
    training = training_set(experiment, parts, progress)
    experiment = replace(experiment, settings=experiment.settings.for_data(training.size))
    evaluator = Evaluator.of(experiment, parts, candidates)
    return Prepared(experiment, data, parts, candidates, training, evaluator)


def training_set(experiment: Experiment, parts: Split, progress: Progress) -> TrainingSet:
    """All that training may see, checked for leaks, with the users' privacy preferences."""
    training = parts.training(experiment.course.as_published)
    leaks.check(parts, training, experiment.course.as_published)
    if isinstance(experiment.settings, Disclosing):
        train = parts.train
        training = with_preferences(
            training, experiment.settings, train.user_ids, train.item_ids, progress
        )
    if isinstance(experiment.settings, FederationSettings):
        training = with_availability_trace(training, experiment.settings, parts.train, progress)
    return training


def load_data(experiment: Experiment, progress: Progress = SILENT) -> Interactions:
    options = read_options(experiment)
    name = experiment.choice.dataset
    if name == OF_NODES:
        raise ConfigError(
            "the run is a federation's, whose interactions are on its nodes; expected the run of "
            "a simulation. Add --set dataset=NAME to repeat its settings on data that is here."
        )
    data = load(name, experiment.filters, options, experiment.synthetic, progress)
    for line in (*data.reading, *data.notes):
        progress.log(line)
    if data.n_users * data.n_items > MANY_SCORES:
        progress.log(
            f"every method ranks {data.n_items:,} items for up to {data.n_users:,} users, which "
            "may take minutes; --set core=N leaves out users and items with fewer than N "
            "interactions"
        )
    return data


def read_options(experiment: Experiment) -> ReadOptions:
    choice = experiment.choice
    return ReadOptions(
        columns=choice.columns,
        skip_bad_rows=choice.skip_bad_rows,
        duplicates=experiment.filters.duplicates,
        encoding=choice.encoding,
        delimiter=choice.delimiter,
        header=choice.header,
    )


def split_data(
    experiment: Experiment, data: Interactions, progress: Progress = SILENT
) -> tuple[Split, Candidates | None]:
    """The split and the candidates of test items, both determined by the seed."""
    protocol = experiment.protocol
    check_ratings(protocol, data.ratings is not None)
    check_categories(protocol, data)
    seed = experiment.choice.seed
    published = None
    if protocol.candidates_file:
        published = sampling.read_published(Path(protocol.candidates_file), data)
    if published is not None:
        parts = splits.from_test_pairs(data, published.users, published.items[:, 0])
    elif protocol.split == "own":
        test, validation = _own_parts(experiment, progress)
        parts = _of_known_users(splits.from_parts(data, test, validation), progress)
    elif protocol.split == "given":
        raise ConfigError(
            "split is 'given', but no parts are: they were passed in from Python, and a run folder "
            "does not keep them. Pass them again with coterie.run(..., test=...), or write them to "
            "files and set split=own."
        )
    else:
        parts = splits.split(
            data, protocol.split, protocol.fraction, seed, protocol.validation, protocol.draw
        )
    if protocol.validation and parts.validation is None:
        parts = splits.with_validation(parts, seed)
    if published is not None or not protocol.candidates:
        return parts, published
    return parts, sampled(protocol, parts, seed)


def from_given_parts(
    experiment: Experiment, given: Split, progress: Progress
) -> tuple[Split, Candidates | None]:
    """The split that was passed in, and the candidates of its test items."""
    protocol = experiment.protocol
    seed = experiment.choice.seed
    check_ratings(protocol, given.test.ratings is not None)
    check_categories(protocol, given.train)
    parts = _of_known_users(given, progress)
    if protocol.validation and parts.validation is None:
        parts = splits.with_validation(parts, seed)
    return parts, sampled(protocol, parts, seed) if protocol.candidates else None


def _of_known_users(parts: Split, progress: Progress) -> Split:
    """The split without held-out interactions of users who are not in the training part."""
    known = splits.without_new_users(parts)
    if removed := len(parts.test) - len(known.test):
        progress.log(
            f"removed {removed:,} test interactions of users without training interactions"
        )
    return known


def _own_parts(
    experiment: Experiment, progress: Progress
) -> tuple[Interactions, Interactions | None]:
    """The test part and, if named, the validation part of split=own, filtered as training is."""
    protocol = experiment.protocol
    options = read_options(experiment)

    def part(path: str) -> Interactions:
        interactions = apply_ratings(read(Path(path), options), experiment.filters)
        for line in (*interactions.reading, *interactions.notes):
            progress.log(f"{path}: {line}")
        return interactions

    assert protocol.test_file is not None  # the protocol checks it
    test = part(protocol.test_file)
    validation = part(protocol.validation_file) if protocol.validation_file else None
    return test, validation
